/* The parts of a decoder layer between its matrix products, in float32 on a CPU.
 *
 * Compiled and called by native.py; layers.py and attention.py compute the same with torch. What is
 * written for a row depends on that row alone and is summed in one order, whatever else is in the
 * batch.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { LANES = 16, MAX_VECTORS = 16, HEAD_BLOCK = 3 };

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64)));
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec4 __attribute__((vector_size(16)));

/* Spans of one pass; a span's tokens continue the KV of one slot. */
typedef struct {
    int64_t num_spans;
    const int64_t *slot;
    const int64_t *start;      /* KV entries before the span */
    const int64_t *first_row;  /* where its tokens begin in the pass */
    const int64_t *length;     /* tokens */
    const int64_t *sees;       /* where its tokens' table begins in `visible`; -1 for a chain */
    const uint8_t *visible;    /* [length, length] of each tree, 1 for ancestors and oneself */
    const int64_t *first_seen; /* [N], the first entry that a token sees */
} spans_t;

/* Sizes of one layer's KV, [slots, kv_heads, context, head_dim], and of its heads. */
typedef struct {
    int64_t num_heads, kv_heads, context, head_dim;
} heads_t;

static inline float sum_of(vec v) {
    union { vec v; vec8 half[2]; } whole = {v};
    union { vec8 v; vec4 half[2]; } part = {whole.half[0] + whole.half[1]};
    vec4 rest = part.half[0] + part.half[1];
    return (rest[0] + rest[1]) + (rest[2] + rest[3]);
}

static inline vec chosen(ints mask, vec yes, vec no) {
    return (vec)((mask & (ints)yes) | (~mask & (ints)no));
}

/* e^x for x <= 0, within 2 units in the last place; below -87 it stays at e^-87.
 * Source: Cephes, expf. */
static inline vec exp_of(vec x) {
    const vec least = (vec){0} - 87.0f;
    x = chosen(x < least, least, x);
    const vec shifter = (vec){0} + 12582912.0f;
    const vec power = (x * 1.44269504f + shifter) - shifter;
    const vec rest = (x - power * 0.693359375f) + power * 2.12194440e-4f;
    vec series = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    series = series * rest + 8.3334519073e-3f;
    series = series * rest + 4.1665795894e-2f;
    series = series * rest + 1.6666665459e-1f;
    series = series * rest + 5.0000001201e-1f;
    series = series * rest * rest + rest + 1.0f;
    return series * (vec)((__builtin_convertvector(power, ints) + 127) << 23);
}

void rms_norm(const float *hidden, const float *weight, float *output, int64_t rows, int64_t width,
              float eps) {
    for (int64_t row = 0; row < rows; row++) {
        const vec *from = (const vec *)(hidden + row * width);
        const vec *by = (const vec *)weight;
        vec *to = (vec *)(output + row * width);
        vec squares = {0};
        for (int64_t i = 0; i < width / LANES; i++) squares += from[i] * from[i];
        const float scale = 1.0f / sqrtf(sum_of(squares) / (float)width + eps);
        for (int64_t i = 0; i < width / LANES; i++) to[i] = from[i] * scale * by[i];
    }
}

/* output [rows, width] = silu(first half) * second half of gate_up [rows, 2 * width]. */
void gated(const float *gate_up, float *output, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++) {
        const vec *gate = (const vec *)(gate_up + row * 2 * width);
        const vec *up = gate + width / LANES;
        vec *to = (vec *)(output + row * width);
        for (int64_t i = 0; i < width / LANES; i++) {
            const vec value = gate[i];
            const ints is_negative = value < 0;
            const vec small = exp_of(chosen(is_negative, value, -value)); /* e^-|x| */
            const vec one = (vec){0} + 1.0f;
            to[i] = value * (chosen(is_negative, small, one) / (small + one)) * up[i];
        }
    }
}

/* Rotate pairs that lie side by side, [num_heads, head_dim], by angles [head_dim / 2] (cos, sin). */
static void rotate(float *heads, const float *angles, int64_t num_heads, int64_t head_dim) {
    for (int64_t head = 0; head < num_heads; head++, heads += head_dim) {
        for (int64_t i = 0; i < head_dim; i += 2) {
            const float x = heads[i], y = heads[i + 1], c = angles[i], s = angles[i + 1];
            heads[i] = x * c - y * s;
            heads[i + 1] = x * s + y * c;
        }
    }
}

/* Rotate queries and keys of qkv [rows, (heads + 2 kv_heads) * head_dim] in place and store keys and
 * values where `place` [rows] says: slot * kv_heads * context + entry. */
void store(float *qkv, const float *rotation, float *keys, float *values, const int64_t *place,
           int64_t rows, const heads_t *sizes) {
    const int64_t dim = sizes->head_dim, kv_heads = sizes->kv_heads;
    const int64_t num_rotated = sizes->num_heads + kv_heads;
    for (int64_t row = 0; row < rows; row++) {
        float *heads = qkv + row * (num_rotated + kv_heads) * dim;
        rotate(heads, rotation + row * dim, num_rotated, dim);
        const float *key = heads + sizes->num_heads * dim, *value = heads + num_rotated * dim;
        for (int64_t head = 0; head < kv_heads; head++) {
            const int64_t at = (place[row] + head * sizes->context) * dim;
            for (int64_t i = 0; i < dim; i++) {
                keys[at + i] = key[head * dim + i];
                values[at + i] = value[head * dim + i];
            }
        }
    }
}

/* List the KV entries that a token of a span sees, ascending; return how many. */
static int64_t list_seen(const spans_t *spans, int64_t span, int64_t token, int32_t *seen) {
    const int64_t start = spans->start[span], length = spans->length[span];
    const int64_t first = spans->first_seen[spans->first_row[span] + token];
    int64_t count = 0;
    for (int64_t entry = first; entry < start; entry++) seen[count++] = (int32_t)entry;
    const uint8_t *row = spans->sees[span] < 0 ? 0 : spans->visible + spans->sees[span] + token * length;
    for (int64_t other = 0; other <= token; other++) {
        if (row ? row[other] : start + other >= first) seen[count++] = (int32_t)(start + other);
    }
    return count;
}

/* Attend `block` heads that share one KV head; scores [block, room]. */
static inline __attribute__((always_inline)) void attend_heads(
    const float *queries, const float *keys, const float *values, const int32_t *seen, int64_t count,
    float *scores, int64_t room, float *output, const int block, const int vectors) {
    const int64_t dim = (int64_t)vectors * LANES;
    const float scale = 1.0f / sqrtf((float)dim);
    float highest[HEAD_BLOCK], total[HEAD_BLOCK];
    for (int head = 0; head < block; head++) highest[head] = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const vec *key = (const vec *)(keys + seen[i] * dim);
        for (int head = 0; head < block; head++) {
            const vec *query = (const vec *)(queries + head * dim);
            vec product = query[0] * key[0];
            for (int v = 1; v < vectors; v++) product += query[v] * key[v];
            const float score = sum_of(product) * scale;
            scores[head * room + i] = score;
            highest[head] = score > highest[head] ? score : highest[head];
        }
    }
    for (int head = 0; head < block; head++) {
        float *row = scores + head * room;
        vec sums = {0};
        for (int64_t i = count; i % LANES; i++) row[i] = -INFINITY;
        for (int64_t i = 0; i < count; i += LANES) {
            const vec weights = exp_of(*(vec *)(row + i) - highest[head]);
            *(vec *)(row + i) = weights;
            sums += weights;
        }
        total[head] = sum_of(sums);
    }
    vec mixed[HEAD_BLOCK][MAX_VECTORS];
    for (int head = 0; head < block; head++)
        for (int v = 0; v < vectors; v++) mixed[head][v] = (vec){0};
    for (int64_t i = 0; i < count; i++) {
        const vec *value = (const vec *)(values + seen[i] * dim);
        for (int head = 0; head < block; head++)
            for (int v = 0; v < vectors; v++) mixed[head][v] += scores[head * room + i] * value[v];
    }
    for (int head = 0; head < block; head++)
        for (int v = 0; v < vectors; v++)
            ((vec *)(output + head * dim))[v] = mixed[head][v] * (1.0f / total[head]);
}

/* Attend all heads of one token that share one KV head, in blocks that stay in registers. */
static inline __attribute__((always_inline)) void attend_group(
    const float *queries, const float *keys, const float *values, const int32_t *seen, int64_t count,
    float *scores, int64_t room, float *output, int64_t groups, const int vectors) {
    const int64_t dim = (int64_t)vectors * LANES;
    int64_t head = 0;
    for (; head + HEAD_BLOCK <= groups; head += HEAD_BLOCK)
        attend_heads(queries + head * dim, keys, values, seen, count, scores, room,
                     output + head * dim, HEAD_BLOCK, vectors);
    for (; head < groups; head++)
        attend_heads(queries + head * dim, keys, values, seen, count, scores, room,
                     output + head * dim, 1, vectors);
}

/* Attend over stored KV: qkv as `store` leaves it, output [rows, num_heads * head_dim].
 * Returns 0, or 1 where there was no memory. */
int attend(const float *qkv, const float *keys, const float *values, float *output,
           const spans_t *spans, const heads_t *sizes, int num_threads) {
    const int64_t dim = sizes->head_dim, kv_heads = sizes->kv_heads;
    const int64_t groups = sizes->num_heads / kv_heads, vectors = dim / LANES;
    const int64_t width = (sizes->num_heads + 2 * kv_heads) * dim;
    const int64_t room = (sizes->context / LANES + 1) * LANES;
    const int64_t num_items = spans->num_spans * kv_heads;
    int failures = 0;
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1) reduction(+ : failures)
    for (int64_t item = 0; item < num_items; item++) {
        const int64_t span = item / kv_heads, kv_head = item % kv_heads;
        const int64_t at = (spans->slot[span] * kv_heads + kv_head) * sizes->context * dim;
        int32_t *seen = malloc((size_t)room * (sizeof(int32_t) + HEAD_BLOCK * sizeof(float)));
        if (!seen) {
            failures++;
            continue;
        }
        float *scores = (float *)(seen + room);
        for (int64_t token = 0; token < spans->length[span]; token++) {
            const int64_t row = spans->first_row[span] + token, head = kv_head * groups * dim;
            const int64_t count = list_seen(spans, span, token, seen);
            const float *queries = qkv + row * width + head;
            float *to = output + row * sizes->num_heads * dim + head;
            if (vectors == 4)
                attend_group(queries, keys + at, values + at, seen, count, scores, room, to, groups, 4);
            else if (vectors == 8)
                attend_group(queries, keys + at, values + at, seen, count, scores, room, to, groups, 8);
            else
                attend_group(queries, keys + at, values + at, seen, count, scores, room, to, groups,
                             (int)vectors);
        }
        free(seen);
    }
    return failures > 0;
}

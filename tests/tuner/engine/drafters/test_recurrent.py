"""EAGLE and MTP drafts against heads computed anew for every token, and against themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from collectors.records import Method, Setting
from tests.tuner.engine import tiny_heads
from tests.tuner.engine.harness import prompts, random_decoder
from tests.tuner.engine.plain_heads import (
    PlainHead,
    path_logits,
    plain_eagle_1,
    plain_eagle_3,
    plain_mtp,
)
from tuner.engine.drafters.base import Draft, DraftAsk, TargetView
from tuner.engine.drafters.recurrent import RecurrentDrafter
from tuner.engine.model.decoder import features_for
from tuner.engine.model.heads.base import RecurrentHead
from tuner.engine.model.heads.mtp import MtpModules
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.slots import FINAL, FeatureSlots
from tuner.engine.request import SamplingParams
from tuner.engine.verification.drawing import new_generator

VOCAB, SLOTS, CONTEXT = 24, 5, 160
REDUCED = torch.arange(1, VOCAB, 2)

Case = tuple[Callable[[LlamaDecoder], RecurrentHead], Callable[[LlamaDecoder], list[PlainHead]]]


def eagle_3_plain(target: LlamaDecoder) -> list[PlainHead]:
    shape = tiny_heads.one_layer(target.shape)
    return [plain_eagle_3(target, tiny_heads.eagle_3_weights(shape, len(REDUCED)))]


def mtp_plain(count: int) -> Callable[[LlamaDecoder], list[PlainHead]]:
    return lambda target: [
        plain_mtp(target, tiny_heads.mtp_weights(target.shape, seed=3 + number))
        for number in range(count)
    ]


def normed_heads(target: LlamaDecoder) -> dict[str, Tensor]:
    dice = tiny_heads.Dice(11)
    names = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
    normed = {name: dice.norm(target.shape.head_dim) for name in names}
    return tiny_heads.mtp_weights(target.shape) | normed


def mtp_with_normed_heads(target: LlamaDecoder) -> RecurrentHead:
    shape = tiny_heads.one_layer(target.shape)
    return MtpModules(shape, [normed_heads(target)], tiny_heads.head_target(target), vocab=None)


CASES: dict[str, Case] = {
    "eagle_1": (
        tiny_heads.eagle_1_head,
        lambda target: [plain_eagle_1(target, tiny_heads.eagle_1_weights(target.shape))],
    ),
    "eagle_3": (lambda target: tiny_heads.eagle_3_head(target, REDUCED), eagle_3_plain),
    "mtp": (tiny_heads.mtp_modules, mtp_plain(1)),
    "mtp_with_normed_heads": (
        mtp_with_normed_heads,
        lambda target: [plain_mtp(target, normed_heads(target))],
    ),
    "mtp_of_two": (lambda target: tiny_heads.mtp_modules(target, 2), mtp_plain(2)),
}


class Bench:
    """A drafter beside a target whose features are filled as the core would fill them."""

    def __init__(self, case: str) -> None:
        make, plain = CASES[case]
        self.target = random_decoder(1, VOCAB)
        self.head = make(self.target)
        self.plain = plain(self.target)
        self.features = self._features()
        self.drafter = self.fresh()

    def fresh(self) -> RecurrentDrafter:
        drafter = RecurrentDrafter(
            self.head,
            num_slots=SLOTS,
            max_context_tokens=CONTEXT,
            drafter_id="",
            drafter_hash="",
        )
        drafter.method = Method.EAGLE
        slots = self.target.new_slots(SLOTS, CONTEXT)
        drafter.attach(TargetView(decoder=self.target, slots=slots, features=self.features))
        return drafter

    def _features(self) -> FeatureSlots:
        shape, kind = self.target.shape, self.target.mask_kind
        return features_for(shape, (0, 1, FINAL), SLOTS, CONTEXT, kind)

    def commit(self, slot: int, token_ids: Sequence[int]) -> None:
        """Let the target read all but the last token."""
        slots = self.target.new_slots(SLOTS, CONTEXT)
        span = Span(slot=slot, start=0, token_ids=token_ids[:-1])
        self.target.forward(lay_out([span], self.target.mask_kind), slots, self.features)

    def plain_logits(self, slot: int, token_ids: Sequence[int], path: Sequence[int]) -> Tensor:
        taps = self.features.read(slot, 0, len(token_ids) - 1, self.head.taps)
        fused = self.head.fuse(taps)
        return path_logits(self.plain, self.target.embedding, token_ids, fused, path)

    def plain_children(
        self, slot: int, token_ids: Sequence[int], path: Sequence[int], width: int
    ) -> list[tuple[int, float]]:
        """The likeliest tokens after a path, each with its log-probability."""
        top = self.plain_logits(slot, token_ids, path).log_softmax(-1).topk(width)
        columns = top.indices
        ids = columns if self.head.vocab is None else self.head.vocab[columns]
        return list(zip(ids.tolist(), top.values.tolist(), strict=True))


@pytest.fixture(params=CASES)
def bench(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    with torch.inference_mode():
        yield Bench(request.param)


def ask(
    slot: int, token_ids: Sequence[int], k: int, nodes: int = 0, width: int = 0, **sampling: float
) -> DraftAsk:
    return DraftAsk(
        slot=slot,
        token_ids=token_ids,
        k=k,
        num_nodes=nodes or k,
        setting=Setting(method=Method.EAGLE, k=k, tree_nodes=nodes, tree_width=width),
        sampling=SamplingParams(**{"temperature": 0.0, **sampling}),  # type: ignore[arg-type]
        generator=new_generator(7),
        route="chat",
    )


def paths_of(draft: Draft) -> list[tuple[int, ...]]:
    """The tokens on the way to each node, itself included."""
    paths: list[tuple[int, ...]] = []
    parents = draft.parents if draft.parents is not None else range(-1, len(draft.token_ids) - 1)
    for token, parent in zip(draft.token_ids, parents, strict=True):
        paths.append(((*paths[parent], token)) if parent >= 0 else (token,))
    return paths


def test_a_greedy_chain_is_what_the_head_says_without_a_cache(bench: Bench) -> None:
    token_ids = prompts(1, VOCAB, seed=3)[0] + [4, 9, 2]
    bench.commit(2, token_ids)
    (draft,) = bench.drafter.propose([ask(2, token_ids, 5)])
    path: list[int] = []
    for _ in range(5):
        path.append(bench.plain_children(2, token_ids, path, 1)[0][0])
    assert draft == Draft(token_ids=tuple(path))


@pytest.mark.parametrize("slot", [1, 3, 4])
def test_a_tree_holds_the_best_paths_of_the_likeliest_nodes(bench: Bench, slot: int) -> None:
    depth, width, nodes = 4, 3, 20
    token_ids = [5, 1, 17, 8, slot]
    bench.commit(slot, token_ids)
    (draft,) = bench.drafter.propose([ask(slot, token_ids, depth, nodes, width)])
    scores: dict[tuple[int, ...], float] = {}
    beam: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        level = {
            (*path, token): scores.get(path, 0.0) + score
            for path in beam
            for token, score in bench.plain_children(slot, token_ids, path, width)
        }
        scores |= level
        beam = sorted(level, key=level.__getitem__, reverse=True)[:width]
    best = sorted(scores, key=scores.__getitem__, reverse=True)[:nodes]
    assert sorted(paths_of(draft)) == sorted(best)
    assert draft.probs is None


def test_a_drawn_chain_carries_the_distribution_of_each_token(bench: Bench) -> None:
    token_ids = [3, 14, 15, 9, 2, 6]
    bench.commit(0, token_ids)
    (draft,) = bench.drafter.propose([ask(0, token_ids, 4, temperature=0.7)])
    assert draft.probs is not None
    for length, probs in enumerate(draft.probs):
        logits = bench.plain_logits(0, token_ids, draft.token_ids[:length])
        torch.testing.assert_close(probs, (logits / 0.7).softmax(-1), atol=1e-4, rtol=1e-3)
    assert all(
        probs[token if bench.head.vocab is None else int((token == REDUCED).nonzero())] > 0
        for token, probs in zip(draft.token_ids, draft.probs, strict=True)
    )


def test_chains_and_trees_of_one_batch_are_those_of_each_row_alone(bench: Bench) -> None:
    rows = [(3, [5, 1, 4]), (0, prompts(1, VOCAB, seed=8)[0] + [1]), (4, [7, 7]), (2, [9, 2, 9])]
    asks = [
        ask(3, rows[0][1], 3, 9, 4),
        ask(0, rows[1][1], 5),
        ask(4, rows[2][1], 2, temperature=1.0),
        ask(2, rows[3][1], 5, 6, 2),
    ]
    for slot, token_ids in rows:
        bench.commit(slot, token_ids)
    together = bench.drafter.propose(asks)
    for each, draft in zip(asks, together, strict=True):
        each.generator.manual_seed(7)
        (alone,) = bench.fresh().propose([each])
        assert (alone.token_ids, alone.parents) == (draft.token_ids, draft.parents)


def test_after_steps_without_it_a_drafter_guesses_as_a_fresh_one(bench: Bench) -> None:
    token_ids = torch.randint(0, VOCAB, (150,), generator=torch.Generator().manual_seed(1)).tolist()
    for length in (8, 9, 13, 40, 41, 150):
        bench.commit(3, token_ids[:length])
        tree = ask(3, token_ids[:length], 3, 8, 3)
        (draft,) = bench.drafter.propose([tree])
        (fresh,) = bench.fresh().propose([tree])
        assert draft == fresh
        assert bench.drafter.cached_length(3) == length - 1


def test_a_moved_row_keeps_its_drafts_and_a_released_slot_forgets(bench: Bench) -> None:
    token_ids = [5, 1, 17, 8, 8, 3]
    bench.commit(4, token_ids)
    bench.drafter.propose([ask(4, token_ids, 3)])
    bench.features.move(4, 1, len(token_ids) - 1)
    bench.drafter.move(4, 1)
    assert bench.drafter.cached_length(4) == 0
    longer = [*token_ids, 2]
    bench.commit(1, longer)
    (moved,) = bench.drafter.propose([ask(1, longer, 4)])
    (fresh,) = bench.fresh().propose([ask(1, longer, 4)])
    assert moved == fresh
    bench.drafter.release(1)
    assert bench.drafter.cached_length(1) == 0


@pytest.mark.parametrize(
    ("depth", "nodes", "width"), [(1, 2, 2), (4, 4, 2), (6, 64, 20), (16, 33, 3)]
)
def test_any_tree_is_within_its_bounds(bench: Bench, depth: int, nodes: int, width: int) -> None:
    token_ids = [5, 1, 17]
    bench.commit(0, token_ids)
    (draft,) = bench.drafter.propose([ask(0, token_ids, depth, nodes, width)])
    assert draft.parents is not None
    assert len(draft.token_ids) <= nodes
    assert 1 <= draft.depth <= depth
    assert all(parent < node for node, parent in enumerate(draft.parents))
    siblings = itertools.groupby(
        sorted(zip(draft.parents, draft.token_ids, strict=True)), lambda e: e[0]
    )
    for _, group in siblings:
        tokens = [token for _, token in group]
        assert len(tokens) == len(set(tokens)) <= width

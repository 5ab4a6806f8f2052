"""One running sequence: its tokens, its counters, and how a verified block is committed to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.records import (
    OFF,
    FinishReason,
    LatencyHistogram,
    LoadLevel,
    Method,
    RequestTrace,
    Setting,
    load_level_of,
)
from tuner.engine.grammar import GrammarState
from tuner.engine.request import Delta, EngineRequest, RequestCounts, TokenLogprob
from tuner.engine.text import StopMatch, StopScanner, TokenDecoder
from tuner.engine.verification.rows import RowSampler


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """A sequence that waits or runs.

    Attributes:
        request: what was asked.
        decoder: its text so far.
        scanner: its stop strings.
        sampler: its sampling parameters, random numbers and token counts.
        grammar: where it stands in its grammar; None where it has none.
        slot: its KV slot; -1 while it waits.
        admitted_s: monotonic seconds at admission.
        token_ids: prompt and output.
        kv_length: KV entries that are valid.
        planned: Setting that the plan or the request gives it in the current step.
        setting: Setting of the current step: off in a reference step, else the planned one.
        load: load level at the first token.
        passes: target passes after the prefill.
        drafted: draft tokens verified.
        accepted: draft tokens kept.
        accepted_histogram: verify passes by accepted tokens.
        attempts: by draft position, passes that drafted it with all before it accepted.
        accepts: by draft position, attempts that were accepted.
        max_k: longest draft asked for.
        first_token_s: monotonic seconds at the first token.
        last_token_s: monotonic seconds at the last delivery.
        gaps_s: seconds between deliveries.
        finish_reason: None while it runs.
        asked: by method, tokens when it was last asked for a draft.
        prompt_logprobs: of the prompt's tokens after the first, as far as they were computed.
    """

    request: EngineRequest
    decoder: TokenDecoder
    scanner: StopScanner
    sampler: RowSampler
    grammar: GrammarState | None = None
    slot: int = -1
    admitted_s: float = 0.0
    token_ids: list[int] = field(default_factory=list)
    kv_length: int = 0
    planned: Setting = OFF
    setting: Setting = OFF
    load: LoadLevel | None = None
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_histogram: list[int] = field(default_factory=lambda: [0])
    attempts: list[int] = field(default_factory=list)
    accepts: list[int] = field(default_factory=list)
    max_k: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    asked: dict[Method, int] = field(default_factory=dict)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the prompt."""
        self.token_ids = list(self.request.prompt_ids)

    @property
    def num_output(self) -> int:
        """Tokens delivered."""
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def output_ids(self) -> list[int]:
        """Tokens delivered, as ids."""
        return self.token_ids[len(self.request.prompt_ids) :]

    @property
    def is_decoding(self) -> bool:
        """True once all but the last token are in the KV slots."""
        return self.kv_length == len(self.token_ids) - 1 and self.num_output > 0

    @property
    def draft_room(self) -> int:
        """Draft tokens that could still be delivered, the bonus token left aside."""
        return self.request.sampling.max_tokens - self.num_output - 1

    def note_asked(self, method: Method) -> int:
        """Note that a method drafts now; return how many tokens it had not read before."""
        unread = len(self.token_ids) - self.asked.get(method, 0)
        self.asked[method] = len(self.token_ids)
        return unread

    def counts(self) -> RequestCounts:
        """Return the totals so far."""
        return RequestCounts(
            prompt_tokens=len(self.request.prompt_ids),
            completion_tokens=self.num_output,
            passes=self.passes,
            verify_passes=sum(self.accepted_histogram),
            drafted=self.drafted,
            accepted=self.accepted,
            accepted_histogram=tuple(self.accepted_histogram),
            max_k=self.max_k,
        )

    def count_pass(self, drafted: int, accepted: int) -> None:
        """Count one target pass after the prefill."""
        self.passes += 1
        self.drafted += drafted
        self.accepted += accepted
        if drafted:
            self._grow_histogram(max(drafted, self.setting.k))
            self.accepted_histogram[accepted] += 1
        for position in range(min(drafted, accepted + 1)):
            if position == len(self.attempts):
                self.attempts.append(0)
                self.accepts.append(0)
            self.attempts[position] += 1
            self.accepts[position] += position < accepted

    def commit(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob],
        *,
        at_s: float,
        load: LoadLevel,
    ) -> Delta:
        """Append a verified block, cut where an end, a stop or the limit falls inside it.

        Args:
            token_ids: accepted draft tokens and the target's own, at least one.
            logprobs: one per token; empty where none were asked for.
            at_s: monotonic seconds.
            load: load level of the step.
        """
        pieces: list[str] = []
        stop_reason: str | int | None = None
        before = self.num_output
        for token_id in token_ids:
            self.token_ids.append(token_id)
            stop_reason = self._deliver(token_id, pieces)
            if self.finish_reason is not None:
                break
        num_new = self.num_output - before
        self.sampler.commit(token_ids[:num_new])
        self._note_delivery(at_s, load)
        return Delta(
            request_id=self.request.request_id,
            token_ids=tuple(token_ids[:num_new]),
            text="".join(pieces),
            logprobs=tuple(logprobs[:num_new]),
            prompt_logprobs=() if before else tuple(self.prompt_logprobs),
            finish_reason=self.finish_reason,
            stop_reason=stop_reason,
            counts=self.counts(),
            setting=self.planned,
        )

    def end_after_prompt(self, load: LoadLevel) -> Delta:
        """End a request that wants no token; return its only delta."""
        self.finish_reason = FinishReason.LENGTH
        self.load = load
        return Delta(
            request_id=self.request.request_id,
            prompt_logprobs=tuple(self.prompt_logprobs),
            finish_reason=self.finish_reason,
            counts=self.counts(),
            setting=self.setting,
        )

    def failure(self, message: str, *, is_refused: bool) -> Delta:
        """Return the delta that ends a request with an error."""
        return Delta(
            request_id=self.request.request_id,
            finish_reason=FinishReason.ERROR,
            counts=self.counts(),
            setting=self.planned,
            error=message,
            is_refused=is_refused,
        )

    def trace(self, *, seq: int, at: float, now_s: float) -> RequestTrace:
        """Return the record of the ended request.

        Args:
            seq: its number in the journal.
            at: Unix seconds.
            now_s: monotonic seconds.
        """
        request = self.request
        first_s = self.first_token_s
        return RequestTrace(
            seq=seq,
            at=at,
            request_id=request.request_id,
            route=request.route,
            setting=self.planned,
            load=self.load or load_level_of(1),
            is_shadow=request.is_shadow,
            temperature=request.sampling.temperature,
            has_grammar=request.sampling.grammar is not None,
            prompt_tokens=len(request.prompt_ids),
            completion_tokens=self.num_output,
            passes=self.passes,
            drafted=self.drafted,
            accepted=self.accepted,
            attempts=tuple(self.attempts),
            accepts=tuple(self.accepts),
            queue_s=max(0.0, self.admitted_s - request.arrived_s),
            ttft_s=None if first_s is None else max(0.0, first_s - request.arrived_s),
            duration_s=max(0.0, now_s - request.arrived_s),
            chunk_gaps=LatencyHistogram.of(self.gaps_s),
            finish_reason=self.finish_reason or FinishReason.ERROR,
        )

    def _deliver(self, token_id: int, pieces: list[str]) -> str | int | None:
        """Deliver the last token's text; return what ended the answer, if a stop did."""
        if token_id in self.sampler.end_ids and self.num_output >= self.request.sampling.min_tokens:
            self._finish(FinishReason.STOP, pieces)
            return token_id if token_id in self.request.sampling.stop_token_ids else None
        match = self._scan(self.decoder.push(token_id), pieces)
        if match is not None:
            self.finish_reason = FinishReason.STOP
            return match.stop
        if self._ends_grammar(token_id):
            self._finish(FinishReason.STOP, pieces)
            return None
        if self.num_output >= self.request.sampling.max_tokens:
            return self._run_out(pieces)
        return None

    def _ends_grammar(self, token_id: int) -> bool:
        """Take the last token into the grammar; tell whether nothing may follow it."""
        if self.grammar is None:
            return False
        self.grammar.take(token_id)
        return self.grammar.is_over

    def _run_out(self, pieces: list[str]) -> str | None:
        """End at the limit; the last partial text may still complete a stop string."""
        match = self._scan(self.decoder.flush(), pieces)
        if match is not None:
            self.finish_reason = FinishReason.STOP
            return match.stop
        self.finish_reason = FinishReason.LENGTH
        pieces.append(self.scanner.flush())
        return None

    def _finish(self, reason: FinishReason, pieces: list[str]) -> None:
        self.finish_reason = reason
        if self._scan(self.decoder.flush(), pieces) is None:
            pieces.append(self.scanner.flush())

    def _scan(self, piece: str, pieces: list[str]) -> StopMatch | None:
        found = self.scanner.push(piece)
        if isinstance(found, StopMatch):
            pieces.append(found.text)
            return found
        pieces.append(found)
        return None

    def _note_delivery(self, at_s: float, load: LoadLevel) -> None:
        if self.first_token_s is None or self.last_token_s is None:
            self.first_token_s = at_s
            self.load = load
        else:
            self.gaps_s.append(at_s - self.last_token_s)
        self.last_token_s = at_s

    def _grow_histogram(self, longest: int) -> None:
        self.max_k = max(self.max_k, longest)
        missing = longest + 1 - len(self.accepted_histogram)
        self.accepted_histogram.extend([0] * missing)

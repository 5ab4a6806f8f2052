"""The engine's step: admit, draft, verify in one target pass, commit or roll back, report.

One thread owns a core. Rows lie densely in slots 0..B-1, so that a pass sees one slot range; when a
row ends, the last one moves into its place. Rollback is nothing but a row's KV length.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from collectors.records import (
    OFF,
    DecodeStep,
    FinishReason,
    LoadLevel,
    RequestTrace,
    load_level_of,
)
from tuner.engine.capture import Capture
from tuner.engine.drafters.base import Draft
from tuner.engine.drafting import Drafting, draft_of
from tuner.engine.errors import ContextTooLong, InvalidRequest
from tuner.engine.journal import Journal
from tuner.engine.limits import EngineLimits
from tuner.engine.live_plan import LivePlan, PlanTable
from tuner.engine.model.decoder import Decoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.prompt_scores import score_prompt
from tuner.engine.reference import ReferenceTurns
from tuner.engine.request import Delta, EngineRequest
from tuner.engine.row import Row
from tuner.engine.step_report import StepReport
from tuner.engine.text import StopScanner, TokenDecoder
from tuner.engine.verdicts import Verdict, judge
from tuner.engine.verification.rows import RowSampler
from tuner.engine.waiting import WaitingRows


class TextCodec(Protocol):
    """What the core needs of a tokenizer.

    Attributes:
        eos_ids: the model's own end tokens.
    """

    eos_ids: tuple[int, ...]

    def new_decoder(self) -> TokenDecoder:
        """Return a decoder for one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One row's share of a pass."""

    row: Row
    span: Span
    draft: Draft
    is_decode: bool
    gives_token: bool

    @property
    def is_scored(self) -> bool:
        """True where the log probabilities of the prompt are asked for."""
        return not self.is_decode and self.row.request.prompt_logprobs is not None

    @property
    def ends_after_prompt(self) -> bool:
        """True where the prompt was read to its end and no token is wanted."""
        row = self.row
        return row.request.sampling.max_tokens == 0 and self.span.end == len(row.token_ids)


class EngineCore:
    """Continuous batching with speculation, each row with its own method and draft length."""

    def __init__(
        self,
        target: Decoder,
        drafting: Drafting,
        codec: TextCodec,
        *,
        plan: LivePlan,
        journal: Journal,
        capture: Capture,
        limits: EngineLimits,
        reference_interval: int = 0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._drafting = drafting
        self._codec = codec
        self._plan = plan
        self._journal = journal
        self._capture = capture
        self._limits = limits
        self._reference = ReferenceTurns(reference_interval, random.Random(reference_interval))
        self._clock = clock
        self._wall_clock = wall_clock
        self._slots = target.new_slots(limits.max_rows, limits.max_context_tokens)
        self._features = drafting.attach(target, self._slots)
        self._waiting = WaitingRows(limits.queue_limit)
        self._rows: list[Row] = []

    @property
    def has_work(self) -> bool:
        """True while a request runs or waits."""
        return bool(self._rows) or len(self._waiting) > 0

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return len(self._rows)

    @property
    def num_waiting(self) -> int:
        """Requests queued."""
        return len(self._waiting)

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV slots' positions in use, 0 to 1."""
        used = sum(row.kv_length for row in tuple(self._rows))
        return used / (self._limits.max_rows * self._limits.max_context_tokens)

    def submit(self, *requests: EngineRequest) -> None:
        """Queue the rows of one request, all or none.

        Raises:
            InvalidRequest: no prompt, an unknown token, or a Setting the engine has not.
            ContextTooLong: prompt and answer do not fit into the context.
            QueueFull: too many requests wait.
        """
        for request in requests:
            self._check(request)
        self._waiting.push(*(self._new_row(request) for request in requests))

    def cancel(self, request_id: str) -> bool:
        """Drop a request; its slot is free at once and no delta of it comes any more."""
        waiting = self._waiting.remove(request_id)
        if waiting is not None:
            waiting.finish_reason = FinishReason.CANCELLED
            self._trace(waiting)
            return True
        for row in self._rows:
            if row.request.request_id == request_id:
                row.finish_reason = FinishReason.CANCELLED
                self._finish([row])
                return True
        return False

    @torch.inference_mode()
    def step(self) -> list[Delta]:
        """Do one step; return what it delivered, nothing where there is no work."""
        started_s = self._clock()
        self._admit()
        if not self._rows:
            return []
        table = self._plan.table
        report = StepReport(started_s=started_s, plan_digest=table.digest, clock=self._clock)
        work = self._plan_work(table, report)
        report.begin_verify()
        logits, deciding = self._run_target(work)
        report.begin_sample()
        self._drafting.see([(item.row, item.draft) for item in deciding], logits)
        verdicts = judge(
            logits,
            rows=[item.row for item in deciding],
            drafts=[item.draft for item in deciding],
            vocab_of=self._drafting.vocab_of,
        )
        report.begin_commit()
        deltas = self._commit(work, deciding, verdicts, report)
        decoded = [
            (item.row, verdict.accepted)
            for item, verdict in zip(deciding, verdicts, strict=True)
            if item.is_decode
        ]
        self._drafting.learn(decoded, report.figures())
        self._journal_step(report, num_running=len(work))
        self._finish([row for row in self._rows if row.finish_reason is not None])
        return deltas

    def _check(self, request: EngineRequest) -> None:
        prompt, limit = len(request.prompt_ids), self._limits.max_context_tokens
        vocab_size = self._target.shape.vocab_size
        if not prompt:
            raise InvalidRequest("the prompt is empty; give at least one token", param="prompt")
        for token in request.prompt_ids:
            if not 0 <= token < vocab_size:
                raise InvalidRequest(
                    f"prompt token {token} is not in the vocabulary of {vocab_size}", param="prompt"
                )
        wanted = request.sampling.max_tokens
        if prompt + wanted > limit:
            raise ContextTooLong(
                f"the prompt has {prompt} tokens and max_tokens is {wanted}, together more than "
                f"the context of {limit} tokens; shorten the prompt or lower max_tokens"
            )
        if request.setting is not None:
            reason = self._plan.capabilities.refusal_reason(request.setting)
            if reason is not None:
                raise InvalidRequest(reason, param="speculation")

    def _admit(self) -> None:
        """Give free slots to waiting requests; replayed ones get half of the slots at most."""
        max_shadow = max(1, self._limits.max_rows // 2)
        while len(self._rows) < self._limits.max_rows:
            num_shadow = sum(row.request.is_shadow for row in self._rows)
            row = self._waiting.pop(can_take_shadow=num_shadow < max_shadow)
            if row is None:
                return
            row.slot = len(self._rows)
            row.admitted_s = self._clock()
            self._rows.append(row)

    def _new_row(self, request: EngineRequest) -> Row:
        grammar = request.sampling.grammar
        return Row(
            request=request,
            decoder=self._codec.new_decoder(),
            scanner=StopScanner(request.sampling.stop),
            sampler=RowSampler(
                request.sampling,
                prompt_ids=request.prompt_ids,
                eos_ids=self._codec.eos_ids,
                vocab_size=self._target.shape.vocab_size,
            ),
            grammar=None if grammar is None else grammar.start(),
        )

    def _plan_work(self, table: PlanTable, report: StepReport) -> list[_Work]:
        """Choose each row's Setting, draft, and lay down what the target computes."""
        running = len(self._rows)
        decoding = [row for row in self._rows if row.is_decoding]
        for row in decoding:
            pinned = row.request.setting
            row.setting = row.planned = pinned or table.setting_for(row.request.route, running)
        has_prefill = len(decoding) < running
        report.is_reference = self._reference.take(decoding, has_prefill=has_prefill)
        if report.is_reference:
            for row in decoding:
                row.setting = OFF
        drafts, costs = self._drafting.propose(decoding)
        report.drafts = costs
        work: list[_Work] = []
        prefill_room = self._limits.prefill_tokens
        for row in self._rows:
            if row.is_decoding:
                work.append(_decode_work(row, draft_of(drafts, row)))
            elif prefill_room > 0:
                work.append(_prefill_work(row, prefill_room))
                prefill_room -= len(work[-1].span.token_ids)
        return work

    def _run_target(self, work: Sequence[_Work]) -> tuple[Tensor, list[_Work]]:
        """Run one target pass; return logits [N, V] for the work that gets tokens, and it."""
        spans = [item.span for item in work]
        batch = lay_out(spans, self._target.mask_kind)
        hidden = self._target.forward(batch, self._slots, self._features)
        wanted: list[int] = []
        first = 0
        for item in work:
            end = first + len(item.span.token_ids)
            if item.is_scored:
                score_prompt(self._target, hidden[first:end], item.row, item.span)
            if item.gives_token:
                wanted.extend(range(first if item.is_decode else end - 1, end))
            first = end
        if len(wanted) < len(hidden):
            hidden = hidden[torch.tensor(wanted, dtype=torch.int64, device=hidden.device)]
        return self._target.logits(hidden), [item for item in work if item.gives_token]

    def _commit(
        self,
        work: Sequence[_Work],
        deciding: Sequence[_Work],
        verdicts: Sequence[Verdict],
        report: StepReport,
    ) -> list[Delta]:
        now_s = self._clock()
        load = load_level_of(len(work))
        report.positions = sum(len(item.span.token_ids) for item in work)
        report.context_tokens = sum(item.span.start for item in work)
        for item in work:
            if not item.is_decode:
                item.row.kv_length = item.span.end
                report.prefill_tokens += len(item.span.token_ids)
        deltas = [
            self._commit_row(item, verdict, now_s, load, report)
            for item, verdict in zip(deciding, verdicts, strict=True)
        ]
        ended = [item.row for item in work if item.ends_after_prompt]
        return deltas + [row.end_after_prompt(load) for row in ended]

    def _commit_row(
        self, item: _Work, verdict: Verdict, now_s: float, load: LoadLevel, report: StepReport
    ) -> Delta:
        row = item.row
        if item.is_decode:
            row.count_pass(item.draft.depth, verdict.accepted)
        if verdict.error:
            row.finish_reason = FinishReason.ERROR
            return row.failure(verdict.error, is_refused=verdict.is_refused)
        delta = row.commit(verdict.token_ids, verdict.logprobs, at_s=now_s, load=load)
        if item.is_decode:
            if item.draft.parents is not None:
                self._join_path(row, verdict.path)
            row.kv_length = len(row.token_ids) - 1
            report.count(row, item.draft.depth, verdict.accepted, len(delta.token_ids))
        return delta

    def _join_path(self, row: Row, path: Sequence[int]) -> None:
        """Bring the entries of a tree's accepted path together behind the last committed token."""
        first = row.kv_length + 1
        entries = [first + node for node in path]
        if entries == list(range(first, first + len(path))):
            return
        self._slots.gather(row.slot, first, entries)
        if self._features is not None:
            self._features.gather(row.slot, first, entries)

    def _journal_step(self, report: StepReport, num_running: int) -> None:
        at = self._wall_clock()

        def build(seq: int) -> DecodeStep:
            return report.record(seq=seq, at=at, running=num_running, waiting=len(self._waiting))

        self._journal.append(build)

    def _finish(self, ended: Sequence[Row]) -> None:
        """Report ended rows and close the gaps they leave."""
        for row in sorted(ended, key=lambda row: row.slot, reverse=True):
            self._trace(row)
            self._vacate(row)

    def _vacate(self, row: Row) -> None:
        last = self._rows.pop()
        self._drafting.release(row.slot)
        if last is row:
            return
        self._slots.move(last.slot, row.slot, last.kv_length)
        if self._features is not None:
            self._features.move(last.slot, row.slot, last.kv_length)
        self._drafting.move(last.slot, row.slot)
        self._rows[row.slot] = last
        last.slot = row.slot

    def _trace(self, row: Row) -> None:
        now_s, at = self._clock(), self._wall_clock()

        def build(seq: int) -> RequestTrace:
            return row.trace(seq=seq, at=at, now_s=now_s)

        self._journal.append(build)
        if row.num_output and row.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            arrived_at = at - (now_s - row.request.arrived_s)
            self._capture.offer(row.request, row.output_ids, arrived_at)


def _decode_work(row: Row, draft: Draft) -> _Work:
    parents = None
    if draft.parents is not None:
        parents = [-1, *(parent + 1 for parent in draft.parents)]
    span = Span(
        slot=row.slot,
        start=row.kv_length,
        token_ids=[row.token_ids[-1], *draft.token_ids],
        parents=parents,
    )
    return _Work(row=row, span=span, draft=draft, is_decode=True, gives_token=True)


def _prefill_work(row: Row, room: int) -> _Work:
    end = min(len(row.token_ids), row.kv_length + room)
    span = Span(slot=row.slot, start=row.kv_length, token_ids=row.token_ids[row.kv_length : end])
    return _Work(
        row=row,
        span=span,
        draft=Draft(),
        is_decode=False,
        gives_token=end == len(row.token_ids) and row.request.sampling.max_tokens > 0,
    )

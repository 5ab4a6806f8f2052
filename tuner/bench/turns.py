"""An engine with drafters and one without, on the same weights, step by step in turns.

The speed of a shared machine changes within seconds. A step under speculation and a plain step
beside it see the same machine, so their times can be compared; steps minutes apart cannot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectors.records import OFF, DecodeStep, Setting
from tuner.bench.questions import Encoded
from tuner.engine.loading import LoadedEngine
from tuner.engine.request import EngineRequest, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One decode step under a Setting.

    Attributes:
        step: the step, in groups by question; those of rows that only fill the batch have no name.
        plain_s: seconds of the plain step beside it, with as many sequences; None where there was
            none: a prompt was computed in this step or read by drafters.
    """

    step: DecodeStep
    plain_s: float | None


class Turns:
    """Two engines that take turns."""

    def __init__(self, engine: LoadedEngine, plain: LoadedEngine, num_tokens: int) -> None:
        """Take over two engines on the same weights.

        Args:
            engine: with drafters.
            plain: without.
            num_tokens: tokens generated for each question at most.
        """
        self._engine = engine
        self._plain = plain
        self._num_tokens = num_tokens
        self._names = itertools.count()
        self._beside: tuple[Encoded, ...] = ()
        self._plain_names: list[str] = []

    def answer(self, questions: Sequence[Encoded], setting: Setting) -> list[Turn]:
        """Answer questions together under a Setting, greedily and to their own end.

        Until the last has ended, as many rows run as there are questions: where an answer ends, its
        question is asked again without a name. The plain engine keeps as many running, and who
        goes first changes with each pair.

        Returns:
            The decode steps. Timed are all but those with a prompt in them and the one after, in
            which drafters read it.
        """
        self._keep_beside(questions)
        core, is_first = self._engine.core, itertools.cycle((False, True))
        rows = dict(zip(self._submit(self._engine, questions, setting), questions, strict=True))
        open_names = set(rows)
        turns: list[Turn] = []
        was_prefill = True
        while open_names:
            is_timed = not core.num_waiting and not was_prefill
            before = self._plain_step_s() if is_timed and next(is_first) else None
            step, ended = _next_step(self._engine)
            after = self._plain_step_s() if is_timed and before is None else before
            if step.groups:
                turns.append(Turn(step=step, plain_s=after))
            open_names.difference_update(ended)
            again = [rows.pop(name) for name in ended]
            if open_names:
                names = self._submit(self._engine, again, setting, is_filling=True)
                rows.update(zip(names, again, strict=True))
            was_prefill = step.prefill_tokens > 0
        for name in rows:
            core.cancel(name)
        return turns

    def _keep_beside(self, questions: Sequence[Encoded]) -> None:
        """Let the plain engine run the same questions."""
        if self._beside == tuple(questions):
            return
        for name in self._plain_names:
            self._plain.core.cancel(name)
        self._plain_names = []
        self._beside = tuple(questions)

    def _plain_step_s(self) -> float:
        """Do one plain decode step of all questions; begin them anew where they have ended."""
        if not self._plain.core.has_work:
            self._plain_names = self._submit(self._plain, self._beside, OFF, is_filling=True)
        return next(step.step_s for step in _steps(self._plain) if not step.prefill_tokens)

    def _submit(
        self,
        engine: LoadedEngine,
        questions: Sequence[Encoded],
        setting: Setting,
        *,
        is_filling: bool = False,
    ) -> list[str]:
        """Ask questions; rows that only fill the batch have no route and do not end early."""
        sampling = SamplingParams(
            temperature=0.0, max_tokens=self._num_tokens, ignore_eos=is_filling
        )
        names = [str(next(self._names)) for _ in questions]
        for name, question in zip(names, questions, strict=True):
            engine.core.submit(
                EngineRequest(
                    request_id=name,
                    prompt_ids=question.token_ids,
                    sampling=sampling,
                    route="" if is_filling else question.name,
                    setting=setting,
                )
            )
        return names


def _steps(engine: LoadedEngine) -> Iterator[DecodeStep]:
    while True:
        yield _next_step(engine)[0]


def _next_step(engine: LoadedEngine) -> tuple[DecodeStep, list[str]]:
    """Do one step; return its record, which comes before the traces of requests it ended, and them.

    Returns:
        The record, and the ids of the requests that ended.
    """
    before = engine.journal.last_seq
    deltas = engine.core.step()
    (record,) = engine.journal.page(before, 1).records
    if not isinstance(record, DecodeStep):
        raise TypeError(f"a step must be journalled first, got {type(record).__name__}")
    return record, [delta.request_id for delta in deltas if delta.finish_reason is not None]

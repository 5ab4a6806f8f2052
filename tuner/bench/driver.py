"""Runs prompts through a loaded engine, a batch at a time, without a server."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from collectors.records import DecodeStep, Setting
from tuner.demo.traffic import bundled_traffic, read_traffic
from tuner.engine.loading import LoadedEngine
from tuner.engine.model.codec import HfCodec
from tuner.engine.request import Delta, EngineRequest, SamplingParams

_SEED = 0
"""Of sampled answers, so that every round draws the same tokens."""


class Driver:
    """One engine under measurement."""

    def __init__(self, engine: LoadedEngine, num_tokens: int) -> None:
        """Take over an engine.

        Args:
            engine: ready to step.
            num_tokens: tokens generated for each prompt.
        """
        self._engine = engine
        self._num_tokens = num_tokens
        self._names = itertools.count()

    def steps(
        self, prompts: Sequence[Sequence[int]], setting: Setting, *, temperature: float = 0.0
    ) -> list[DecodeStep]:
        """Generate for all prompts together; return the steps without prefill."""
        first = self._engine.journal.last_seq
        self._submit(prompts, setting, temperature=temperature)
        while self._engine.core.has_work:
            self._engine.core.step()
        records = self._engine.journal.page(first, 100_000).records
        return [
            record
            for record in records
            if isinstance(record, DecodeStep) and not record.prefill_tokens
        ]

    def answers(
        self, prompts: Sequence[Sequence[int]], setting: Setting, *, logprobs: int | None = None
    ) -> list[list[Delta]]:
        """Generate greedily for all prompts together; return each one's deltas."""
        names = self._submit(prompts, setting, logprobs=logprobs)
        deltas: dict[str, list[Delta]] = {name: [] for name in names}
        while self._engine.core.has_work:
            for delta in self._engine.core.step():
                deltas[delta.request_id].append(delta)
        return [deltas[name] for name in names]

    def in_turns(
        self, other: Driver, prompt: Sequence[int], setting: Setting
    ) -> list[tuple[DecodeStep, DecodeStep]]:
        """Run one prompt on two engines, step by step in turns; return the pairs of steps.

        Whatever slows the machine meanwhile slows both of a pair. Who goes first changes with
        each pair. Steps with prefill are left out.
        """
        engines = (self._engine, other._engine)
        for driver in (self, other):
            driver._submit([prompt], setting)
        pairs: list[tuple[DecodeStep, DecodeStep]] = []
        while engines[0].core.has_work:
            turn = engines if len(pairs) % 2 else engines[::-1]
            before = [engine.journal.last_seq for engine in engines]
            for engine in turn:
                engine.core.step()
            ours, theirs = (
                _step_after(engine, seq) for engine, seq in zip(engines, before, strict=True)
            )
            if not ours.prefill_tokens:
                pairs.append((ours, theirs))
        return pairs

    def _submit(
        self,
        prompts: Sequence[Sequence[int]],
        setting: Setting,
        *,
        temperature: float = 0.0,
        logprobs: int | None = None,
    ) -> list[str]:
        sampling = SamplingParams(
            temperature=temperature,
            max_tokens=self._num_tokens,
            ignore_eos=True,
            logprobs=logprobs,
            seed=_SEED,
        )
        names = [str(next(self._names)) for _ in prompts]
        for name, prompt in zip(names, prompts, strict=True):
            self._engine.core.submit(
                EngineRequest(
                    request_id=name,
                    prompt_ids=tuple(prompt),
                    sampling=sampling,
                    route="bench",
                    setting=setting,
                )
            )
        return names


def _step_after(engine: LoadedEngine, seq: int) -> DecodeStep:
    records = engine.journal.page(seq, 100).records
    return next(record for record in records if isinstance(record, DecodeStep))


def demo_prompts(codec: HfCodec, num_prompts: int) -> list[list[int]]:
    """Return demo prompts as token ids, one of each route in turn."""
    by_route: dict[str, list[list[int]]] = {}
    for prompt in read_traffic(bundled_traffic()):
        messages = [{name: str(value) for name, value in m.items()} for m in prompt.messages]
        by_route.setdefault(prompt.route, []).append(codec.encode_chat(messages))
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_route.values()))
    return list(itertools.islice((ids for ids in turns if ids is not None), num_prompts))


def in_batches(prompts: Sequence[Sequence[int]], batch: int) -> list[Sequence[Sequence[int]]]:
    """Cut prompts into batches."""
    return [prompts[start : start + batch] for start in range(0, len(prompts), batch)]

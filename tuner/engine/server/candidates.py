"""One request as rows of the engine: several prompts, and several answers to each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.engine.errors import InvalidRequest
from tuner.engine.request import Delta, EngineRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequests:
    """The rows that a request is answered by, prompt after prompt.

    Attributes:
        rows: one per candidate.
        num_candidates: answers computed for each prompt.
        num_choices: answers given for each prompt; the best of its candidates where fewer.
        with_logprobs: the client asked for log probabilities; ranking needs them anyway.
    """

    rows: tuple[EngineRequest, ...]
    num_candidates: int
    num_choices: int
    with_logprobs: bool

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(len(row.prompt_ids) for row in self.rows[:: self.num_candidates])

    def chosen(self, answers: Sequence[Delta]) -> list[Delta]:
        """Return the answers that are given, prompt after prompt.

        Args:
            answers: one per row, in their order.
        """
        if self.num_choices == self.num_candidates:
            return list(answers)
        best: list[Delta] = []
        for first in range(0, len(answers), self.num_candidates):
            best += _best(answers[first : first + self.num_candidates], self.num_choices)
        return best if self.with_logprobs else [replace(answer, logprobs=()) for answer in best]


def row_requests(
    prompts: Sequence[EngineRequest], *, num_choices: int, num_candidates: int, max_rows: int
) -> RowRequests:
    """Return the rows of a request, each with an id and a seed of its own.

    Args:
        prompts: one per prompt, with the request's own id and seed.
        num_choices: answers wanted for each.
        num_candidates: answers computed for each.
        max_rows: rows that one request may bring.

    Raises:
        InvalidRequest: too many rows.
    """
    with_logprobs = prompts[0].sampling.logprobs is not None
    needs_logprobs = with_logprobs or num_candidates > num_choices
    total = len(prompts) * num_candidates
    if total > max_rows:
        raise InvalidRequest(
            f"{len(prompts)} prompts with {num_candidates} answers each are {total} rows, the "
            f"queue holds {max_rows}; send fewer at once",
            param="n" if num_candidates > 1 else "prompt",
        )
    rows = [
        replace(
            prompt,
            request_id=prompt.request_id if total == 1 else f"{prompt.request_id}-{number}",
            sampling=replace(
                prompt.sampling,
                seed=_seed(prompt.sampling.seed, candidate),
                logprobs=(prompt.sampling.logprobs or 0) if needs_logprobs else None,
            ),
        )
        for number, (prompt, candidate) in enumerate(
            (prompt, candidate) for prompt in prompts for candidate in range(num_candidates)
        )
    ]
    return RowRequests(
        rows=tuple(rows),
        num_candidates=num_candidates,
        num_choices=num_choices,
        with_logprobs=with_logprobs,
    )


def _seed(seed: int | None, candidate: int) -> int | None:
    """Return a candidate's seed; the first one's is the request's own."""
    if seed is None or candidate == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{candidate}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def _best(group: Sequence[Delta], num: int) -> list[Delta]:
    """Return the likeliest answers, best first, by log probability per token as OpenAI's."""
    return sorted(group, key=_mean_logprob, reverse=True)[:num]


def _mean_logprob(answer: Delta) -> float:
    values = [entry.logprob for entry in answer.logprobs]
    return sum(values) / len(values) if values else 0.0

"""What a lookup drafter would have got accepted on tokens that were just served, for every k.

With the answer known, each draft can be marked without running a model; only its time has to
come from measurement. A lookup draft is certain of its token, so every lossless rule keeps it with
the target's own probability of that token: greedy answers give the exact outcome, sampled ones a
fair draw of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from collectors.lookup import LookupIndex
from collectors.lookup_suffix import SuffixIndex
from collectors.records.parsing import require
from collectors.records.setting import MAX_DRAFT_LENGTH


class Index(Protocol):
    """Where drafts come from; a shorter draft must be the beginning of a longer one."""

    def extend(self, ids: Sequence[int]) -> None:
        """Add committed tokens, in order."""

    def propose(self, k: int) -> list[int]:
        """Return up to k tokens of draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupScore:
    """Counts of one draft length over the answers scored; scores of one k add up.

    Attributes:
        k: draft length.
        passes: target passes the answers would have taken after the first token (P).
        verify_passes: passes with a draft (V).
        drafted: draft tokens whose fate is known (D); what lies past the answer's end is not.
        accepted: draft tokens kept (A).
        attempts: by draft position, passes that drafted it with all before it kept; length k.
        accepts: by draft position, attempts that were kept; length k.
    """

    k: int
    passes: int
    verify_passes: int
    drafted: int
    accepted: int
    attempts: tuple[int, ...]
    accepts: tuple[int, ...]

    def plus(self, other: LookupScore) -> LookupScore:
        """Return the counts of both.

        Raises:
            InvalidRecord: the draft lengths differ.
        """
        require(self.k == other.k, f"scores of k {self.k} and k {other.k} do not add up")
        return LookupScore(
            k=self.k,
            passes=self.passes + other.passes,
            verify_passes=self.verify_passes + other.verify_passes,
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            attempts=tuple(a + b for a, b in zip(self.attempts, other.attempts, strict=True)),
            accepts=tuple(a + b for a, b in zip(self.accepts, other.accepts, strict=True)),
        )


def score_lookup(
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    *,
    lookup_min: int,
    lookup_max: int,
    depth: int = MAX_DRAFT_LENGTH,
) -> tuple[LookupScore, ...]:
    """Score prompt lookup at every draft length from 1 to depth on one answer.

    Each length is walked pass by pass, since where passes start depends on it: counting every
    token as a start would weigh long copied runs too heavily. The first output token comes from
    the prefill and needs no pass.

    Args:
        prompt_ids: prompt token ids.
        output_ids: token ids of the answer.
        lookup_min: shortest n-gram matched, in tokens.
        lookup_max: longest n-gram matched, in tokens.
        depth: longest draft scored, in tokens.

    Raises:
        InvalidRecord: the lookup window is empty or the depth is not positive.
    """
    return _score(prompt_ids, output_ids, LookupIndex(lookup_min, lookup_max), depth)


def score_suffix(
    prompt_ids: Sequence[int], output_ids: Sequence[int], *, depth: int = MAX_DRAFT_LENGTH
) -> tuple[LookupScore, ...]:
    """Score suffix decoding, without past outputs, as `score_lookup` scores prompt lookup.

    Args:
        prompt_ids: prompt token ids.
        output_ids: token ids of the answer.
        depth: longest draft scored, in tokens.

    Raises:
        InvalidRecord: the depth is not positive.
    """
    return _score(prompt_ids, output_ids, SuffixIndex(), depth)


def sum_scores(scores: Iterable[tuple[LookupScore, ...]]) -> tuple[LookupScore, ...]:
    """Add the scores of many answers up, one sum for each draft length.

    Raises:
        InvalidRecord: the answers were scored to different depths.
    """
    total: tuple[LookupScore, ...] = ()
    for score in scores:
        require(
            not total or len(total) == len(score),
            f"scores to depth {len(total)} and to depth {len(score)} do not add up",
        )
        total = tuple(a.plus(b) for a, b in zip(total, score, strict=True)) if total else score
    return total


def _score(
    prompt_ids: Sequence[int], output_ids: Sequence[int], index: Index, depth: int
) -> tuple[LookupScore, ...]:
    require(depth >= 1, f"depth must be >= 1, got {depth}")
    marks = _marks(prompt_ids, output_ids, index, depth)
    return tuple(_walk(marks, k) for k in range(1, depth + 1))


def _marks(
    prompt_ids: Sequence[int], output_ids: Sequence[int], index: Index, depth: int
) -> list[tuple[int, int]]:
    """Give (drafted, accepted) at the longest draft for a pass before each token but the first."""
    index.extend(prompt_ids)
    marks = []
    for start in range(1, len(output_ids)):
        index.extend(output_ids[start - 1 : start])
        draft = index.propose(min(depth, len(output_ids) - start))
        marks.append((len(draft), _common_prefix(draft, output_ids[start : start + depth])))
    return marks


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def _walk(marks: Sequence[tuple[int, int]], k: int) -> LookupScore:
    outcomes = []
    start = 0
    while start < len(marks):
        drafted, accepted = (min(count, k) for count in marks[start])
        outcomes.append((drafted, accepted))
        start += accepted + 1
    return LookupScore(
        k=k,
        passes=len(outcomes),
        verify_passes=sum(1 for drafted, _ in outcomes if drafted),
        drafted=sum(drafted for drafted, _ in outcomes),
        accepted=sum(accepted for _, accepted in outcomes),
        attempts=tuple(sum(1 for d, a in outcomes if d > i and a >= i) for i in range(k)),
        accepts=tuple(sum(1 for _, a in outcomes if a > i) for i in range(k)),
    )

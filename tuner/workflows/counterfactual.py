"""What lookup drafting would have got accepted on captured answers, which costs no target pass.

Answers are scored as they are pulled and never reach a disk: only the counts do, with the cursor
of the pull, so that no answer is scored twice. Redacted requests give nothing, since their prompt
is not kept, and neither do those held to a grammar, which cuts drafts that the score would count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from collectors.counterfactual import LookupScore, score_lookup, score_suffix, sum_scores
from collectors.records import CapturedRequest, Method, Setting
from policy.tally import family_of
from tuner.store.counterfactuals import Counterfactual

LOOKUPS = (Method.PROMPT_LOOKUP, Method.SUFFIX)


def scored(
    requests: Iterable[CapturedRequest], arms: Sequence[Setting]
) -> tuple[Counterfactual, ...]:
    """Score the lookup arms at every draft length up to the longest of each.

    Args:
        requests: as the engine gave them, with prompt and answer.
        arms: Settings to choose from; those of other methods are left aside.
    """
    groups: dict[tuple[str, bool], list[CapturedRequest]] = {}
    for request in requests:
        if is_scorable(request):
            greedy = request.sampling.get("temperature") == 0
            groups.setdefault((request.route, greedy), []).append(request)
    return tuple(
        Counterfactual(
            route=route,
            setting=replace(family, k=score.k),
            is_greedy=greedy,
            score=score,
        )
        for (route, greedy), members in sorted(groups.items())
        for family, depth in _depths(arms).items()
        for score in sum_scores(_score(one, family, depth) for one in members)
        if score.passes
    )


def is_scorable(request: CapturedRequest) -> bool:
    """True where prompt and answer are known and nothing but the target chose the answer."""
    is_free = not request.sampling.get("structured_outputs")
    return bool(request.prompt_ids and request.output_ids) and is_free


def _depths(arms: Sequence[Setting]) -> dict[Setting, int]:
    """Return the longest draft of each kind of lookup."""
    depths: dict[Setting, int] = {}
    for arm in arms:
        if arm.method in LOOKUPS:
            family = family_of(arm)
            depths[family] = max(arm.k, depths.get(family, 0))
    return depths


def _score(request: CapturedRequest, family: Setting, depth: int) -> tuple[LookupScore, ...]:
    prompt, output = request.prompt_ids, request.output_ids
    if family.method is Method.SUFFIX:
        return score_suffix(prompt, output, depth=depth)
    return score_lookup(
        prompt,
        output,
        lookup_min=family.lookup_min,
        lookup_max=family.lookup_max,
        depth=depth,
    )

"""Journal records as the engine writes them, for tests that need some."""

from __future__ import annotations

from collectors.records import (
    OFF,
    DecodeStep,
    DraftCost,
    FinishReason,
    LatencyHistogram,
    Method,
    RequestTrace,
    Setting,
    StepGroup,
    StepOutcome,
    load_level_of,
)

LOOKUP_3 = Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=3)


def step_record(seq: int, *, running: int = 1, groups: tuple[StepGroup, ...] = ()) -> DecodeStep:
    return DecodeStep(
        seq=seq,
        at=1.0 + seq,
        plan_digest="d",
        running=running,
        waiting=0,
        positions=4,
        prefill_tokens=2,
        context_tokens=10,
        verify_s=0.25,
        sample_s=0.125,
        other_s=0.0625,
        drafts=(DraftCost(method=Method.PROMPT_LOOKUP, rows=1, tokens=3, depth=3, seconds=0.5),),
        groups=groups,
    )


def group(
    *outcomes: tuple[int, int, int], route: str = "chat", is_shadow: bool = False, tokens: int = 0
) -> StepGroup:
    return StepGroup(
        route=route,
        setting=LOOKUP_3,
        is_shadow=is_shadow,
        tokens=tokens,
        outcomes=tuple(StepOutcome(drafted=d, accepted=a, rows=r) for d, a, r in outcomes),
    )


def request_record(seq: int, *, is_shadow: bool = False) -> RequestTrace:
    return RequestTrace(
        seq=seq,
        at=2.0,
        request_id=f"cmpl-{seq}",
        route="chat",
        setting=OFF,
        load=load_level_of(1),
        is_shadow=is_shadow,
        prompt_tokens=5,
        completion_tokens=11,
        passes=10,
        drafted=0,
        accepted=0,
        queue_s=0.0,
        ttft_s=0.5,
        duration_s=1.5,
        chunk_gaps=LatencyHistogram(),
        finish_reason=FinishReason.STOP,
    )

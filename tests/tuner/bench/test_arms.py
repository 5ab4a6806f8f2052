from __future__ import annotations

from collectors.records import OFF, Method
from tuner.bench.arms import TreeShape, arms, not_loaded
from tuner.engine.capabilities import Capabilities, MethodCapability


def capable(*methods: MethodCapability) -> Capabilities:
    return Capabilities(
        model="small",
        methods=(MethodCapability(method=Method.OFF, max_k=0), *methods),
        max_rows=1,
        max_context_tokens=64,
        queue_limit=1,
        vocab_size=24,
    )


def test_every_loaded_method_is_measured_at_every_length_and_branching_ones_as_trees() -> None:
    loaded = capable(
        MethodCapability(method=Method.PROMPT_LOOKUP, max_k=16),
        MethodCapability(method=Method.MEDUSA, max_k=4, drafter="heads"),
    )

    chosen = arms(loaded, (2, 5), (TreeShape(nodes=15, width=3), TreeShape(nodes=3, width=2)))

    assert chosen[0] == OFF
    assert [setting.label for setting in chosen[1:]] == [
        "prompt_lookup k=2",
        "prompt_lookup k=5",
        "medusa k=2",
        "medusa k=4",
        "medusa k=4 tree=15x3",
        "medusa k=2 tree=3x2",
    ]
    assert all(loaded.refusal_reason(setting) is None for setting in chosen)


def test_methods_without_weights_are_named_as_not_loaded() -> None:
    missing = not_loaded(capable(MethodCapability(method=Method.PROMPT_LOOKUP, max_k=16)))

    assert Method.EAGLE in missing
    assert not {Method.OFF, Method.PROMPT_LOOKUP} & set(missing)


def test_the_adaptive_mode_is_measured_where_asked_for_and_where_a_method_has_it() -> None:
    loaded = capable(
        MethodCapability(method=Method.PROMPT_LOOKUP, max_k=16),
        MethodCapability(method=Method.MEDUSA, max_k=4, drafter="heads"),
    )

    added = [
        s for s in arms(loaded, (2, 5), (), has_adaptive=True) if s not in arms(loaded, (2, 5), ())
    ]

    assert [setting.label for setting in added] == ["medusa k=4 adaptive"]

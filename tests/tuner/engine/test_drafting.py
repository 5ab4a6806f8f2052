"""The adaptive mode through the core: longer drafts at low load, and what the journal says."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.records import DecodeStep, Method, Setting
from tests.tuner.engine.grammars import END, NUM_LETTERS, compiled, regex, spelled
from tests.tuner.engine.harness import (
    CONTEXT,
    Machine,
    SmallEngine,
    prompts,
    random_decoder,
    request,
    small_engine,
    tokens_of,
)
from tuner.engine.adaptive import PROBE_EVERY
from tuner.engine.chances import Kind
from tuner.engine.drafters.base import Draft, DraftAsk
from tuner.engine.limits import EngineLimits

ADAPTIVE = Setting(method=Method.DRAFT_MODEL, k=7, is_adaptive=True)


def engine_of_doubtful_drafts() -> SmallEngine:
    return small_engine(
        vocab_size=9, drafters=["draft_model"], draft=random_decoder(1, 9, num_layers=1)
    )


def steps_of(num_rows: int) -> list[DecodeStep]:
    """Let rows run together, and leave out the steps in which prices were found."""
    engine = engine_of_doubtful_drafts()
    asked = [
        request(str(n), prompt, setting=ADAPTIVE, max_tokens=80)
        for n, prompt in enumerate(prompts(num_rows, 9, seed=3, longest=12))
    ]
    engine.run(asked)
    return engine.steps()[15:]


def drafted_a_row(steps: Sequence[DecodeStep]) -> float:
    groups = [group for step in steps for group in step.groups]
    return sum(group.drafted for group in groups) / sum(group.rows for group in groups)


def test_the_same_drafts_are_longer_alone_than_among_many() -> None:
    assert drafted_a_row(steps_of(1)) > 2 * drafted_a_row(steps_of(8))


def test_a_row_whose_draft_was_cut_to_nothing_counts_as_one_without_a_draft() -> None:
    groups = [group for step in steps_of(8) for group in step.groups]
    empty = [each for group in groups for each in group.outcomes if each.drafted == 0]
    assert empty
    assert all(each.accepted == 0 for each in empty)
    assert {group.setting for group in groups} == {ADAPTIVE}


def test_the_cost_of_a_draft_names_the_passes_it_took_and_no_draft_costs_nothing() -> None:
    steps = steps_of(8)
    for step in steps:
        longest = max((o.drafted for group in step.groups for o in group.outcomes), default=0)
        depths = [cost.depth for cost in step.drafts]
        assert all(longest <= depth <= longest + 1 for depth in depths)
        assert depths or not longest


def slow_drafts(engine: SmallEngine, method: Method) -> list[float]:
    """Let drafting take a time of its own; return where the seconds of a draft are said."""
    drafter, machine, seconds = engine.drafters[method], engine.core._clock, [0.0]
    assert isinstance(machine, Machine)
    propose = drafter.propose

    def slowly(asks: Sequence[DraftAsk]) -> list[Draft]:
        machine.now_s += seconds[0]
        return propose(asks)

    drafter.propose = slowly  # type: ignore[method-assign]
    return seconds


def test_drafting_that_was_slow_for_a_while_is_taken_up_again() -> None:
    engine = small_engine(
        vocab_size=9,
        drafters=["draft_model"],
        limits=EngineLimits(max_rows=1, max_context_tokens=CONTEXT, queue_limit=500),
    )
    seconds = slow_drafts(engine, Method.DRAFT_MODEL)
    for name in range(9):
        engine.core.submit(request(str(name), [1, 2, 3], setting=ADAPTIVE, max_tokens=150))
    for step in range(6 * PROBE_EVERY):
        seconds[0] = 60.0 if step < 10 else 0.1
        engine.core.step()
    steps = engine.steps()
    assert drafted_a_row(steps[10 : PROBE_EVERY - 20]) == 0
    assert drafted_a_row(steps[-40:-10]) > 2


def test_a_drafter_that_declines_teaches_nothing_of_what_drafts_take() -> None:
    """On prompts as short as these self_sparse never drafts."""
    engine = small_engine(vocab_size=9, drafters=["self_sparse"])
    slow_drafts(engine, Method.SELF_SPARSE)[0] = 1.0
    setting = Setting(method=Method.SELF_SPARSE, k=4, is_adaptive=True)
    engine.run([request("a", [1, 2], setting=setting, max_tokens=20)])
    assert engine.core._drafting._adaptive.drafts.first(Method.SELF_SPARSE, 1) == 0


def test_what_a_grammar_cuts_was_drafted_for_nothing() -> None:
    """The draft is the target itself, but guesses no letter that the grammar allows."""
    engine = small_engine(vocab_size=NUM_LETTERS + 1, drafters=["draft_model"], eos_ids=(END,))
    free = engine.run([request("a", [3, 1, 4], setting=ADAPTIVE, max_tokens=40)])
    others = sorted({*range(NUM_LETTERS)} - {*tokens_of(free["a"])})
    grammar = compiled(regex(f"[{spelled(others)}]{{60}}"))
    engine.run([request("b", [3, 1, 4], setting=ADAPTIVE, max_tokens=40, grammar=grammar)])
    chances = engine.core._drafting._adaptive.chances
    spread = chances.spread("chat", Kind(Method.DRAFT_MODEL, is_greedy=True), 0)
    assert sum(share * chance for share, chance in spread) < 0.5

"""Where drafts end: prices, survival, probes, and rows whose draft nothing learned may reach."""

from __future__ import annotations

import pytest

from collectors.records import Method
from tuner.engine.adaptive import PROBE_EVERY, SEEDED_PRICE, Adaptive, Market, Outlook, StepFigures
from tuner.engine.chances import Kind

GREEDY = Kind(Method.EAGLE, is_greedy=True)


def learned(*, rows: int, position_s: float, draft_s: float = 0.0) -> Adaptive:
    """Steps of a second in which every row gets a token, and what more positions cost beside it."""
    adaptive = Adaptive()
    for more in (0, rows, 2 * rows) * 5:
        figures = StepFigures(
            rows=rows,
            positions=rows + more,
            prefill_tokens=0,
            tokens=rows,
            draft_s=0.0,
            rest_s=1 + position_s * more,
        )
        adaptive.passes.add(figures.positions, figures.rest_s)
    for _ in range(20):
        adaptive.yields.add(rows, rows, 1.0)
        adaptive.drafts.add(Method.EAGLE, rows, 1, draft_s)
        adaptive.drafts.add(Method.EAGLE, rows, 2, 2 * draft_s)
    return adaptive


def opened(adaptive: Adaptive, rows: int) -> Market:
    return adaptive.market(Method.EAGLE, rows=rows, positions=rows)


def outlook(
    market: Market, *, route: str = "chat", is_seeded: bool = False, longest: int = 16
) -> Outlook:
    return Outlook(market=market, route=route, kind=GREEDY, is_seeded=is_seeded, longest=longest)


def drafted(market: Market, each: Outlook, confidence: float, k: int = 16) -> int:
    """How many positions of one confidence a row drafts."""
    while len(each.confidences) < k and market.judge([each], [confidence])[0]:
        pass
    return len(each.confidences)


def lengths(adaptive: Adaptive, rows: int, confidence: float) -> int:
    market = opened(adaptive, rows)
    return drafted(market, outlook(market), confidence)


def test_an_engine_that_knows_nothing_drafts_to_the_ceiling() -> None:
    market = opened(Adaptive(), 4)
    each = outlook(market)
    assert market.pays_draft([each])
    assert drafted(market, each, 0.05, k=7) == 7
    assert market.pays_pass([each])


def test_a_draft_ends_where_survival_falls_below_the_price() -> None:
    """A token a second, a position 0.3 s: 0.85 is kept, 0.85 ** 7 is the last above 0.3."""
    assert lengths(learned(rows=1, position_s=0.3), 1, 0.85) == 7
    assert lengths(learned(rows=1, position_s=0.6), 1, 0.85) == 3
    assert lengths(learned(rows=1, position_s=0.9), 1, 0.85) == 0


def test_the_same_position_pays_at_low_load_and_not_at_high_load() -> None:
    """Sixteen rows yield sixteen times the tokens, so that the same seconds are dearer."""
    assert lengths(learned(rows=1, position_s=0.05), 1, 0.75) >= 8
    assert lengths(learned(rows=16, position_s=0.05), 16, 0.75) == 0


def test_surer_rows_draft_longer_in_the_same_step() -> None:
    market = opened(learned(rows=2, position_s=0.2), 2)
    sure, unsure = outlook(market), outlook(market)
    assert market.judge([sure, unsure], [0.97, 0.35]) == [True, False]


def test_drafting_is_left_alone_where_the_drafter_takes_longer_than_it_saves() -> None:
    market = opened(learned(rows=2, position_s=0.0, draft_s=0.1), 2)
    assert market.pays_draft([outlook(market), outlook(market)])
    dear = opened(learned(rows=2, position_s=0.0, draft_s=1.5), 2)
    assert not dear.pays_draft([outlook(dear), outlook(dear)])


def test_one_more_draft_pass_needs_rows_that_are_still_likely_to_gain_by_it() -> None:
    market = opened(learned(rows=2, position_s=0.01, draft_s=0.4), 2)
    sure, unsure = outlook(market), outlook(market)
    for _ in range(2):
        market.judge([sure, unsure], [0.995, 0.25])
    assert market.pays_pass([sure, unsure])
    assert not market.pays_pass([unsure])


def test_drafters_of_one_pass_are_asked_for_all_that_the_pass_gives() -> None:
    """A draft that takes 1.2 tokens' time: two positions at 0.85 pay for it, one alone does not."""
    adaptive = learned(rows=1, position_s=0.0)
    for _ in range(100):
        adaptive.drafts.add(Method.EAGLE, 1, 1, 1.2)
        adaptive.drafts.add(Method.EAGLE, 1, 5, 1.2)
        adaptive.chances.judge("chat", GREEDY, 0, 0.85)
        adaptive.chances.judge("chat", GREEDY, 1, 0.85)
    market = opened(adaptive, 1)
    assert market.pays_draft([outlook(market)])
    assert not market.pays_draft([outlook(market, longest=1)])


def lengths_by_step(adaptive: Adaptive, steps: int, kept: int, route: str = "chat") -> list[int]:
    """Draft lengths of steps with one row sure of 0.75, which keeps so many tokens at most."""
    lengths = []
    for _ in range(steps):
        market = opened(adaptive, 16)
        each = outlook(market, route=route)
        length = drafted(market, each, 0.75) if market.pays_draft([each]) else 0
        adaptive.learn_draft(each, length, accepted=min(length, kept))
        lengths.append(length)
    return lengths


def test_a_method_left_alone_is_tried_again_now_and_then_with_one_token() -> None:
    """Twice each time: first it reads what it missed, then its time counts."""
    lengths = lengths_by_step(learned(rows=16, position_s=0.5), 2 * PROBE_EVERY, kept=0)
    tried = [step for step, length in enumerate(lengths) if length]
    assert tried == [step + PROBE_EVERY for step in (-2, -1)] + [
        step + 2 * PROBE_EVERY for step in (-2, -1)
    ]
    assert max(lengths) == 1


@pytest.mark.parametrize("kept", [0, 1])
def test_positions_that_were_never_kept_are_found_out_once_they_are(kept: int) -> None:
    adaptive = learned(rows=16, position_s=0.01)
    assert lengths_by_step(adaptive, 500, kept)[-3] == kept
    assert lengths_by_step(adaptive, 60 * PROBE_EVERY, kept=16)[-3] > kept + 2


def test_a_route_that_drafted_nothing_is_tried_again_while_others_draft() -> None:
    adaptive = learned(rows=16, position_s=0.01)
    for _ in range(200):
        adaptive.chances.learn("code", GREEDY, [0.75], 0)
    lengths = []
    for _ in range(60 * PROBE_EVERY):
        market = opened(adaptive, 16)
        code, chat = outlook(market, route="code"), outlook(market)
        for each in (code, chat):
            length = drafted(market, each, 0.75, k=2)
            adaptive.learn_draft(each, length, accepted=length)
        lengths.append(len(code.confidences))
    assert lengths[0] == 0
    assert lengths[-3] == 2


def test_what_was_kept_is_learned_by_route_and_method() -> None:
    adaptive = learned(rows=1, position_s=0.3)
    for _ in range(100):
        each = outlook(opened(adaptive, 1))
        each.market.judge([each], [0.85])
        adaptive.learn_draft(each, 1, accepted=0)
    assert lengths(adaptive, 1, 0.85) == 0


@pytest.mark.parametrize("position_s", [0.0, 0.05, 5.0])
def test_the_draft_of_a_seeded_row_depends_on_nothing_but_its_own_confidences(
    position_s: float,
) -> None:
    market = opened(learned(rows=16, position_s=position_s, draft_s=position_s), 16)
    each = outlook(market, is_seeded=True)
    assert market.pays_draft([each])
    assert drafted(market, each, 0.75) == 3
    assert 0.75**4 < SEEDED_PRICE < each.survival
    assert market.pays_pass([each])


def test_a_probe_takes_one_pass_and_one_position_more_than_pays() -> None:
    adaptive = learned(rows=1, position_s=0.6, draft_s=9.0)
    market = Market(Method.EAGLE, rows=1, positions=1, learned=adaptive, is_probe=True)
    each = outlook(market)
    for _ in range(20):
        adaptive.chances.judge("chat", GREEDY, 1, 0.75)
    assert market.judge([each], [0.75]) == [True]
    assert [market.pays_pass([each]), market.pays_pass([each])] == [True, False]
    assert market.judge([each], [0.25]) == [True]
    assert market.judge([each], [0.25]) == [False]


def test_a_probe_changes_no_draft_of_a_seeded_row() -> None:
    adaptive = learned(rows=1, position_s=0.0)
    market = Market(Method.EAGLE, rows=1, positions=1, learned=adaptive, is_probe=True)
    assert drafted(market, outlook(market, is_seeded=True), 0.75) == 3


def test_the_time_of_a_prompt_in_a_step_is_not_put_down_to_its_rows() -> None:
    alone, beside = Adaptive(), Adaptive()
    for _ in range(30):
        for adaptive, prefill_tokens in ((alone, 0), (beside, 0), (beside, 60)):
            figures = StepFigures(
                rows=4,
                positions=4 + prefill_tokens,
                prefill_tokens=prefill_tokens,
                tokens=4,
                draft_s=0.0,
                rest_s=1 + 0.05 * prefill_tokens,
            )
            adaptive.learn_step(figures, is_reading=False)
    assert beside.yields.tokens_per_s(4) == pytest.approx(alone.yields.tokens_per_s(4), rel=0.05)


def test_a_step_in_which_a_drafter_read_a_prompt_changes_no_yield() -> None:
    adaptive = learned(rows=4, position_s=0.1)
    before = adaptive.yields.tokens_per_s(4)
    slow = StepFigures(rows=4, positions=4, prefill_tokens=0, tokens=4, draft_s=9.0, rest_s=1.0)
    adaptive.learn_step(slow, is_reading=True)
    assert adaptive.yields.tokens_per_s(4) == before

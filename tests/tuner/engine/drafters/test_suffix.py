"""What the suffix drafter remembers, of whom, and for how long."""

from __future__ import annotations

import pytest

from collectors.lookup_suffix import SuffixStore
from collectors.records import Method, Setting
from tests.tuner.engine.drafters.asks import ask
from tests.tuner.engine.harness import prompts, random_decoder, request, small_engine, tokens_of
from tuner.engine.drafters.suffix import SuffixDrafter
from tuner.engine.drafting import Drafting

SETTING = Setting(method=Method.SUFFIX, k=6)


def drafted(drafter: SuffixDrafter, token_ids: list[int], **parts: object) -> tuple[int, ...]:
    (draft,) = drafter.propose([ask(token_ids, SETTING, **parts)])  # type: ignore[arg-type]
    return draft.token_ids


def served(drafter: SuffixDrafter, prompt: list[int], output: list[int], route: str) -> None:
    """Let a row come and go: asked after its first token and once more before its last."""
    drafted(drafter, [*prompt, *output[:1]], route=route)
    drafted(drafter, [*prompt, *output], route=route)
    drafter.release(0)


def test_an_output_helps_the_next_request_of_its_route_only() -> None:
    drafter = SuffixDrafter(SuffixStore(100))
    served(drafter, [1, 2], [5, 6, 7, 8], route="chat")
    assert drafted(drafter, [9, 5, 6], slot=1, route="code") == ()
    assert drafted(drafter, [9, 5, 6], slot=2, route="chat") == (7, 8)


def test_a_prompt_is_never_remembered() -> None:
    drafter = SuffixDrafter(SuffixStore(100))
    served(drafter, [1, 2, 3, 4], [5, 6], route="chat")
    assert drafted(drafter, [9, 2, 3], slot=1) == ()


def test_without_a_store_nothing_is_remembered() -> None:
    drafter = SuffixDrafter()
    served(drafter, [1, 2], [5, 6, 7, 8], route="chat")
    assert drafted(drafter, [9, 5, 6], slot=1) == ()


def test_a_moved_row_takes_its_index_along_and_leaves_its_old_slot_empty() -> None:
    drafter = SuffixDrafter()
    drafted(drafter, [1, 2, 3, 4], slot=3)
    drafter.move(3, 0)
    assert drafted(drafter, [1, 2, 3, 4, 2], slot=0) == (3, 4, 2, 3)
    assert drafted(drafter, [7, 8, 2], slot=3) == ()


@pytest.mark.parametrize(
    ("parts", "is_kept"),
    [
        ({"route": "chat"}, True),
        ({"route": "chat", "is_shadow": True}, False),
        ({"route": "secret"}, False),
    ],
    ids=["live", "shadow", "private"],
)
def test_only_live_outputs_of_routes_that_are_not_private_are_kept(
    parts: dict[str, object], is_kept: bool
) -> None:
    engine = small_engine(target=random_decoder(1, 24), drafters=["suffix"])
    store = SuffixStore(1000)
    engine.core._drafting = Drafting(
        {Method.SUFFIX: SuffixDrafter(store)},
        max_context_tokens=100,
        is_private=lambda route: route == "secret",
    )
    asked = request("a", [1, 2, 1, 2], setting=SETTING, max_tokens=12, **parts)  # type: ignore[arg-type]
    engine.run([asked])
    assert bool(store.texts(str(parts["route"]))) is is_kept


def test_a_store_makes_a_repeated_question_cheaper_and_changes_no_token() -> None:
    engine = small_engine(target=random_decoder(1, 24), drafters=["suffix"])
    engine.core._drafting = Drafting(
        {Method.SUFFIX: SuffixDrafter(SuffixStore(1000))}, max_context_tokens=100
    )
    (prompt,) = prompts(1, 24, seed=3)
    first = engine.run([request("first", prompt, setting=SETTING, max_tokens=30)])
    again = engine.run([request("again", prompt, setting=SETTING, max_tokens=30)])
    assert tokens_of(first["first"]) == tokens_of(again["again"])
    traces = engine.traces()
    assert traces["again"].passes < traces["first"].passes / 2

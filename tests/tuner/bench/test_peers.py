from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from collectors.lookup import Match
from collectors.records import Method, Setting
from tuner.bench.driver import Driver
from tuner.bench.peers import TransformersPeer
from tuner.engine.drafters.base import Drafter
from tuner.engine.drafters.prompt_lookup import PromptLookupDrafter
from tuner.engine.drafters.registry import load_drafters
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import build_engine, load_target
from tuner.engine.settings import EngineSettings

NUM_TOKENS = 54
LOOKUP = Setting(method=Method.PROMPT_LOOKUP, k=5, lookup_min=1, lookup_max=3)
Job = Callable[[Sequence[Sequence[int]], int, int], None]


@pytest.fixture(scope="module")
def prompt(roomy_model: Path) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(roomy_model, local_files_only=True)
    return list(tokenizer("the answer is short, the answer is short")["input_ids"])


def test_plain_generation_takes_one_pass_a_token_in_every_row(
    roomy_model: Path, prompt: list[int]
) -> None:
    peer = TransformersPeer(roomy_model, None)

    peer.plain([prompt, prompt[:3]], NUM_TOKENS)

    counts = peer.counts
    assert counts.num_tokens == counts.num_passes == 2 * NUM_TOKENS
    assert counts.decode_tokens == 2 * (NUM_TOKENS - 1)
    assert counts.decode_s > 0


def test_counting_starts_anew(roomy_model: Path, prompt: list[int]) -> None:
    peer = TransformersPeer(roomy_model, None)
    peer.plain([prompt], NUM_TOKENS)

    counts = peer.restart()
    peer.plain([prompt], 3)

    assert (counts.num_tokens, counts.num_passes) == (3, 3)


def ours(model: Path, methods: dict[Method, Drafter] | None = None) -> Driver:
    settings = EngineSettings(
        model=str(model),
        draft=str(model),
        methods=(Method.DRAFT_MODEL,),
        limits=EngineLimits(max_rows=1, max_context_tokens=256),
        threads=1,
    )
    target = load_target(settings)
    return Driver(
        build_engine(settings, target, methods or load_drafters(settings, target)), NUM_TOKENS
    )


def both(
    driver: Driver, peer: TransformersPeer, job: Job, prompt: list[int], setting: Setting
) -> tuple[int, int]:
    """Return the passes of both from the first token on, which ours has from the prefill."""
    (deltas,) = driver.answers([prompt], setting)
    first = deltas[0].token_ids[0]
    counts = peer.restart()
    job([[*prompt, first]], NUM_TOKENS - 1, setting.k)
    assert counts.num_tokens == NUM_TOKENS - 1
    return deltas[-1].counts.passes, counts.num_passes


def test_both_engines_take_as_many_passes_where_every_draft_is_right(
    roomy_model: Path, prompt: list[int]
) -> None:
    peer = TransformersPeer(roomy_model, roomy_model)
    setting = Setting(method=Method.DRAFT_MODEL, k=5)

    assert both(ours(roomy_model), peer, peer.assisted, prompt, setting) == (9, 9)


@pytest.mark.parametrize(("match", "expected"), [(Match.EARLIEST, 11), (Match.LATEST, 27)])
def test_lookup_takes_the_peers_passes_where_it_copies_from_the_earliest_match(
    parrot: Path, prompt: list[int], match: Match, expected: int
) -> None:
    peer = TransformersPeer(parrot, None)
    driver = ours(parrot, {Method.PROMPT_LOOKUP: PromptLookupDrafter(match)})

    passes, peers = both(driver, peer, peer.lookup, prompt, LOOKUP)

    # The latest match lies one token before the end, so that one token can be copied.
    assert (passes, peers) == (expected, 11)

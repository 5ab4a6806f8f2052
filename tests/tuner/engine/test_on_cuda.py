"""The engine on a CUDA device; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from collectors.records import OFF, Method, Setting
from tests.tuner.engine.harness import (
    SmallEngine,
    prompts,
    random_decoder,
    request,
    settings_under_test,
    small_engine,
    tokens_of,
)

VOCAB = 24
DEVICE = "cuda:0"
FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
DRAWN = Setting(method=Method.DRAFT_MODEL, k=4)
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this torch sees no CUDA device"),
]


def engine_on(device: str, dtype: torch.dtype = FLOAT32, scale: float = 0.5) -> SmallEngine:
    target = random_decoder(1, VOCAB, scale=scale, device=device, dtype=dtype)
    return small_engine(target=target, vocab_size=VOCAB)


def answers(
    engine: SmallEngine, settings: list[Setting], *, temperature: float = 0.0
) -> list[list[int]]:
    """Ask one prompt for each Setting, all in one batch."""
    asked = [
        request(str(number), ids, setting=setting, temperature=temperature, seed=number)
        for number, (setting, ids) in enumerate(
            zip(settings, prompts(len(settings), VOCAB), strict=True)
        )
    ]
    deltas = engine.run(asked)
    return [tokens_of(deltas[one.request_id]) for one in asked]


def test_every_method_answers_greedily_as_off_does_in_float32() -> None:
    engine = engine_on(DEVICE)
    settings = settings_under_test()
    assert answers(engine, settings) == answers(engine, [OFF] * len(settings))


@pytest.mark.parametrize("method", [Method.DRAFT_MODEL, Method.PROMPT_LOOKUP])
def test_methods_answer_greedily_as_off_does_in_bfloat16(method: Method) -> None:
    # Large weights: in half precision a pass of several tokens rounds otherwise than one of one,
    # which must decide nothing.
    engine = engine_on(DEVICE, BFLOAT16, scale=2.0)
    settings = [setting for setting in settings_under_test() if setting.method is method]
    assert answers(engine, settings) == answers(engine, [OFF] * len(settings))


def test_sampled_rows_draw_with_their_own_generators_as_on_the_cpu() -> None:
    settings = [OFF, DRAWN, *(s for s in settings_under_test() if s.is_tree)]
    drawn = answers(engine_on(DEVICE), settings, temperature=1.0)
    assert drawn == answers(engine_on(DEVICE), settings, temperature=1.0)
    assert all(drawn)
    # OFF's draws are uniforms of a generator on the CPU, put to the same distribution.
    assert drawn[0] == answers(engine_on("cpu"), settings, temperature=1.0)[0]


def test_slots_are_free_again_after_cancelling_in_the_middle() -> None:
    engine = engine_on(DEVICE)
    for number, ids in enumerate(prompts(6, VOCAB)):
        engine.core.submit(request(str(number), ids, setting=DRAWN))
    for _ in range(4):
        engine.core.step()
    assert engine.core.cancel("2")
    engine.drain()
    assert engine.core.num_running == 0
    assert engine.core.kv_used_ratio == 0
    held = engine.target.new_slots(1, 8)
    assert held.keys[0].device.type == "cuda"

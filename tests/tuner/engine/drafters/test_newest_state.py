"""Medusa and MLP speculator drafts against their plain arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from collectors.records import Method, Setting
from tests.tuner.engine import tiny_heads
from tests.tuner.engine.harness import random_decoder
from tuner.engine.drafters.base import Draft, DraftAsk, TargetView
from tuner.engine.drafters.newest_state import NewestStateDrafter
from tuner.engine.model.slots import FINAL, FeatureSlots
from tuner.engine.request import SamplingParams
from tuner.engine.verification.drawing import new_generator

VOCAB, WIDTH, STAGES = 24, 20, 4
TARGET = random_decoder(1, VOCAB)
REDUCED = torch.arange(1, VOCAB, 2)
STATE = tiny_heads.Dice(9, scale=1.0).matrix(TARGET.shape.hidden_size)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def attached(drafter: NewestStateDrafter, state: Tensor, slot: int, entry: int) -> None:
    features = FeatureSlots(
        taps=(0, FINAL),
        num_slots=3,
        max_context_tokens=16,
        hidden_size=len(state),
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    features.values[slot, entry, 1] = state
    slots = TARGET.new_slots(3, 16)
    drafter.attach(TargetView(decoder=TARGET, slots=slots, features=features))


def ask(token_ids: Sequence[int], k: int, nodes: int = 0, temperature: float = 0.0) -> DraftAsk:
    width = 3 if nodes else 0
    return DraftAsk(
        slot=1,
        token_ids=token_ids,
        k=k,
        num_nodes=nodes or k,
        route="chat",
        setting=Setting(method=Method.MEDUSA, k=k, tree_nodes=nodes, tree_width=width),
        sampling=SamplingParams(temperature=temperature),
        generator=new_generator(3),
    )


def paths_of(draft: Draft) -> set[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.token_ids, draft.parents or (), strict=True):
        paths.append((*paths[parent], token) if parent >= 0 else (token,))
    return set(paths)


def plain_medusa(state: Tensor, head: int, num_rows: int) -> Tensor:
    weights = tiny_heads.medusa_weights(TARGET.shape, STAGES, num_rows)
    linear = functional.linear(
        state, weights[f"{head}.0.linear.weight"], weights[f"{head}.0.linear.bias"]
    )
    return weights[f"{head}.1.weight"] @ (state + linear * linear.sigmoid())


def plain_speculator(state: Tensor, token_ids: Sequence[int]) -> Tensor:
    """Logits after the last of the tokens, the first of which is the last committed one."""
    weights = tiny_heads.speculator_weights(TARGET.shape, STAGES, WIDTH, VOCAB)
    kept = 0.5 ** (0.5 / STAGES)
    share = math.sqrt((1 - kept**2) * WIDTH / 2)
    state = state / state.pow(2).mean().sqrt() / math.sqrt(2)
    for stage, token in enumerate(token_ids):
        mixed = weights[f"speculator.proj.{stage}.weight"] @ state * kept
        mixed = mixed + weights[f"speculator.emb.{stage}.weight"][token] * share
        scaled = mixed / mixed.pow(2).mean().sqrt() * weights[f"speculator.ln.{stage}.weight"]
        state = functional.gelu(scaled + weights[f"speculator.ln.{stage}.bias"])
    return weights[f"speculator.head.{len(token_ids) - 1}.weight"] @ state


def test_a_medusa_chain_takes_each_heads_likeliest_token() -> None:
    drafter, state = tiny_heads.medusa(TARGET, REDUCED), STATE
    attached(drafter, state, slot=1, entry=4)
    (draft,) = drafter.propose([ask([1, 2, 3, 4, 5, 6], 3, temperature=1.0)])
    columns = [int(plain_medusa(state, head, len(REDUCED)).argmax()) for head in range(3)]
    assert draft == Draft(token_ids=tuple(REDUCED[columns].tolist()))


def test_a_medusa_tree_is_the_best_of_all_combinations() -> None:
    drafter, state = tiny_heads.medusa(TARGET), STATE / 4
    attached(drafter, state, slot=1, entry=0)
    (draft,) = drafter.propose([ask([1, 2], 3, nodes=20)])
    tops = [plain_medusa(state, head, VOCAB).log_softmax(-1).topk(3) for head in range(3)]
    scores = {
        tuple(int(tops[level].indices[rank]) for level, rank in enumerate(ranks)): sum(
            float(tops[level].values[rank]) for level, rank in enumerate(ranks)
        )
        for depth in (1, 2, 3)
        for ranks in itertools.product(range(3), repeat=depth)
    }
    best = sorted(scores, key=scores.__getitem__, reverse=True)[:20]
    assert paths_of(draft) == set(best)
    assert draft.probs is None


def test_a_speculators_chain_follows_its_stages() -> None:
    drafter, state = tiny_heads.speculator(TARGET), STATE
    attached(drafter, state, slot=1, entry=1)
    (draft,) = drafter.propose([ask([9, 8, 7], STAGES)])
    path = [7]
    for _ in range(STAGES):
        path.append(int(plain_speculator(state, path).argmax()))
    assert draft == Draft(token_ids=tuple(path[1:]))


def test_a_speculators_drawn_chain_carries_the_distribution_of_each_token() -> None:
    drafter, state = tiny_heads.speculator(TARGET), STATE
    attached(drafter, state, slot=1, entry=1)
    (draft,) = drafter.propose([ask([9, 8, 7], STAGES, temperature=0.8)])
    assert draft.probs is not None
    for length, probs in enumerate(draft.probs):
        logits = plain_speculator(state, [7, *draft.token_ids[:length]])
        torch.testing.assert_close(probs, (logits / 0.8).softmax(-1), atol=1e-4, rtol=1e-3)


def test_a_speculators_tree_holds_the_best_paths() -> None:
    drafter, state = tiny_heads.speculator(TARGET), STATE
    attached(drafter, state, slot=1, entry=1)
    (draft,) = drafter.propose([ask([9, 8, 7], 3, nodes=15)])
    scores: dict[tuple[int, ...], float] = {}
    beam: list[tuple[int, ...]] = [()]
    for _ in range(3):
        level: dict[tuple[int, ...], float] = {}
        for path in beam:
            top = plain_speculator(STATE, [7, *path]).log_softmax(-1).topk(3)
            for score, token in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                level[(*path, token)] = scores.get(path, 0.0) + score
        scores |= level
        beam = sorted(level, key=level.__getitem__, reverse=True)[:3]
    assert paths_of(draft) == set(sorted(scores, key=scores.__getitem__, reverse=True)[:15])

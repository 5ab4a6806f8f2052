"""Small random engines for tests of the core: no files, no sockets, real parts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collectors.records import AcceptanceRule, DecodeStep, Method, RequestTrace, Setting
from tests.tuner.engine import tiny_heads
from tests.tuner.engine.scripted import ScriptedDrafter
from tuner.engine.capabilities import Capabilities, MethodCapability
from tuner.engine.capture import Capture
from tuner.engine.core import EngineCore
from tuner.engine.drafters.base import Drafter
from tuner.engine.drafters.draft_model import DraftModelDrafter
from tuner.engine.drafters.lookahead import LookaheadDrafter
from tuner.engine.drafters.prompt_lookup import PromptLookupDrafter
from tuner.engine.drafters.self_sparse import SelfSparseDrafter
from tuner.engine.drafters.suffix import SuffixDrafter
from tuner.engine.drafting import Drafting
from tuner.engine.journal import Journal
from tuner.engine.limits import EngineLimits
from tuner.engine.live_plan import LivePlan
from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Pass, Span, lay_out
from tuner.engine.request import Delta, EngineRequest, SamplingParams

CONTEXT = 160


class Machine:
    """Time as the target's passes take it on a slow machine, the same in every run."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TimedDecoder:
    """A decoder whose passes take a second, and more for each position."""

    def __init__(self, decoder: LlamaDecoder, machine: Machine, position_s: float) -> None:
        self._decoder = decoder
        self._machine = machine
        self._position_s = position_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, batch: Pass, *room: Any) -> Tensor:
        self._machine.now_s += 1 + self._position_s * len(batch.token_ids)
        return self._decoder.forward(batch, *room)


class LetterDecoder:
    """Spells token t as the t-th letter."""

    def push(self, token_id: int) -> str:
        return chr(ord("a") + token_id)

    def flush(self) -> str:
        return ""


class LetterCodec:
    """Text for models without a tokenizer."""

    def __init__(self, eos_ids: tuple[int, ...] = ()) -> None:
        self.eos_ids = eos_ids

    def new_decoder(self) -> LetterDecoder:
        return LetterDecoder()


def random_decoder(
    seed: int,
    vocab_size: int,
    *,
    num_layers: int = 2,
    scale: float = 0.5,
    window: int | None = None,
    max_positions: int = CONTEXT,
    head_dim: int = 8,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> LlamaDecoder:
    shape = LlamaShape(
        num_layers=num_layers,
        hidden_size=32,
        num_heads=32 // head_dim,
        num_kv_heads=16 // head_dim,
        head_dim=head_dim,
        vocab_size=vocab_size,
        rope_theta=10000.0,
        norm_eps=1e-5,
        max_positions=max_positions,
        window=window,
    )
    weights = {
        name: value.to(device, dtype) for name, value in random_weights(shape, seed, scale).items()
    }
    embedding = weights.pop("embed_tokens.weight")
    return LlamaDecoder(shape, weights, embedding=embedding, head=weights.pop("lm_head.weight"))


def random_weights(shape: LlamaShape, seed: int, scale: float) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = shape.hidden_size, 2 * shape.hidden_size
    kv_width = shape.num_kv_heads * shape.head_dim

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator) * scale

    weights = {
        "embed_tokens.weight": draw(shape.vocab_size, hidden),
        "lm_head.weight": draw(shape.vocab_size, hidden),
        "norm.weight": 1 + 0.1 * draw(hidden),
    }
    for layer in range(shape.num_layers):
        prefix = f"layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": 1 + 0.1 * draw(hidden),
            f"{prefix}post_attention_layernorm.weight": 1 + 0.1 * draw(hidden),
            f"{prefix}self_attn.q_proj.weight": draw(hidden, hidden),
            f"{prefix}self_attn.k_proj.weight": draw(kv_width, hidden),
            f"{prefix}self_attn.v_proj.weight": draw(kv_width, hidden),
            f"{prefix}self_attn.o_proj.weight": draw(hidden, hidden),
            f"{prefix}mlp.gate_proj.weight": draw(inner, hidden),
            f"{prefix}mlp.up_proj.weight": draw(inner, hidden),
            f"{prefix}mlp.down_proj.weight": draw(hidden, inner),
        }
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallEngine:
    target: LlamaDecoder
    core: EngineCore
    drafters: Mapping[Method, Drafter]
    plan: LivePlan
    journal: Journal

    def run(self, requests: Sequence[EngineRequest]) -> dict[str, list[Delta]]:
        """Submit all and step until every one has ended."""
        for request in requests:
            self.core.submit(request)
        return self.drain()

    def drain(self, each_step: Callable[[int], None] = lambda step: None) -> dict[str, list[Delta]]:
        deltas: dict[str, list[Delta]] = {}
        step = 0
        while self.core.has_work:
            each_step(step)
            for delta in self.core.step():
                deltas.setdefault(delta.request_id, []).append(delta)
            step += 1
        return deltas

    def steps(self) -> list[DecodeStep]:
        records = self.journal.page(0, 100_000).records
        return [record for record in records if isinstance(record, DecodeStep)]

    def traces(self) -> dict[str, RequestTrace]:
        records = self.journal.page(0, 100_000).records
        return {record.request_id: record for record in records if isinstance(record, RequestTrace)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterParts:
    """What a drafter under test is made of.

    Attributes:
        target: the target.
        limits: of the engine.
        draft: another decoder to guess with; None where the target itself may serve.
        draft_vocab: ids that the guesses are limited to; None for all.
    """

    target: LlamaDecoder
    limits: EngineLimits
    draft: LlamaDecoder | None
    draft_vocab: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterUnderTest:
    """One drafter that has to hold the contract.

    Attributes:
        make: builds it over the small random target.
        settings: the Settings it is put to, all of one method.
        is_skilled: True where it guesses right as long as its draft is the target and text repeats.
    """

    make: Callable[[DrafterParts], Drafter]
    settings: tuple[Setting, ...]
    is_skilled: bool = False

    @property
    def method(self) -> Method:
        return self.settings[0].method


def draft_model(parts: DrafterParts) -> Drafter:
    return DraftModelDrafter(
        parts.draft or parts.target,
        num_slots=parts.limits.max_rows,
        max_context_tokens=parts.limits.max_context_tokens,
        draft_vocab=parts.draft_vocab,
        drafter_id="small",
        drafter_hash="0",
    )


def prompt_lookup(parts: DrafterParts) -> Drafter:
    return PromptLookupDrafter()


def suffix(parts: DrafterParts) -> Drafter:
    return SuffixDrafter()


def lookahead(parts: DrafterParts) -> Drafter:
    return LookaheadDrafter()


def medusa(parts: DrafterParts) -> Drafter:
    return tiny_heads.medusa(parts.target, parts.draft_vocab)


def eagle(parts: DrafterParts) -> Drafter:
    return tiny_heads.eagle(parts.target, parts.limits, parts.draft_vocab)


def mtp(parts: DrafterParts) -> Drafter:
    return tiny_heads.mtp(parts.target, parts.limits, parts.draft_vocab)


def pard(parts: DrafterParts) -> Drafter:
    return tiny_heads.pard(parts.draft or parts.target, parts.limits, parts.draft_vocab)


def mlp_speculator(parts: DrafterParts) -> Drafter:
    return tiny_heads.speculator(parts.target, parts.draft_vocab)


def self_sparse(parts: DrafterParts) -> Drafter:
    return SelfSparseDrafter(sink_tokens=2, window_tokens=8, min_saved_ratio=0.0)


def scripted_guesses(parts: DrafterParts) -> Drafter:
    return _scripted(parts, Method.MEDUSA, gives_probs=False)


def scripted_draws(parts: DrafterParts) -> Drafter:
    return _scripted(parts, Method.EAGLE, gives_probs=True)


def _scripted(parts: DrafterParts, method: Method, *, gives_probs: bool) -> Drafter:
    return ScriptedDrafter(
        method,
        vocab_size=parts.target.shape.vocab_size,
        draft_vocab=parts.draft_vocab,
        gives_probs=gives_probs,
    )


DRAFTERS: dict[str, DrafterUnderTest] = {
    "draft_model": DrafterUnderTest(
        make=draft_model,
        settings=(
            Setting(method=Method.DRAFT_MODEL, k=1),
            Setting(method=Method.DRAFT_MODEL, k=3),
            Setting(method=Method.DRAFT_MODEL, k=8, rule=AcceptanceRule.TOKEN_MATCH),
            Setting(method=Method.DRAFT_MODEL, k=7, is_adaptive=True),
        ),
        is_skilled=True,
    ),
    "prompt_lookup": DrafterUnderTest(
        make=prompt_lookup,
        settings=(
            Setting(method=Method.PROMPT_LOOKUP, k=1, lookup_min=1, lookup_max=3),
            Setting(method=Method.PROMPT_LOOKUP, k=3, lookup_min=1, lookup_max=2),
            Setting(method=Method.PROMPT_LOOKUP, k=8, lookup_min=2, lookup_max=4),
        ),
        is_skilled=True,
    ),
    "suffix": DrafterUnderTest(
        make=suffix,
        settings=(
            Setting(method=Method.SUFFIX, k=1),
            Setting(method=Method.SUFFIX, k=4),
            Setting(method=Method.SUFFIX, k=12, rule=AcceptanceRule.TOKEN_MATCH),
            Setting(method=Method.SUFFIX, k=12, is_adaptive=True),
        ),
        is_skilled=True,
    ),
    "self_sparse": DrafterUnderTest(
        make=self_sparse,
        settings=(
            Setting(method=Method.SELF_SPARSE, k=1),
            Setting(method=Method.SELF_SPARSE, k=4),
            Setting(method=Method.SELF_SPARSE, k=3, rule=AcceptanceRule.TOKEN_MATCH),
            Setting(method=Method.SELF_SPARSE, k=4, is_adaptive=True),
        ),
        is_skilled=True,
    ),
    "lookahead": DrafterUnderTest(
        make=lookahead,
        settings=(
            Setting(method=Method.LOOKAHEAD, k=2),
            Setting(method=Method.LOOKAHEAD, k=5),
            Setting(method=Method.LOOKAHEAD, k=12, rule=AcceptanceRule.TOKEN_MATCH),
        ),
        is_skilled=True,
    ),
    "medusa": DrafterUnderTest(
        make=medusa,
        settings=(
            Setting(method=Method.MEDUSA, k=4),
            Setting(method=Method.MEDUSA, k=4, is_adaptive=True),
            Setting(method=Method.MEDUSA, k=3, tree_nodes=14, tree_width=4),
        ),
    ),
    "eagle": DrafterUnderTest(
        make=eagle,
        settings=(
            Setting(method=Method.EAGLE, k=1),
            Setting(method=Method.EAGLE, k=5),
            Setting(method=Method.EAGLE, k=5, is_adaptive=True),
            Setting(method=Method.EAGLE, k=4, tree_nodes=16, tree_width=4),
        ),
    ),
    "mtp": DrafterUnderTest(
        make=mtp,
        settings=(
            Setting(method=Method.MTP, k=3),
            Setting(method=Method.MTP, k=4, is_adaptive=True),
            Setting(method=Method.MTP, k=3, tree_nodes=12, tree_width=3),
        ),
    ),
    "pard": DrafterUnderTest(
        make=pard,
        settings=(
            Setting(method=Method.PARD, k=1),
            Setting(method=Method.PARD, k=6),
            Setting(method=Method.PARD, k=6, is_adaptive=True),
        ),
    ),
    "mlp_speculator": DrafterUnderTest(
        make=mlp_speculator,
        settings=(
            Setting(method=Method.MLP_SPECULATOR, k=3),
            Setting(method=Method.MLP_SPECULATOR, k=4, is_adaptive=True),
            Setting(method=Method.MLP_SPECULATOR, k=4, tree_nodes=10, tree_width=2),
        ),
    ),
}
"""Every drafter of ours by name. A new one is one entry here: the contract suite, the field cases
and the random schedules then run on it. Lossless rules only."""

SCRIPTED: dict[str, DrafterUnderTest] = {
    "scripted_guesses": DrafterUnderTest(
        make=scripted_guesses,
        settings=(
            Setting(method=Method.MEDUSA, k=3, tree_nodes=10, tree_width=3),
            Setting(method=Method.MEDUSA, k=6, tree_nodes=40, tree_width=4),
        ),
    ),
    "scripted_draws": DrafterUnderTest(
        make=scripted_draws,
        settings=(
            Setting(method=Method.EAGLE, k=4),
            Setting(method=Method.EAGLE, k=6, is_adaptive=True),
            Setting(method=Method.EAGLE, k=6, is_adaptive=True, rule=AcceptanceRule.TOKEN_MATCH),
            Setting(method=Method.EAGLE, k=3, tree_nodes=12, tree_width=3),
            Setting(
                method=Method.EAGLE,
                k=4,
                tree_nodes=16,
                tree_width=4,
                rule=AcceptanceRule.TOKEN_MATCH,
            ),
        ),
    ),
}
"""Random drafts under the names of two methods, to put verification itself to the contract."""


def settings_under_test() -> list[Setting]:
    """Every Setting that an engine with all of our drafters is put to."""
    return [setting for drafter in DRAFTERS.values() for setting in drafter.settings]


def small_engine(
    *,
    vocab_size: int = 24,
    seed: int = 1,
    target: LlamaDecoder | None = None,
    drafters: Sequence[str] | None = None,
    draft: LlamaDecoder | None = None,
    draft_vocab: Tensor | None = None,
    eos_ids: tuple[int, ...] = (),
    limits: EngineLimits | None = None,
    scale: float = 0.5,
    position_s: float = 0.1,
    reference_interval: int = 0,
) -> SmallEngine:
    """Make an engine.

    Args:
        vocab_size: of the target.
        seed: of the target.
        target: another target than the one that seed and vocabulary give.
        drafters: names in `DRAFTERS` or `SCRIPTED`, at most one a method; None for all of ours.
        draft: another decoder than the target to guess with.
        draft_vocab: ids that guesses are limited to.
        eos_ids: of the codec.
        limits: of the core.
        scale: of the random weights; larger ones give more certain answers.
        position_s: seconds of a position in a target pass, beside the second of the pass.
        reference_interval: of the core.
    """
    limits = limits or EngineLimits(max_rows=8, max_context_tokens=CONTEXT, prefill_tokens=40)
    target = target or random_decoder(seed, vocab_size, scale=scale)
    parts = DrafterParts(target=target, limits=limits, draft=draft, draft_vocab=draft_vocab)
    named = DRAFTERS | SCRIPTED
    chosen = [named[name] for name in (DRAFTERS if drafters is None else drafters)]
    made: dict[Method, Drafter] = {each.method: each.make(parts) for each in chosen}
    assert len(made) == len(chosen), "an engine has one drafter a method"
    capabilities = Capabilities(
        model="small",
        methods=(
            MethodCapability(method=Method.OFF, max_k=0),
            *(MethodCapability(method=method, max_k=16) for method in made),
        ),
        max_rows=limits.max_rows,
        max_context_tokens=limits.max_context_tokens,
        queue_limit=limits.queue_limit,
        vocab_size=target.shape.vocab_size,
    )
    plan = LivePlan(None, capabilities)
    journal = Journal("boot")
    machine = Machine()
    core = EngineCore(
        TimedDecoder(target, machine, position_s),  # type: ignore[arg-type]
        Drafting(made, max_context_tokens=limits.max_context_tokens, clock=machine),
        LetterCodec(eos_ids),
        plan=plan,
        journal=journal,
        capture=Capture("boot", lambda ids: "", random_source()),
        limits=limits,
        reference_interval=reference_interval,
        clock=machine,
    )
    return SmallEngine(target=target, core=core, drafters=made, plan=plan, journal=journal)


def random_source() -> random.Random:
    return random.Random(0)


def request(
    name: str,
    prompt_ids: Sequence[int],
    *,
    setting: Setting | None = None,
    route: str = "chat",
    is_shadow: bool = False,
    **sampling: object,
) -> EngineRequest:
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 32, **sampling})  # type: ignore[arg-type]
    return EngineRequest(
        request_id=name,
        prompt_ids=tuple(prompt_ids),
        sampling=params,
        route=route,
        is_shadow=is_shadow,
        setting=setting,
    )


def prompts(num: int, vocab_size: int, seed: int = 0, longest: int = 50) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab_size, size=rng.integers(1, longest)).tolist() for _ in range(num)]


def tokens_of(deltas: Sequence[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


@torch.inference_mode()
def plain_logits(decoder: LlamaDecoder, token_ids: Sequence[int]) -> Tensor:
    """Logits [n, V] of a sequence in one fresh pass."""
    slots = decoder.new_slots(1, CONTEXT)
    batch = lay_out([Span(slot=0, start=0, token_ids=token_ids)], decoder.mask_kind)
    return decoder.logits(decoder.forward(batch, slots))


def greedy_reference(
    decoder: LlamaDecoder, prompt_ids: Sequence[int], num_tokens: int
) -> list[int]:
    """Greedy continuation computed anew for every token, no cache."""
    ids = list(prompt_ids)
    for _ in range(num_tokens):
        ids.append(int(plain_logits(decoder, ids)[-1].argmax()))
    return ids[len(prompt_ids) :]

"""Both decoders against transformers itself, on tiny random models of several architectures."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
)

from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.errors import StartupError
from tuner.engine.model.decoder import features_for
from tuner.engine.model.hf_decoder import HfDecoder
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.slots import FINAL
from tuner.engine.model.weights import LoadedModel, load_model

VOCAB, CONTEXT = 320, 128
_SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_LLAMA = {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.3}

CONFIGS: dict[str, tuple[PreTrainedConfig, type]] = {
    "llama_tied": (LlamaConfig(**_LLAMA, tie_word_embeddings=True), LlamaDecoder),
    "llama_untied": (LlamaConfig(**_LLAMA, tie_word_embeddings=False), LlamaDecoder),
    "qwen2_with_biases": (Qwen2Config(**_LLAMA), LlamaDecoder),
    "mistral_with_a_window_of_8": (MistralConfig(**_LLAMA, sliding_window=8), LlamaDecoder),
    "qwen2_whose_window_no_layer_has": (
        Qwen2Config(**_LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=2),
        LlamaDecoder,
    ),
    "qwen3_with_a_window_in_one_layer": (
        Qwen3Config(
            **_LLAMA,
            head_dim=8,
            use_sliding_window=True,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
        HfDecoder,
    ),
    "gemma2_with_a_window_in_every_other_layer": (
        Gemma2Config(**_LLAMA, head_dim=8, sliding_window=8),
        HfDecoder,
    ),
    "gemma3_with_a_window_and_other_positions_in_one_layer": (
        Gemma3TextConfig(
            **_LLAMA,
            head_dim=8,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
        HfDecoder,
    ),
    "gpt2": (
        GPT2Config(
            vocab_size=VOCAB,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=CONTEXT,
            initializer_range=0.3,
        ),
        HfDecoder,
    ),
    "llama_with_scaled_positions": (
        LlamaConfig(
            **_LLAMA,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        ),
        HfDecoder,
    ),
}


def saved(config: PreTrainedConfig, directory: Path) -> Path:
    write_tiny_model(directory)
    torch.manual_seed(5)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    config, kind = CONFIGS[request.param]
    path = saved(config, tmp_path_factory.mktemp("model"))
    loaded = load_model(path, dtype=torch.float32, device=torch.device("cpu"))
    assert type(loaded.decoder) is kind
    return loaded, AutoModelForCausalLM.from_pretrained(path).eval()


def logits_of(loaded: LoadedModel, steps: list[list[Span]]) -> list[torch.Tensor]:
    slots = loaded.decoder.new_slots(4, CONTEXT)
    with torch.inference_mode():
        return [
            loaded.decoder.logits(
                loaded.decoder.forward(lay_out(spans, loaded.decoder.mask_kind), slots)
            )
            for spans in steps
        ]


def tokens(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (length,), generator=generator).tolist()


def reference(hf, ids: list[int]) -> torch.Tensor:  # type: ignore[no-untyped-def]
    with torch.inference_mode():
        return hf(torch.tensor([ids])).logits[0]


def test_a_long_prompt_in_one_pass_has_transformers_logits(model) -> None:  # type: ignore[no-untyped-def]
    loaded, hf = model
    ids = tokens(60)
    (logits,) = logits_of(loaded, [[Span(slot=2, start=0, token_ids=ids)]])
    torch.testing.assert_close(logits, reference(hf, ids), atol=2e-3, rtol=1e-3)


def test_chunks_and_single_tokens_have_the_same_logits(model) -> None:  # type: ignore[no-untyped-def]
    loaded, hf = model
    ids = tokens(60, seed=1)
    cuts = [0, 40, 45, 46, 60]
    steps = [[Span(slot=0, start=a, token_ids=ids[a:b])] for a, b in itertools.pairwise(cuts)]
    logits = torch.cat(logits_of(loaded, steps))
    torch.testing.assert_close(logits, reference(hf, ids), atol=2e-3, rtol=1e-3)


def test_rows_of_unequal_length_and_a_prefill_share_a_pass(model) -> None:  # type: ignore[no-untyped-def]
    loaded, hf = model
    rows = [tokens(30, seed=2), tokens(12, seed=3), tokens(50, seed=4)]
    first = [
        Span(slot=0, start=0, token_ids=rows[0][:26]),
        Span(slot=1, start=0, token_ids=rows[1][:11]),
    ]
    second = [
        Span(slot=0, start=26, token_ids=rows[0][26:]),
        Span(slot=1, start=11, token_ids=rows[1][11:]),
        Span(slot=3, start=0, token_ids=rows[2]),
    ]
    logits = logits_of(loaded, [first, second])[1]
    wanted = torch.cat(
        [reference(hf, rows[0])[26:], reference(hf, rows[1])[11:], reference(hf, rows[2])]
    )
    torch.testing.assert_close(logits, wanted, atol=2e-3, rtol=1e-3)


def test_a_rejected_tail_is_overwritten_by_the_next_span(model) -> None:  # type: ignore[no-untyped-def]
    loaded, hf = model
    ids, wrong = tokens(20, seed=6), tokens(5, seed=7)
    steps = [
        [Span(slot=0, start=0, token_ids=ids[:15])],
        [Span(slot=0, start=15, token_ids=wrong)],
        [Span(slot=0, start=15, token_ids=ids[15:])],
    ]
    logits = logits_of(loaded, steps)[2]
    torch.testing.assert_close(logits, reference(hf, ids)[15:], atol=2e-3, rtol=1e-3)


TREE = [-1, 0, 0, 1, 1, 2, 3, 3]
"""A span of eight tokens: parents of each, the first being the last committed one."""


def paths(parents: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for token, parent in enumerate(parents):
        found.append([*found[parent], token] if parent >= 0 else [token])
    return found


@pytest.mark.parametrize("num_before", [3, 40])
def test_a_token_of_a_tree_sees_its_ancestors_alone(model, num_before: int) -> None:  # type: ignore[no-untyped-def]
    loaded, hf = model
    before, nodes, mate = tokens(num_before, seed=8), tokens(len(TREE), seed=9), tokens(9, seed=10)
    steps = [
        [
            Span(slot=1, start=0, token_ids=before),
            Span(slot=2, start=0, token_ids=mate[:4]),
        ],
        [
            Span(slot=1, start=num_before, token_ids=nodes, parents=TREE),
            Span(slot=2, start=4, token_ids=mate[4:]),
        ],
    ]
    logits = logits_of(loaded, steps)[1]
    for number, path in enumerate(paths(TREE)):
        alone = reference(hf, before + [nodes[node] for node in path])[-1]
        torch.testing.assert_close(logits[number], alone, atol=2e-3, rtol=1e-3)
    torch.testing.assert_close(logits[len(TREE) :], reference(hf, mate)[4:], atol=2e-3, rtol=1e-3)


def test_a_path_brought_together_goes_on_like_a_chain(model) -> None:  # type: ignore[no-untyped-def]
    loaded, hf = model
    before, nodes, after = tokens(21, seed=11), tokens(len(TREE), seed=12), tokens(3, seed=13)
    path = [0, 1, 3, 7]
    decoder = loaded.decoder
    slots = decoder.new_slots(4, CONTEXT)
    features = features_for(decoder.shape, (1, FINAL), 4, CONTEXT, decoder.mask_kind)

    def run(span: Span) -> torch.Tensor:
        batch = lay_out([span], decoder.mask_kind)
        return decoder.logits(decoder.forward(batch, slots, features))

    with torch.inference_mode():
        run(Span(slot=3, start=0, token_ids=before))
        run(Span(slot=3, start=21, token_ids=nodes, parents=TREE))
        slots.gather(3, 22, [21 + node for node in path[1:]])
        features.gather(3, 22, [21 + node for node in path[1:]])
        logits = run(Span(slot=3, start=25, token_ids=after))

    ids = before + [nodes[node] for node in path] + after
    torch.testing.assert_close(logits, reference(hf, ids)[25:], atol=2e-3, rtol=1e-3)
    states = hf(torch.tensor([ids]), output_hidden_states=True).hidden_states
    wanted = torch.stack([states[1][0], states[-1][0]], dim=1)
    kept = features.read(3, 0, len(ids), (1, FINAL))
    torch.testing.assert_close(kept, wanted, atol=2e-3, rtol=1e-3)


def test_hidden_states_move_with_their_slot(model) -> None:  # type: ignore[no-untyped-def]
    loaded, _ = model
    decoder = loaded.decoder
    features = features_for(decoder.shape, (0, 1), 4, CONTEXT, decoder.mask_kind)
    with torch.inference_mode():
        batch = lay_out([Span(slot=2, start=0, token_ids=tokens(7))], decoder.mask_kind)
        decoder.forward(batch, decoder.new_slots(4, CONTEXT), features)
        before = features.read(2, 0, 7, (1,)).clone()
        features.move(2, 0, 7)
    assert before.abs().sum() > 0
    assert torch.equal(features.read(0, 0, 7, (1,)), before)


def test_packed_and_plain_products_agree(tmp_path: Path) -> None:
    from tuner.engine.model.linear import PackedLinear, PlainLinear

    generator = torch.Generator().manual_seed(0)
    weight, hidden = (torch.randn(*s, generator=generator) for s in ((96, 64), (7, 64)))
    bias, residual = torch.randn(96, generator=generator), torch.randn(7, 96, generator=generator)
    packed, plain = PackedLinear(weight, bias), PlainLinear(weight, bias)
    torch.testing.assert_close(packed(hidden), plain(hidden), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        packed.plus(hidden, residual), plain.plus(hidden, residual), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize(
    "config",
    [
        MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=8),
        Qwen3NextConfig(**_LLAMA, layer_types=["linear_attention", "full_attention"]),
    ],
    ids=["recurrent", "linear_attention_in_some_layers"],
)
def test_a_model_that_cannot_roll_back_is_refused_in_one_line(
    config: PreTrainedConfig, tmp_path: Path
) -> None:
    path = saved(config, tmp_path / "model")
    with pytest.raises(StartupError, match=r"cannot run over KV slots") as refusal:
        load_model(path, dtype=torch.float32, device=torch.device("cpu"))
    assert "\n" not in str(refusal.value)

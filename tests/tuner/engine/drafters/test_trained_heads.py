"""Checkpoints in public layouts, written anew with random weights and loaded by path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from collectors.records import Method, Setting
from tests.tuner.engine import tiny_heads
from tests.tuner.engine.harness import random_weights
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.drafters.base import Draft, DraftAsk, Drafter, TargetView
from tuner.engine.drafters.eagle import EagleDrafter
from tuner.engine.drafters.medusa import MedusaDrafter
from tuner.engine.drafters.mlp_speculator import MlpSpeculatorDrafter
from tuner.engine.drafters.mtp import MtpDrafter
from tuner.engine.drafters.trained_heads import HEAD_LOADERS
from tuner.engine.errors import StartupError
from tuner.engine.limits import EngineLimits
from tuner.engine.model.decoder import features_for
from tuner.engine.model.heads.base import RecurrentHead
from tuner.engine.model.heads.eagle import FeatureEagle, FusedEagle
from tuner.engine.model.heads.mtp import MtpModules
from tuner.engine.model.hf_decoder import HfDecoder
from tuner.engine.model.layers import LlamaShape
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.passes import Span, lay_out
from tuner.engine.model.slots import FINAL
from tuner.engine.model.weights import LoadedModel, load_head_draft, load_model
from tuner.engine.request import SamplingParams
from tuner.engine.settings import EngineSettings
from tuner.engine.verification.drawing import new_generator

Weights = dict[str, Tensor]
SETTINGS = EngineSettings(
    draft_dtype="float32", limits=EngineLimits(max_rows=2, max_context_tokens=32)
)
PROMPT = [7, 1, 30, 12, 5, 200, 9]
TAPS = (0, 1, 1)
_ID = {"drafter_id": "", "drafter_hash": ""}
_SLOTS = {"num_slots": 2, "max_context_tokens": 32}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = write_tiny_model(tmp_path_factory.mktemp("target"))
    return load_model(path, dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def decoder_of(target: LoadedModel) -> LlamaDecoder:
    assert isinstance(target.decoder, LlamaDecoder)
    return target.decoder


def layer_of(target: LoadedModel) -> LlamaShape:
    return tiny_heads.one_layer(decoder_of(target).shape)


def written(
    directory: Path, weights: Weights, config: Mapping[str, object] | None, name: str
) -> Path:
    directory.mkdir(exist_ok=True)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config))
    whole = {key: value.clone().contiguous() for key, value in weights.items()}
    if name.endswith(".safetensors"):
        save_file(whole, directory / name)
    else:
        torch.save(whole, directory / name)
    return directory


def config_of(shape: LlamaShape, **more: object) -> dict[str, object]:
    return {
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "eagle_aux_hidden_state_layer_ids": list(TAPS),
        **more,
    }


def draft_of(drafter: Drafter, target: LoadedModel, k: int = 3) -> Draft:
    """A greedy chain behind the prompt."""
    decoder = target.decoder
    features = features_for(decoder.shape, (0, 1, FINAL), 2, 32, decoder.mask_kind)
    slots = decoder.new_slots(2, 32)
    span = Span(slot=1, start=0, token_ids=PROMPT[:-1])
    decoder.forward(lay_out([span], decoder.mask_kind), slots, features)
    drafter.attach(TargetView(decoder=decoder, slots=slots, features=features))
    ask = DraftAsk(
        slot=1,
        token_ids=PROMPT,
        k=k,
        num_nodes=k,
        route="",
        setting=Setting(method=drafter.method, k=k),
        sampling=SamplingParams(temperature=0.0),
        generator=new_generator(0),
    )
    return drafter.propose([ask])[0]


def loaded(method: Method, path: Path, target: LoadedModel) -> Drafter:
    drafter = HEAD_LOADERS[method](path, SETTINGS, target)
    assert drafter.method is method
    assert len(drafter.drafter_hash) == 64
    return drafter


def fused(target: LoadedModel, weights: Weights, vocab: Tensor | None, **more: bool) -> Drafter:
    shape, parts = layer_of(target), tiny_heads.head_target(decoder_of(target))
    head: RecurrentHead = FusedEagle(shape, weights, parts, taps=TAPS, vocab=vocab, **more)
    return EagleDrafter(head, **_SLOTS, **_ID)


def feature(target: LoadedModel, weights: Weights) -> Drafter:
    parts = tiny_heads.head_target(decoder_of(target))
    return EagleDrafter(FeatureEagle(layer_of(target), weights, parts), **_SLOTS, **_ID)


def modules(target: LoadedModel, weights: Weights, **more: bool) -> Drafter:
    parts = tiny_heads.head_target(decoder_of(target))
    head = MtpModules(layer_of(target), [weights], parts, vocab=None, **more)
    return MtpDrafter(head, **_SLOTS, **_ID)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_eagle_1_in_its_authors_layout(target: LoadedModel, tmp_path: Path, name: str) -> None:
    shape = layer_of(target)
    weights = tiny_heads.eagle_1_weights(shape)
    copied = {"embed_tokens.weight": torch.zeros(shape.vocab_size, shape.hidden_size)}
    path = written(tmp_path / "head", weights | copied, config_of(shape), name)
    drafter = loaded(Method.EAGLE, path, target)
    assert draft_of(drafter, target) == draft_of(feature(target, weights), target)
    assert drafter.drafter_id == "head"


def test_eagle_1_as_vllms_speculators_with_norms(target: LoadedModel, tmp_path: Path) -> None:
    shape, dice = layer_of(target), tiny_heads.Dice(8)
    weights = tiny_heads.eagle_1_weights(shape) | {
        name: dice.norm(shape.hidden_size)
        for name in ("embed_norm.weight", "layers.0.input_layernorm.weight", "norm.weight")
    }
    renamed = {
        "fc.weight": "fusion_fc.weight",
        "fc.bias": "fusion_fc.bias",
        "embed_norm.weight": "embedding_layernorm.weight",
        "norm.weight": "pre_lm_head_layernorm.weight",
    }
    stored = {
        renamed.get(name, name.replace("layers.0.", "transformer.")): value
        for name, value in weights.items()
    }
    config = {
        "speculators_config": {"algorithm": "eagle"},
        "transformer_layer_config": config_of(shape),
    }
    path = written(tmp_path / "head", stored, config, "model.safetensors")
    drafter = loaded(Method.EAGLE, path, target)
    assert draft_of(drafter, target) == draft_of(feature(target, weights), target)


def reduced_vocab(target: LoadedModel) -> Tensor:
    return torch.arange(3, decoder_of(target).shape.vocab_size, 2)


def maps(target: LoadedModel, vocab: Tensor) -> Weights:
    known = torch.zeros(decoder_of(target).shape.vocab_size, dtype=torch.bool)
    known[vocab] = True
    return {"d2t": vocab - torch.arange(len(vocab)), "t2d": known}


def test_eagle_3_in_its_authors_layout(target: LoadedModel, tmp_path: Path) -> None:
    shape, vocab = layer_of(target), reduced_vocab(target)
    weights = tiny_heads.eagle_3_weights(shape, len(vocab))
    stored = weights | maps(target, vocab)
    path = written(tmp_path / "head", stored, config_of(shape), "model.safetensors")
    drafter = loaded(Method.EAGLE, path, target)
    assert draft_of(drafter, target) == draft_of(fused(target, weights, vocab), target)
    assert drafter.draft_vocab is not None
    assert drafter.draft_vocab.tolist() == vocab.tolist()


def test_eagle_3_as_vllms_speculators(target: LoadedModel, tmp_path: Path) -> None:
    shape = layer_of(target)
    weights = tiny_heads.eagle_3_weights(shape, shape.vocab_size)
    stored = {name.replace("midlayer.", "layers.0."): value for name, value in weights.items()}
    config = {
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "transformer_layer_config": config_of(shape),
        "eagle_aux_hidden_state_layer_ids": list(TAPS),
        "norm_before_residual": True,
    }
    path = written(tmp_path / "head", stored, config, "model.safetensors")
    drafter = loaded(Method.EAGLE, path, target)
    wanted = draft_of(fused(target, weights, None, adds_to_normed=True), target)
    assert draft_of(drafter, target) == wanted
    assert wanted != draft_of(fused(target, weights, None), target)


@pytest.mark.parametrize("name", ["medusa_lm_head.safetensors", "medusa_lm_head.pt"])
def test_medusa_heads_in_their_authors_layout(
    target: LoadedModel, tmp_path: Path, name: str
) -> None:
    decoder = decoder_of(target)
    weights = tiny_heads.medusa_weights(decoder.shape, 4, decoder.shape.vocab_size)
    path = written(tmp_path / "heads", weights, {"medusa_num_heads": 4}, name)
    drafter = loaded(Method.MEDUSA, path, target)
    wanted = MedusaDrafter(tiny_heads.medusa_heads(decoder, 4), **_ID)
    assert draft_of(drafter, target, k=4) == draft_of(wanted, target, k=4)
    assert drafter.max_k == 4


def deepseek(shape: LlamaShape, weights: Weights) -> Weights:
    whole = {f"model.layers.2.{name}": value for name, value in weights.items()}
    unread = {"model.layers.1.mlp.up_proj.weight": torch.zeros(2), "lm_head.weight": torch.zeros(2)}
    return whole | {"model.layers.2.embed_tokens.weight": torch.zeros(2)} | unread


_OTHER_NAMES = {
    "enorm.weight": "token_layernorm.weight",
    "hnorm.weight": "hidden_layernorm.weight",
    "eh_proj.weight": "input_proj.weight",
    "shared_head.norm.weight": "final_layernorm.weight",
}


def other_names(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}{_OTHER_NAMES.get(name, name)}": value for name, value in weights.items()}


@pytest.mark.parametrize(
    ("stored", "variant"),
    [
        (deepseek, {}),
        (
            lambda shape, weights: other_names("model.mtp_layers.0.", weights),
            {"joins_hidden_first": True, "feeds_normed": True},
        ),
        (
            lambda shape, weights: other_names("mtp_layers.0.", weights),
            {"feeds_normed": True},
        ),
    ],
    ids=["deepseek", "mimo", "speculators"],
)
def test_an_mtp_module_in_three_layouts(
    target: LoadedModel,
    tmp_path: Path,
    stored: Callable[[LlamaShape, Weights], Weights],
    variant: dict[str, bool],
) -> None:
    shape = layer_of(target)
    weights = tiny_heads.mtp_weights(shape)
    path = written(tmp_path / "mtp", stored(shape, weights), config_of(shape), "model.safetensors")
    drafter = loaded(Method.MTP, path, target)
    assert draft_of(drafter, target) == draft_of(modules(target, weights, **variant), target)


def test_mtp_modules_are_found_among_the_shards_of_a_whole_model(
    target: LoadedModel, tmp_path: Path
) -> None:
    shape = layer_of(target)
    weights = tiny_heads.mtp_weights(shape)
    stored = deepseek(shape, weights)
    names = sorted(stored)
    files = {name: f"model-0000{1 + number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        shard = {name: stored[name] for name in names if files[name] == file}
        written(tmp_path, shard, config_of(shape), file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    drafter = loaded(Method.MTP, tmp_path, target)
    assert draft_of(drafter, target) == draft_of(modules(target, weights), target)


@pytest.mark.parametrize("is_tied", [False, True])
def test_an_mlp_speculator_in_its_authors_layout(
    target: LoadedModel, tmp_path: Path, is_tied: bool
) -> None:
    decoder = decoder_of(target)
    weights = tiny_heads.speculator_weights(decoder.shape, 3, 20, decoder.shape.vocab_size)
    config = {"n_predict": 3, "scale_input": True, "tie_weights": is_tied}
    kept = {
        name: value
        for name, value in weights.items()
        if not is_tied or ".0." in name or name == "speculator.proj.1.weight"
    }
    path = written(tmp_path / "mlp", kept, config, "model.safetensors")
    drafter = loaded(Method.MLP_SPECULATOR, path, target)
    assert drafter.max_k == 3
    if not is_tied:
        wanted = MlpSpeculatorDrafter(tiny_heads.mlp_speculator(decoder, 3), **_ID)
        assert draft_of(drafter, target) == draft_of(wanted, target)
    else:
        copied = dict(weights)
        for name in weights:
            part, number = name.split(".")[1:3]
            source = min(int(number), 1 if part == "proj" else 0)
            copied[name] = weights[name.replace(f".{number}.", f".{source}.")]
        untied = written(
            tmp_path / "untied", copied, config | {"tie_weights": False}, "model.safetensors"
        )
        wanted_drafter = loaded(Method.MLP_SPECULATOR, untied, target)
        assert draft_of(drafter, target) == draft_of(wanted_drafter, target)


def test_a_public_parallel_draft_model_names_its_mask(target: LoadedModel, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "draft", seed=3)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"pard_token": 6}))
    drafter = loaded(Method.PARD, path, target)
    model = load_model(path, dtype=torch.float32, device=torch.device("cpu")).decoder
    span = Span(slot=0, start=0, token_ids=[*PROMPT, 6, 6])
    states = model.forward(lay_out([span], model.mask_kind), model.new_slots(1, 32))
    wanted = model.logits(states)[-3:].argmax(-1)
    assert draft_of(drafter, target).token_ids == tuple(wanted.tolist())


@pytest.mark.parametrize("mask", [-1, 10_000, True, "7"])
def test_a_mask_that_is_no_token_is_refused(
    target: LoadedModel, tmp_path: Path, mask: object
) -> None:
    path = write_tiny_model(tmp_path / "draft", seed=3)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"pard_token": mask}))
    with pytest.raises(StartupError, match=r"pard_token"):
        loaded(Method.PARD, path, target)


def through_transformers(target: LoadedModel, path: Path) -> LoadedModel:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return replace(target, decoder=HfDecoder(model, None))


def test_a_head_drafts_the_same_beside_a_target_that_transformers_runs(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "target")
    target = load_model(path, dtype=torch.float32, device=torch.device("cpu"))
    slow = through_transformers(target, path)
    weights = tiny_heads.eagle_1_weights(layer_of(target))
    head = written(tmp_path / "head", weights, config_of(layer_of(target)), "model.safetensors")
    wanted = draft_of(loaded(Method.EAGLE, head, target), target)
    assert draft_of(loaded(Method.EAGLE, head, slow), slow) == wanted
    (head / "config.json").unlink()
    with pytest.raises(StartupError, match=r"needs a config.json with rope_theta and rms_norm_eps"):
        loaded(Method.EAGLE, head, slow)


def our_eagle(target: LoadedModel, directory: Path, target_hash: str) -> Path:
    vocab = reduced_vocab(target)
    weights = tiny_heads.eagle_3_weights(layer_of(target), len(vocab))
    del weights["lm_head.weight"]
    config = {"eagle_aux_hidden_state_layer_ids": list(TAPS)}
    written(directory, weights | maps(target, vocab), config, "model.safetensors")
    manifest = {"name": "ours", "target_hash": target_hash}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def test_a_head_of_ours_scores_by_the_targets_rows(target: LoadedModel, tmp_path: Path) -> None:
    path = our_eagle(target, tmp_path / "head", target.weights_hash)
    vocab = reduced_vocab(target)
    weights = tiny_heads.eagle_3_weights(layer_of(target), len(vocab))
    weights["lm_head.weight"] = decoder_of(target).output_rows[vocab]
    drafter = loaded(Method.EAGLE, path, target)
    assert draft_of(drafter, target) == draft_of(fused(target, weights, vocab), target)
    assert drafter.drafter_id == "ours"


def test_a_head_of_ours_is_refused_for_another_target(target: LoadedModel, tmp_path: Path) -> None:
    path = our_eagle(target, tmp_path / "head", "feed")
    with pytest.raises(StartupError, match=r"was trained for target 'feed'.*give the head of this"):
        loaded(Method.EAGLE, path, target)


def without(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


BROKEN: dict[str, tuple[Callable[[Weights], Weights], dict[str, object], str]] = {
    "a missing key": (without("norm.weight"), {}, r"lacks 'norm.weight'"),
    "another width": (
        lambda weights: weights | {"fc.weight": torch.zeros(8, 24)},
        {},
        r"'fc.weight' of shape \[8, 24\] in place of \[64, 192\]",
    ),
    "a second layer": (
        lambda weights: weights | {"layers.1.mlp.up_proj.weight": torch.zeros(2)},
        {},
        r"'layers.1.mlp.up_proj.weight' and 0 more that this method does not know",
    ),
    "ids beyond the vocabulary": (
        lambda weights: weights | {"d2t": torch.full((9,), 10_000)},
        {},
        r"'d2t' that do not ascend within \d+ tokens",
    ),
    "no ids": (
        lambda weights: weights | {"d2t": torch.zeros(0, dtype=torch.int64)},
        {},
        r"'d2t' that do not ascend within \d+ tokens",
    ),
    "ids in a table": (
        lambda weights: weights | {"d2t": torch.arange(4).reshape(2, 2)},
        {},
        r"'d2t' that do not ascend within \d+ tokens",
    ),
    "a number in place of a vector": (
        lambda weights: weights | {"norm.weight": torch.ones(())},
        {},
        r"'norm.weight' of shape \[\] in place of \[64\]",
    ),
    "no attention heads": (
        lambda weights: weights,
        {"num_attention_heads": 0},
        r"num_attention_heads 0 in its config.json",
    ),
    "a word in place of a number": (
        lambda weights: weights,
        {"rope_theta": "fast"},
        r"rope_theta 'fast' in its config.json",
    ),
    "another method": (lambda weights: weights, {"speculators_model_type": "mtp"}, r"'mtp' head"),
    "scaled positions": (
        lambda weights: weights,
        {"rope_scaling": {"type": "yarn"}},
        r"scales positions by 'yarn'",
    ),
    "layers the target has not": (
        lambda weights: weights,
        {"eagle_aux_hidden_state_layer_ids": [0, 1, 9]},
        r"layers \[0, 1, 9\], but the target has 2",
    ),
    "layers by name": (
        lambda weights: weights,
        {"eagle_aux_hidden_state_layer_ids": ["low", "mid", "high"]},
        r"layers \['low', 'mid', 'high'\], but the target has 2",
    ),
}


def test_a_head_of_ours_that_names_no_target_is_refused(
    target: LoadedModel, tmp_path: Path
) -> None:
    path = our_eagle(target, tmp_path / "head", target.weights_hash)
    (path / "manifest.json").write_text('{"name": "ours"}')
    with pytest.raises(StartupError, match=r"was trained for target None"):
        loaded(Method.EAGLE, path, target)


@pytest.mark.parametrize("vocab", [[-3, 4, 9], [4, 4, 9], [9, 4, 2], [2, 4, 10_000], []])
def test_a_draft_model_of_ours_with_broken_ids_is_refused(
    target: LoadedModel, tmp_path: Path, vocab: list[int]
) -> None:
    weights = random_weights(layer_of(target), 1, 0.1)
    kept = {name: each for name, each in weights.items() if name.startswith(("layers.", "norm."))}
    ids = torch.tensor(vocab, dtype=torch.int32)
    path = written(tmp_path / "draft", kept | {"draft_vocab": ids}, {}, "model.safetensors")
    (path / "manifest.json").write_text(json.dumps({"target_hash": target.weights_hash}))
    with pytest.raises(StartupError, match=r"draft_vocab does not ascend within \d+ tokens"):
        load_head_draft(path, target, torch.float32)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_head_is_refused_in_one_line(
    target: LoadedModel, tmp_path: Path, fault: str
) -> None:
    change, more, message = BROKEN[fault]
    shape = layer_of(target)
    weights = change(tiny_heads.eagle_3_weights(shape, shape.vocab_size))
    path = written(tmp_path / "head", weights, config_of(shape) | more, "model.safetensors")
    with pytest.raises(StartupError, match=message) as refusal:
        loaded(Method.EAGLE, path, target)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_latent_attention_and_experts_are_refused_by_name(
    target: LoadedModel, tmp_path: Path
) -> None:
    shape = layer_of(target)
    stored = deepseek(shape, tiny_heads.mtp_weights(shape))
    stored["model.layers.2.mlp.experts.0.up_proj.weight"] = torch.zeros(2)
    path = written(tmp_path / "mtp", stored, config_of(shape), "model.safetensors")
    with pytest.raises(StartupError, match=r"module with 'mlp.experts'; only dense layers"):
        loaded(Method.MTP, path, target)


@pytest.mark.parametrize("method", [method for method in HEAD_LOADERS if method is not Method.PARD])
def test_a_directory_without_weights_and_a_damaged_file_are_refused(
    method: Method, target: LoadedModel, tmp_path: Path
) -> None:
    with pytest.raises(StartupError, match=r"has no weights; give one of: model.safetensors"):
        loaded(method, tmp_path, target)
    for content in (b"no tensors", b"", b"junkjunkjunk"):
        (tmp_path / "pytorch_model.bin").write_bytes(content)
        with pytest.raises(StartupError, match=r"pytorch_model.bin cannot be read"):
            loaded(method, tmp_path, target)

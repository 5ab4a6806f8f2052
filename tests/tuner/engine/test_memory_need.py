from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from collectors.records import Method
from tests.tuner.engine import tiny_heads
from tests.tuner.engine.server.tiny_model import write_tiny_model
from tuner.engine.available import available_bytes
from tuner.engine.errors import ModelCorrupt, StartupError
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import LoadedEngine, load_engine, load_target
from tuner.engine.memory_need import MemoryNeed, in_mebibytes, memory_need
from tuner.engine.model.bundled_model import cached_bundled_model
from tuner.engine.model.llama import LlamaDecoder
from tuner.engine.model.slots import FeatureSlots, KvSlots
from tuner.engine.settings import EngineSettings

ROWS, CONTEXT = 3, 768
_PEAK = """
from collectors.records import Method, Setting
from tuner.bench.resident import PeakMemory
from tuner.engine.limits import EngineLimits
from tuner.engine.loading import load_engine
from tuner.engine.request import EngineRequest, SamplingParams
from tuner.engine.settings import EngineSettings
limits = EngineLimits(max_rows=8, max_context_tokens=512)
engine = load_engine(EngineSettings(limits=limits, threads=1))
sampling = SamplingParams(temperature=0.0, max_tokens=60)
prompt = tuple(range(1, 446))
setting = Setting(method=Method.LOOKAHEAD, k=16)
for row in range(8):
    engine.core.submit(
        EngineRequest(
            request_id=str(row),
            prompt_ids=prompt,
            sampling=sampling,
            route="chat",
            setting=setting,
        )
    )
for _ in range(17):
    engine.core.step()
print(PeakMemory().read_mb())
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> EngineSettings:
    """A tiny target, itself as draft model, an MTP module and Medusa heads."""
    folder = tmp_path_factory.mktemp("models")
    model = write_tiny_model(folder / "target")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    settings = EngineSettings(
        model=str(model),
        draft=str(model),
        draft_dtype="float32",
        limits=EngineLimits(max_rows=ROWS, max_context_tokens=CONTEXT),
        threads=1,
    )
    decoder = load_target(settings).decoder
    assert isinstance(decoder, LlamaDecoder)
    shape = tiny_heads.one_layer(decoder.shape)
    heads = {
        Method.MTP: tiny_heads.mtp_weights(shape, f"model.layers.{decoder.shape.num_layers}."),
        Method.MEDUSA: tiny_heads.medusa_weights(shape, 2, shape.vocab_size),
    }
    for method, weights in heads.items():
        (folder / method).mkdir()
        save_file(
            {name: value.contiguous() for name, value in weights.items()},
            folder / method / "model.safetensors",
        )
        (folder / method / "config.json").write_text("{}")
    return replace(settings, heads={method: str(folder / method) for method in heads})


@pytest.fixture(scope="module")
def engine(settings: EngineSettings) -> LoadedEngine:
    return load_engine(settings)


def serving(need: MemoryNeed) -> int:
    return replace(need, loading=0).total


def bytes_of(slots: KvSlots) -> int:
    return sum(layer.nbytes for layer in (*slots.keys, *slots.values))


def test_slots_are_counted_to_the_byte(settings: EngineSettings, engine: LoadedEngine) -> None:
    need = memory_need(settings)
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) is KvSlots]
    allocated = sum(bytes_of(slots) for slots in kept if slots.num_slots == ROWS)
    features = [each.values.nbytes for each in gc.get_objects() if type(each) is FeatureSlots]

    assert engine.capabilities.max_rows == ROWS
    assert set(need.draft_slots) == {Method.MTP, Method.DRAFT_MODEL, Method.SELF_SPARSE}
    assert need.kv_slots + sum(need.draft_slots.values()) == allocated
    assert [need.features] == features


def test_each_method_left_out_takes_its_memory_with_it(settings: EngineSettings) -> None:
    whole = memory_need(settings)
    less = memory_need(replace(settings, methods=(Method.PROMPT_LOOKUP, Method.MEDUSA)))

    assert less.draft_slots == {}
    assert set(less.draft_weights) == {Method.MEDUSA}
    assert memory_need(replace(settings, methods=(Method.SUFFIX,))).logits * 65 == whole.logits * 17
    assert less.features == whole.features
    assert memory_need(replace(settings, methods=(Method.SUFFIX,))).features == 0
    assert less.weights == whole.weights


def test_slots_grow_with_rows_and_context_and_halve_in_half_precision(
    settings: EngineSettings,
) -> None:
    need = memory_need(settings)
    limits = replace(settings.limits, max_rows=2 * ROWS)
    longer = replace(settings.limits, max_context_tokens=2 * CONTEXT)

    assert memory_need(replace(settings, limits=limits)).kv_slots == 2 * need.kv_slots
    assert memory_need(replace(settings, limits=longer)).kv_slots == 2 * need.kv_slots
    assert 2 * memory_need(replace(settings, dtype="bfloat16")).kv_slots == need.kv_slots


def test_an_engine_that_cannot_fit_does_not_start_and_says_what_helps(
    settings: EngineSettings,
) -> None:
    limits = EngineLimits(max_rows=100_000_000, max_context_tokens=CONTEXT)

    with pytest.raises(StartupError) as refused:
        load_engine(replace(settings, limits=limits))

    need = memory_need(replace(settings, limits=limits))
    told = refused.value.message
    assert f"needs about {in_mebibytes(need.total)} and " in told
    assert f"KV slots {in_mebibytes(need.kv_slots)}" in told
    assert "MiB are available" in told
    for option in ("--max-rows", "--max-context", "--methods"):
        assert option in told


@pytest.mark.parametrize("name", ["draft_vocab", "fc.weight", "layers.0.self_attn.k_proj.weight"])
@pytest.mark.parametrize("method", [Method.MEDUSA, Method.EAGLE])
def test_a_number_in_place_of_a_matrix_is_left_to_the_loader_to_refuse(
    settings: EngineSettings, tmp_path: Path, name: str, method: Method
) -> None:
    save_file({name: torch.ones(())}, tmp_path / "model.safetensors")

    need = memory_need(replace(settings, heads={method: str(tmp_path)}))
    assert need.draft_weights[method] > 0


def test_a_wider_sparse_window_is_counted(settings: EngineSettings) -> None:
    narrow = memory_need(replace(settings, sparse_window_tokens=100))
    wide = memory_need(replace(settings, sparse_window_tokens=200))

    entry = narrow.kv_slots // (ROWS * CONTEXT)
    assert wide.draft_slots[Method.SELF_SPARSE] - narrow.draft_slots[Method.SELF_SPARSE] == (
        ROWS * (100 + 25) * entry
    )


def test_a_head_given_by_its_file_is_counted_like_its_directory(settings: EngineSettings) -> None:
    files = {method: f"{path}/model.safetensors" for method, path in settings.heads.items()}

    assert memory_need(replace(settings, heads=files)) == memory_need(settings)


@pytest.mark.parametrize(
    "content",
    [
        b"no",
        b"\xff" * 64,
        (1 << 44).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (24).to_bytes(8, "little") + b'{"draft_vocab":{"a": 1}}',
    ],
    ids=["too short", "an endless header", "a huge header", "a list", "no shape"],
)
def test_a_damaged_checkpoint_is_named(
    settings: EngineSettings, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)

    with pytest.raises(ModelCorrupt, match="cannot be read"):
        memory_need(replace(settings, heads={Method.MEDUSA: str(tmp_path)}))


def test_the_container_counts_where_it_leaves_less_than_the_machine(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 4000 kB\n")
    assert available_bytes(meminfo=meminfo, cgroup=tmp_path) == 4000 * 1024

    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(meminfo=meminfo, cgroup=tmp_path) == 4000 * 1024

    (tmp_path / "memory.max").write_text("1000000\n")
    assert available_bytes(meminfo=meminfo, cgroup=tmp_path) == 200_000


def test_a_system_that_tells_nothing_is_asked_nothing(tmp_path: Path) -> None:
    assert available_bytes(meminfo=tmp_path / "absent", cgroup=tmp_path) is None


@pytest.mark.slow
def test_the_bundled_engine_takes_what_was_counted() -> None:
    if cached_bundled_model() is None:
        pytest.skip("the bundled model is not prepared")
    limits = EngineLimits(max_rows=8, max_context_tokens=512)
    need = memory_need(EngineSettings(limits=limits))

    answer = subprocess.run(
        [sys.executable, "-c", _PEAK], capture_output=True, text=True, check=True
    )

    resident = float(answer.stdout) * (1 << 20)
    assert need.loading < resident - need.process
    # All of the weights' file is still mapped, though only its embedding is read any more.
    assert resident - need.loading == pytest.approx(serving(need), rel=0.1)

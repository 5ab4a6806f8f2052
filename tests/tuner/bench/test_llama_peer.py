from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from collectors.records import Method
from tuner.bench.llama_peer import LlamaServer, float32_copy, llama_cases

NAMES = ["<s>", "a", "b"]


@pytest.fixture
def quantised(tmp_path: Path) -> Path:
    """A file with a string, a list and a number beside a tensor in 8 bits and one in float32."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_array("tokenizer.ggml.tokens", NAMES)
    writer.add_uint32("llama.block_count", 2)
    weights = np.random.default_rng(0).normal(size=(4, 64)).astype("float32")
    quants = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output.weight", quants, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", np.ones(64, dtype="float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_float32_copy_has_the_same_weights_and_the_same_keys(
    quantised: Path, tmp_path: Path
) -> None:
    float32_copy(quantised, tmp_path / "copy.gguf")

    before, after = gguf.GGUFReader(quantised), gguf.GGUFReader(tmp_path / "copy.gguf")
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (new.name, new.tensor_type) == (old.name, gguf.GGMLQuantizationType.F32)
        expected = gguf.quants.dequantize(old.data, old.tensor_type)
        assert np.array_equal(new.data, expected)
    kept = {name: field.contents() for name, field in after.fields.items() if "GGUF." not in name}
    assert kept == {
        "general.architecture": "llama",
        "general.file_type": gguf.LlamaFileType.ALL_F32,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": NAMES,
        "llama.block_count": 2,
    }


def test_lookup_is_asked_of_both_with_the_same_lengths(quantised: Path, tmp_path: Path) -> None:
    server = LlamaServer(program="llama-server", threads=2, slots=8, context_tokens=1024)
    folder = tmp_path / "copies"
    folder.mkdir()

    plain, lookup, own = llama_cases(server, quantised, folder)

    copy = str(folder / "float32.gguf")
    assert [case.command.arguments[2] for case in (plain, lookup, own)] == [
        copy,
        copy,
        str(quantised),
    ]
    words = " ".join(lookup.command.arguments)
    assert "--ctx-size 8192" in words
    assert "--spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 5" in words
    setting = lookup.setting
    assert (setting.method, setting.k) == (Method.PROMPT_LOOKUP, 5)
    assert (setting.lookup_min, setting.lookup_max) == (3, 3)
    assert "--spec-type" not in plain.command.arguments

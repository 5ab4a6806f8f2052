import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.tuner.engine.model.tiny_gguf import HIDDEN, write_tiny_gguf
from tuner.engine.errors import ModelCorrupt, ModelNotFound, StartupError
from tuner.engine.model.bundled_model import (
    BUNDLED,
    bundled_gguf,
    default_cache_dir,
    prepare_bundled_model,
    resolve_model,
    verify_cached,
)

RESOLVE = """
import sys
from pathlib import Path
from tuner.engine.model.bundled_model import resolve_model
print(resolve_model(sys.argv[1], Path(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "Tiny.gguf")


def start_resolving(gguf: Path, cache: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RESOLVE, str(gguf), str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def test_a_gguf_becomes_a_directory_with_its_weights_tokenizer_and_manifest(
    gguf: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    place = resolve_model(str(gguf), tmp_path)

    with safe_open(place / "model.safetensors", framework="pt") as weights:
        assert weights.get_slice("model.embed_tokens.weight").get_shape()[1] == HIDDEN
        assert weights.get_slice("model.norm.weight").get_dtype() == "F32"
    assert "quantization" not in (place / "config.json").read_text()
    tokenizer = AutoTokenizer.from_pretrained(place)
    assert tokenizer.decode(tokenizer("a b c").input_ids) == "a b c"
    assert verify_cached(place)


def test_the_second_call_only_looks(gguf: Path, tmp_path: Path) -> None:
    place = resolve_model(str(gguf), tmp_path)
    written = (place / "model.safetensors").stat().st_mtime_ns

    assert resolve_model(str(gguf), tmp_path) == place
    assert (place / "model.safetensors").stat().st_mtime_ns == written


def test_a_cached_model_that_lost_a_file_is_made_anew(gguf: Path, tmp_path: Path) -> None:
    place = resolve_model(str(gguf), tmp_path)
    (place / "tokenizer.json").unlink()

    assert resolve_model(str(gguf), tmp_path) == place
    assert verify_cached(place)


def test_a_changed_byte_is_found_by_the_manifest(gguf: Path, tmp_path: Path) -> None:
    weights = resolve_model(str(gguf), tmp_path) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)

    assert not verify_cached(weights.parent)


def test_other_content_under_the_same_name_gets_its_own_directory(tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "model.gguf", seed=1)
    place = resolve_model(str(first), tmp_path)
    write_tiny_gguf(first, seed=2)

    assert resolve_model(str(first), tmp_path) != place


@pytest.mark.parametrize("keep", [3, 4, 200, 6000, -64])
def test_a_cut_gguf_is_one_line_that_names_it(gguf: Path, tmp_path: Path, keep: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf.read_bytes()[:keep])

    with pytest.raises(ModelCorrupt) as refused:
        resolve_model(str(cut), tmp_path)

    assert str(cut) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not list((tmp_path / "models").glob(".partial-*"))
    assert not list((tmp_path / "models").glob("cut-*"))


def test_a_file_that_is_no_gguf_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a model")

    with pytest.raises(ModelCorrupt, match=r"notes\.txt is not a GGUF file"):
        resolve_model(str(file), tmp_path)


def test_an_unknown_path_is_named_with_what_may_stand_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"nowhere.*does not exist.*'bundled'"):
        resolve_model(str(tmp_path / "nowhere"), tmp_path)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_directory_that_lacks_a_part_of_a_model_says_which(
    gguf: Path, tmp_path: Path, missing: str
) -> None:
    place = resolve_model(str(gguf), tmp_path)
    assert resolve_model(str(place)) == place
    (place / missing).unlink()

    with pytest.raises(ModelNotFound, match=missing.replace("model", r"(model|\*)")):
        resolve_model(str(place))


def test_a_cache_that_cannot_be_made_is_one_line(gguf: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    with pytest.raises(StartupError, match="SPECTUNER_CACHE_DIR"):
        resolve_model(str(gguf), blocked)


def test_the_cache_follows_its_variables() -> None:
    assert default_cache_dir({"SPECTUNER_CACHE_DIR": "/a"}) == Path("/a")
    assert default_cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/spectuner")
    assert default_cache_dir({}) == Path.home() / ".cache/spectuner"


@pytest.mark.slow
def test_two_processes_at_once_share_one_directory(gguf: Path, tmp_path: Path) -> None:
    both = [start_resolving(gguf, tmp_path) for _ in range(2)]

    answers = [process.communicate(timeout=120)[0].decode().strip() for process in both]

    assert answers[0] == answers[1] != ""
    assert verify_cached(Path(answers[0]))
    assert [path.name for path in (tmp_path / "models").iterdir() if path.is_dir()] == [
        Path(answers[0]).name
    ]


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.3])
def test_kill_9_in_the_middle_leaves_nothing_half(
    gguf: Path, tmp_path: Path, delay_s: float
) -> None:
    process = start_resolving(gguf, tmp_path)
    while process.poll() is None and not list(tmp_path.glob("models/.partial-*")):
        time.sleep(0.002)
    time.sleep(delay_s)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    whole = [path for path in (tmp_path / "models").iterdir() if not path.name.startswith(".")]
    assert all(verify_cached(path) for path in whole)
    place = resolve_model(str(gguf), tmp_path)
    assert verify_cached(place)
    assert not list((tmp_path / "models").glob(".partial-*"))


@pytest.mark.slow
def test_the_bundled_model_is_the_published_one() -> None:
    file, expected = bundled_gguf()
    place = prepare_bundled_model()

    assert hashlib.sha256(file.read_bytes()).hexdigest() == expected
    assert place == resolve_model(BUNDLED)
    assert verify_cached(place)

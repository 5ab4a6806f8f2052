import hashlib
import json
import socket
from pathlib import Path

import pytest

from tests.tuner.cli.running import ran
from tests.tuner.engine.model.tiny_gguf import write_tiny_gguf
from tests.tuner.engine.server.tiny_model import write_tiny_model


def test_the_prepared_model_says_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = write_tiny_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setenv("SPECTUNER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        "tuner.engine.model.bundled_model.bundled_gguf",
        lambda: (gguf, hashlib.sha256(gguf.read_bytes()).hexdigest()),
    )

    code, out, _ = ran("model", "--json", "-")

    assert code == 0
    assert (Path(json.loads(out)["path"]) / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/nowhere"], "'/nowhere' does not exist"),
        (["--host", "0.0.0.0"], "--api-key"),
        (["--route", "two words"], "'two words' is not a name"),
        (["--port", "70000"], "70000"),
        (["--dtype", "float8"], "float8"),
        (["--max-rows", "0"], "max-rows"),
        (["--methods", "suffix,guessing"], "method 'guessing' is not one of: draft_model"),
        (["--head", "eagle"], "head 'eagle': write METHOD=PATH"),
        (["--head", "eagel=/models/mine"], "method 'eagel' is not one of"),
        (["--draft-min-confidence", "1.5"], "draft-min-confidence"),
    ],
)
def test_an_engine_that_cannot_start_says_why_in_one_line(arguments: list[str], words: str) -> None:
    given = arguments if "--port" in arguments else [*arguments, "--port", "0"]

    code, out, err = ran("engine", *given)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "suffix, eagle"], "method 'eagle' has no weights for tiny"),
        (["--head", "medusa=/nowhere"], "medusa head '/nowhere' does not exist"),
        (["--draft", "{model}", "--draft-schedule", "bold"], "draft schedule 'bold'"),
        (["--suffix-store-tokens", "3"], "--suffix-store-tokens 0 for none"),
    ],
)
def test_what_the_drafters_are_told_reaches_them(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    model = str(write_tiny_model(tmp_path / "tiny"))
    limits = ["--max-context", "64", "--max-rows", "1", "--threads", "1"]
    told = [argument.format(model=model) for argument in arguments]

    code, _, err = ran("engine", "--model", model, "--port", "0", *limits, *told)

    assert code == 2
    assert words in err.splitlines()[-1]


@pytest.mark.parametrize("command", ["engine", "serve"])
def test_a_taken_port_is_named_before_anything_is_loaded(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECTUNER_DATA_DIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = ran(command, "--port", port)

    assert code == 2
    assert port in err.splitlines()[-1]
    assert "--port" in err.splitlines()[-1]

import subprocess
import sys

import pytest

from collectors.errors import InvalidRecord
from tests.tuner.cli.running import ran
from tuner.cli.errors import exit_code_of, one_line
from tuner.cli.main import limit_spinning
from tuner.engine.errors import ModelNotFound, PortTaken
from tuner.errors import BadRequest, EngineUnreachable, NotEvaluated, NotFound, StateChanged

COMMANDS = [
    "demo",
    "engine",
    "serve",
    "recommend",
    "explain",
    "drift",
    "evaluate-plan",
    "trial",
    "approve",
    "reject",
    "hold",
    "rollback",
    "replay",
    "divergence",
    "theory",
    "prove",
    "bench engine",
    "bench exactness",
    "train",
    "db upgrade",
    "db downgrade",
    "db current",
    "db token",
    "model",
    "doctor",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    code, out, err = ran(*command.split(), "--help")

    assert code == 0
    assert err == ""
    assert f"Usage: spectuner {command}" in out
    assert len(out.splitlines()) > 5


def test_the_overview_names_every_command() -> None:
    code, out, _ = ran("--help")

    assert code == 0
    assert all(command.split()[0] in out for command in COMMANDS)


def test_without_arguments_the_overview_is_shown() -> None:
    code, out, err = ran()

    assert code == 2
    assert "theory" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["thoery"], "thoery"),
        (["theory", "--alhpa", "1"], "--alhpa"),
        (["prove", "--samples", "three"], "--samples"),
        (["approve"], "number"),
        (["demo", "--port", "99999"], "65535"),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_help(arguments: list[str], words: str) -> None:
    code, out, err = ran(*arguments)

    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err
    assert "--help" in err


def test_what_the_user_can_mend_exits_2_and_what_he_cannot_exits_1() -> None:
    mendable = (BadRequest, NotEvaluated, NotFound, StateChanged, InvalidRecord)

    assert {exit_code_of(kind("x")) for kind in mendable} == {2}
    assert exit_code_of(ModelNotFound("x")) == exit_code_of(PortTaken("x")) == 2
    assert exit_code_of(EngineUnreachable("x")) == exit_code_of(RuntimeError("x")) == 1


def test_an_error_without_words_is_named_by_its_kind() -> None:
    assert one_line(KeyError()) == "KeyError"
    assert one_line(BadRequest("two\n  lines")) == "two lines"


def test_debug_shows_where_it_happened() -> None:
    command = [sys.executable, "-m", "tuner", "--debug", "theory", "--alpha", "7"]

    answer = subprocess.run(command, capture_output=True, text=True, check=False)

    assert answer.returncode == 1
    assert "Traceback" in answer.stderr


def test_a_reader_that_goes_away_is_no_crash() -> None:
    command = f"{sys.executable} -m tuner theory --json - 2>/dev/null | head -c 1"

    answer = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )

    assert answer.stdout == "{"
    assert "Traceback" not in answer.stderr


def test_serving_does_not_load_torch() -> None:
    code = (
        "import sys; import tuner.cli.commands, tuner.app; "
        "print([m for m in ('torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package() -> None:
    answer = ran("--version")

    assert answer[0] == 0
    assert answer[1].startswith("spectuner 0.")


@pytest.mark.parametrize(
    ("given", "spins"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": "5"}, "5"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ],
    ids=["nothing said", "a limit of their own", "a policy of their own"],
)
def test_waiting_threads_spin_briefly_where_the_user_says_nothing(
    given: dict[str, str], spins: str | None
) -> None:
    environ = dict(given)
    limit_spinning(environ)
    assert environ.get("GOMP_SPINCOUNT") == spins

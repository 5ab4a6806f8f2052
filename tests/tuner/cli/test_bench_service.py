import socket

import pytest

from tests.tuner.cli.running import ran


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--conditions", "loud"), "--conditions 'loud': use quiet, neighbour, both"),
        (("--levels", "1,64"), "--levels 64 must be 1 to 32"),
        (("--fixed", "wishful:3"), "wishful"),
        (("--rounds", "1"), "--rounds must be at least 2"),
    ],
)
def test_what_cannot_be_measured_is_one_line_with_the_value(
    given: tuple[str, str], told: str
) -> None:
    code, _, err = ran("bench", "service", *given)

    assert code == 2
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_taken_port_is_told_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = ran("bench", "service", "--port", port, "--model", "absent")

    assert code == 2
    assert out == ""
    assert f"port {port}" in err

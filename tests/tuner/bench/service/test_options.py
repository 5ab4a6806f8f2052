import pytest

from tuner.bench.service.options import ServiceBenchOptions
from tuner.errors import BadRequest


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"arms": ("off", "wishful")}, "--arms wishful"),
        ({"rounds": 1}, "--rounds must be at least 2"),
        ({"block_s": 2.0, "settle_s": 2.0}, "--settle-s 2"),
        ({"levels": (1, 33)}, "--levels 33 must be 1 to 32"),
        ({"levels": (1, 1)}, "names a level twice"),
        ({"levels": ()}, "--levels"),
        ({"learn_minutes": 0.0}, "minutes must be at least"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(given: dict[str, object], named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        ServiceBenchOptions(**given)  # type: ignore[arg-type]


def test_engine_and_service_start_as_in_an_unattended_demo() -> None:
    demo = ServiceBenchOptions(learn_minutes=2.0, port=9001, engine_port=9002).demo

    assert (demo.minutes, demo.exits, demo.keeps) == (2.0, True, False)
    assert (demo.port, demo.engine_port) == (9001, 9002)

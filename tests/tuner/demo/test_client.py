import asyncio
import time

import httpx
import pytest

from tests.tuner.demo.stream_server import stream_server
from tuner.demo.client import ClientTrace, ask
from tuner.demo.traffic import Prompt

PROMPT = Prompt(
    route="chat",
    messages=({"role": "user", "content": "Tell a story."},),
    sampling={"temperature": 0, "max_tokens": 48},
)


def asked(url: str, prompt: Prompt = PROMPT) -> ClientTrace:
    async def run() -> ClientTrace:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            return await ask(client, "smollm2", prompt)

    return asyncio.run(run())


def test_a_recorded_stream_gives_its_tokens_times_and_no_error() -> None:
    with stream_server() as served:
        served.delay_s = 0.01
        trace = asked(served.url)

    assert trace.error == ""
    assert trace.completion_tokens == 48
    assert trace.ttft_s is not None
    assert 0 < trace.ttft_s < trace.duration_s
    assert len(trace.gaps_s) == 12
    assert sum(trace.gaps_s) + trace.ttft_s <= trace.duration_s


def test_the_request_is_what_an_openai_client_sends_with_the_route_in_a_header() -> None:
    with stream_server() as served:
        asked(served.url)

    assert served.routes == ["chat"]
    assert served.bodies == [
        {
            "model": "smollm2",
            "messages": [{"role": "user", "content": "Tell a story."}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": 48,
        }
    ]


def test_429_is_waited_out_as_the_server_asks() -> None:
    with stream_server() as served:
        served.refusals = 2
        start = time.monotonic()
        trace = asked(served.url)

    assert trace.retries == 2
    assert trace.error == ""
    assert time.monotonic() - start >= 0.4
    assert trace.duration_s >= 0.4


def test_a_refusal_is_kept_in_the_servers_words() -> None:
    with stream_server() as served:
        served.status = 422
        trace = asked(served.url)

    assert trace.error == "422: no such route 'x'"
    assert trace.completion_tokens == 0
    assert trace.ttft_s is None


@pytest.mark.parametrize("keep_lines", [0, 1, 5])
def test_a_stream_that_breaks_off_counts_as_failed(keep_lines: int) -> None:
    with stream_server() as served:
        served.keep_lines = keep_lines
        trace = asked(served.url)

    assert "ended without a finish reason" in trace.error


def test_a_server_that_is_not_there_is_an_error_not_an_exception() -> None:
    trace = asked("http://127.0.0.1:9")

    assert "ConnectError" in trace.error

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tuner.engine.connections import ConnectionLimits
from tuner.engine.listening import bind
from tuner.engine.process import EngineServer

HALF_HEAD = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le"
HALF_BODY = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\nhalf"
WHOLE = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4\r\n\r\nbody"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await asyncio.sleep(0.3 if body == b"slow" else 0)
    await Response(body)(scope, receive, send)


@contextmanager
def serving(limits: ConnectionLimits) -> Iterator[tuple[str, int]]:
    server = EngineServer(app, drain_s=0, limits=limits)
    with bind("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield address
        finally:
            server.end()
            thread.join()


def everything_from(client: socket.socket) -> bytes:
    """Read until the other side ends the connection."""
    client.settimeout(240)
    received = b""
    while piece := client.recv(4096):
        received += piece
    return received


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY, WHOLE + HALF_HEAD, WHOLE + HALF_BODY])
def test_a_connection_whose_request_never_arrives_is_ended(sent: bytes):
    limits = ConnectionLimits(headers_s=0.2, body_s=0.2)
    with serving(limits) as address, socket.create_connection(address) as client:
        client.sendall(sent[:1])
        for first in range(1, len(sent), 20):
            client.sendall(sent[first : first + 20])
            time.sleep(0.01)
        received = everything_from(client)

    assert received.count(b"200 OK") == (1 if sent.startswith(WHOLE) else 0)


def test_what_drips_in_does_not_move_the_deadline():
    limits = ConnectionLimits(headers_s=0.2)
    with serving(limits) as address, socket.create_connection(address) as client:
        is_open, deadline = True, time.monotonic() + 240
        while is_open and time.monotonic() < deadline:
            is_open = drips(client)
            time.sleep(0.01)

    assert not is_open


def drips(client: socket.socket) -> bool:
    """Send one more byte; tell whether the connection still takes it."""
    try:
        return client.send(b"G") == 1
    except OSError:
        return False


def test_an_answer_may_take_longer_than_its_request():
    limits = ConnectionLimits(headers_s=0.1, body_s=0.1)
    with serving(limits) as (host, port), httpx.Client() as client:
        answers = [client.post(f"http://{host}:{port}", content=b"slow").text for _ in range(3)]

    assert answers == ["slow"] * 3


def test_beyond_the_limit_a_connection_is_refused_in_one_line_and_room_comes_back():
    with serving(ConnectionLimits(max_connections=2)) as (host, port):
        url = f"http://{host}:{port}"
        with socket.create_connection((host, port)) as one, httpx.Client() as other:
            one.sendall(HALF_HEAD)
            other.get(url).raise_for_status()
            refused = httpx.get(url)
        deadline = time.monotonic() + 240
        while (again := httpx.get(url)).status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.02)

    assert refused.status_code == 503
    assert refused.json()["error"]["message"] == (
        "2 connections are open, the most there may be; try again"
    )
    assert again.status_code == 200

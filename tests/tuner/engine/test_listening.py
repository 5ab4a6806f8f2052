from __future__ import annotations

import socket

import pytest

from tuner.engine.errors import PortTaken, StartupError, UnsafeHost
from tuner.engine.listening import bind, is_loopback, require_safe, url_of


def test_a_taken_port_is_named_with_the_way_out():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} on 127.0.0.1 is taken .* with --port"):
            bind("127.0.0.1", port)


def test_a_port_is_free_again_once_it_was_closed():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            first.setblocking(True)
            first.accept()[0].close()

    bind("127.0.0.1", port).close()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int):
    with pytest.raises(StartupError, match=f"port must be 0 to 65535, got {port}"):
        bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", ""])
def test_a_host_that_is_not_this_machine_is_refused(host: str):
    with pytest.raises(StartupError, match=f"cannot listen on host '{host}'"):
        bind(host, 0).close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:"), ("localhost", "http://")],
)
def test_the_address_is_one_a_client_can_use(host: str, expected: str):
    try:
        listener = bind(host, 0)
    except StartupError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    with listener:
        assert url_of(listener).startswith(expected)


def test_accepted_connections_send_small_answers_at_once():
    with bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("engine.internal", False),
        ("localhost.evil.example", False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(host: str, expected: bool):
    assert is_loopback(host) is expected


@pytest.mark.parametrize("key", [None, ""])
def test_a_reachable_host_without_a_key_is_refused_with_both_ways_out(key: str | None):
    with pytest.raises(UnsafeHost, match=r"host 0.0.0.0 .* set --api-key, or use --host 127.0.0.1"):
        require_safe("0.0.0.0", key)
    require_safe("0.0.0.0", "sk-key")
    require_safe("127.0.0.1", key)

"""Binds the engine's port before anything slow happens, and refuses to be open to strangers."""

from __future__ import annotations

import errno
import ipaddress
import socket

from tuner.engine.errors import PortTaken, StartupError, UnsafeHost

BACKLOG = 1024


def bind(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket.

    Args:
        host: name or address of one of this machine's interfaces.
        port: 0 for any free one.

    Raises:
        PortTaken: another process listens there.
        StartupError: the host is not this machine's, or the port may not be used.
    """
    if not 0 <= port <= 65535:
        raise StartupError(f"port must be 0 to 65535, got {port}; choose another with --port")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _refusal(host, port, error) from error
    # Accepted sockets inherit it. asyncio sets it only where the socket names its protocol, which
    # create_server does not; without it each small answer waits 40 ms for a delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def require_safe(host: str, api_key: str | None) -> None:
    """Refuse a host that others can reach while no key protects it.

    Raises:
        UnsafeHost: the host is not loopback and there is no API key.
    """
    if api_key or is_loopback(host):
        return
    raise UnsafeHost(
        f"host {host} can be reached from other machines; set --api-key, or use --host 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Tell whether a host can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listener: socket.socket) -> str:
    """Return the address a client uses."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refusal(host: str, port: int, error: OSError) -> StartupError:
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"port {port} on {host} is taken by another process; "
            "end it or choose another port with --port"
        )
    if error.errno == errno.EACCES:
        return StartupError(f"port {port} needs privileges; choose one above 1023 with --port")
    reason = error.strerror or str(error)
    return StartupError(f"cannot listen on host {host!r}: {reason}; use --host 127.0.0.1")

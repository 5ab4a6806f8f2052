"""A proxy that passes requests on to an engine and writes down each of another form, once."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


def form_of(value: object, depth: int = 0) -> object:
    """Return what a body looks like: its keys, and the types below them."""
    if isinstance(value, dict):
        return {key: form_of(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list):
        return [form_of(entry, depth + 1) for entry in value[:4]] if depth < 3 else "list"
    return type(value).__name__


class Recorder:
    """The requests seen so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: set[str] = set()
        self.requests: list[dict[str, object]] = []

    def note(self, method: str, path: str, raw: bytes, status: int) -> None:
        body = json.loads(raw) if raw else None
        form = json.dumps([method, path, form_of(body), status])
        with self._lock:
            if form not in self._forms:
                self._forms.add(form)
                request = {"method": method, "path": path, "body": body, "status": status}
                self.requests.append(request)

    def write(self, file: Path) -> None:
        """Write one line a request."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(request) + "\n" for request in self.requests))


@contextmanager
def recording(engine_url: str) -> Iterator[tuple[str, Recorder]]:
    """Serve a proxy; give its address and what it records."""
    recorder, place = Recorder(), urlsplit(engine_url)

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            upstream = http.client.HTTPConnection(place.hostname or "", place.port)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP | {"host"}}
            upstream.request(self.command, self.path, raw, headers)
            answer = upstream.getresponse()
            recorder.note(self.command, self.path, raw, answer.status)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", recorder
    finally:
        server.shutdown()
        server.server_close()

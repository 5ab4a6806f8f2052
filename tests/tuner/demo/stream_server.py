"""Serves a stream recorded from a real server to whoever asks, after a number of refusals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "fixtures/vllm-0.32.0-chat-stream.jsonl"


@dataclass
class Served:
    """What the server was asked, and how it answers."""

    url: str = ""
    refusals: int = 0
    status: int = 200
    keep_lines: int | None = None
    delay_s: float = 0.0
    bodies: list[dict[str, object]] = field(default_factory=list)
    routes: list[str | None] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def stream_server() -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with served.lock:
                served.bodies.append(body)
                served.routes.append(self.headers.get("x-spectuner-route"))
                served.in_flight += 1
                served.most_in_flight = max(served.most_in_flight, served.in_flight)
                is_refused = served.refusals > 0
                served.refusals -= is_refused
            try:
                with suppress(ConnectionError):  # the client went away, as some tests have it do
                    self.answer(is_refused)
            finally:
                with served.lock:
                    served.in_flight -= 1

        def answer(self, is_refused: bool) -> None:
            if is_refused or served.status != 200:
                self.send_response(429 if is_refused else served.status)
                self.send_header("retry-after", "0.2")
                self.end_headers()
                self.wfile.write(b'{"error": {"message": "no such route \'x\'"}}')
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for line in RECORDED.read_text().splitlines()[: served.keep_lines]:
                payload = "[DONE]" if line == '"[DONE]"' else line
                self.wfile.write(f"data: {payload}\n\n".encode())
                self.wfile.flush()
                time.sleep(served.delay_s)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

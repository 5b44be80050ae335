"""A web server on this machine that misbehaves as it is told."""

import socket
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    body: bytes = b""  # bytes that it sends
    status: int = 200
    missing: int = 0  # bytes that it announces and does not send
    wait: float = 0.0  # seconds until it answers


@dataclass
class Server:
    """Answers by path, 404 where nothing is set; use it as a context manager."""

    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def __enter__(self) -> "Server":
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.requests.append(self.path)
                answer = served.answers.get(self.path, Answer(b"<html>not here</html>", 404))
                time.sleep(answer.wait)
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(answer.body) + answer.missing))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    def url(self, name: str, answer: Answer | None = None) -> str:
        """Address of a name, which from now on is answered so."""
        if answer is not None:
            self.answers[f"/{name}"] = answer
        return f"http://127.0.0.1:{self._http.server_port}/{name}"


def closed_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/adj.npz"

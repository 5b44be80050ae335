import errno
import hashlib
import io
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pooch
import pytest

from robust_diffusion.data import download
from robust_diffusion.data.download import DatasetFolder
from robust_diffusion.errors import DataError


@dataclass(frozen=True)
class Answer:
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


NAME = "adj.npz"
WEB_PAGE = b"\n<!DOCTYPE html><html><body>sign in</body></html>"


def npz(seed: int = 0) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, data=np.random.default_rng(seed).random(500))
    return stream.getvalue()


GOOD, OTHER = npz(), npz(1)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for key in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(key, "127.0.0.1")
    with Server() as running:
        yield running


def folder(root: Path, *urls: str, path: str = "grb-ring", **options: Any) -> DatasetFolder:
    known = {"sha256": options.pop("sha256")} if "sha256" in options else {}
    return DatasetFolder(root, path, {NAME: {"urls": list(urls)} | known}, **options)


def refusal(data: DatasetFolder, name: str = NAME) -> str:
    with pytest.raises(DataError) as caught:
        data.file(name)
    message = str(caught.value)
    assert "\n" not in message
    assert str(data.folder / name) in message
    return message


def names(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def put(root: Path, content: bytes = GOOD, name: str = NAME) -> Path:
    path = root / "grb-ring" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_missing_file_is_downloaded_once(tmp_path: Path, server: Server) -> None:
    data = folder(tmp_path, server.url(NAME, Answer(GOOD)), sha256=sha256(GOOD))
    path = data.file(NAME)
    assert path == tmp_path / "grb-ring" / NAME
    assert path.read_bytes() == GOOD
    assert names(path.parent) == {NAME}
    assert data.file(NAME) == path
    assert server.requests == [f"/{NAME}"]
    pickle = {"tx": {"urls": [server.url("tx", Answer(b"\x80\x02K\x01."))]}}
    assert DatasetFolder(tmp_path, "ring", pickle).file("tx").read_bytes() == b"\x80\x02K\x01."


@pytest.mark.parametrize("urls", [(), ("https://example.org/adj.npz",)])
@pytest.mark.usefixtures("no_network")
def test_a_file_of_another_hash_is_refused(tmp_path: Path, urls: tuple[str, ...]) -> None:
    put(tmp_path, OTHER)
    data = folder(tmp_path, *urls, sha256=sha256(GOOD))
    message = refusal(data)
    assert f"expected sha256 {sha256(GOOD)}, got {sha256(OTHER)}" in message
    assert ("delete the file" in message) == bool(urls)  # not the only copy
    assert data.status()[0].state == "damaged"
    put(tmp_path, GOOD)
    assert data.file(NAME).read_bytes() == GOOD


def encrypted() -> bytes:
    content = bytearray(GOOD)
    content[content.index(b"PK\x01\x02") + 8] ^= 1
    return bytes(content)


BAD = {
    "another hash": (Answer(OTHER), sha256(OTHER)),
    "web page": (Answer(WEB_PAGE), "web page"),
    "not found": (Answer(b"gone", 404), "404"),
    "server error": (Answer(b"", 503), "503"),
    "blank": (Answer(b" \n" * 9), "empty"),
    "broken off": (Answer(GOOD[:2000], missing=len(GOOD) - 2000), ""),
    "cut short": (Answer(GOOD[:-30]), "cut short"),
    "checksum": (Answer(GOOD[:300] + b"x" + GOOD[301:]), "checksum"),
    "encrypted": (Answer(encrypted()), "no npz file"),
}


@pytest.mark.parametrize(("answer", "word"), BAD.values(), ids=BAD)
def test_a_bad_mirror_is_named_and_passed_over(
    tmp_path: Path, server: Server, answer: Answer, word: str
) -> None:
    known = {"sha256": sha256(GOOD)} if answer.body == OTHER else {}
    message = refusal(data := folder(tmp_path, server.url("bad", answer), **known))
    assert f"{server.url('bad')}: " in message
    assert word in message
    assert names(data.folder) == set()
    urls = server.url("bad"), server.url(NAME, Answer(GOOD))
    data = folder(tmp_path, *urls, **known)
    assert data.file(NAME).read_bytes() == GOOD
    assert server.requests == ["/bad", "/bad", f"/{NAME}"]
    assert names(data.folder) == {NAME}


def test_every_dead_mirror_is_named(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_TIMEOUT", 0.2)
    urls = [server.url("a"), closed_url(), server.url("late", Answer(GOOD, wait=1))]
    urls += ["nonsense", "ftp://127.0.0.1/adj.npz", "http://"]
    message = refusal(folder(tmp_path, *urls))
    assert all(f"{url}: " in message for url in urls)
    assert "ROBUST_DIFFUSION_DATA" in message
    assert "no answer in 0.2 s" in message


def raiser(number: int) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("what", "number"),
    [("mkdir", errno.EROFS), ("locked", errno.EACCES), ("retrieve", errno.EACCES)],
)
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int
) -> None:
    owner: Any = {"mkdir": Path, "locked": download, "retrieve": pooch}[what]
    monkeypatch.setattr(owner, what, raiser(number))
    message = refusal(folder(tmp_path, "http://127.0.0.1/adj.npz"))
    assert os.strerror(number) in message
    assert "http://127.0.0.1/adj.npz" in message


def test_two_at_once_download_once(tmp_path: Path, server: Server) -> None:
    url = server.url(NAME, Answer(GOOD, wait=0.5))
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: folder(tmp_path, url).file(NAME), range(2)))
    assert [path.read_bytes() for path in paths] == [GOOD] * 2
    assert server.requests == [f"/{NAME}"]
    assert names(paths[0].parent) == {NAME}


@pytest.mark.parametrize("left", [WEB_PAGE, OTHER])
def test_what_killed_process_left_is_not_used(tmp_path: Path, server: Server, left: bytes) -> None:
    part = put(tmp_path, left, f".{NAME}.part")
    assert folder(tmp_path, server.url(NAME, Answer(GOOD))).file(NAME).read_bytes() == GOOD
    assert not part.exists()

import errno
import hashlib
import io
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
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
    assert str(data.folder / name) in message or "sha256.json" in message
    return message


def names(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()} - {".lock"}


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


@pytest.mark.usefixtures("no_network")
def test_the_first_hash_is_kept_and_compared(tmp_path: Path) -> None:
    path, data = put(tmp_path), folder(tmp_path)
    record = path.parent / "sha256.json"
    assert data.file(NAME) == path
    assert not record.exists()  # until a graph could be made of it
    data.keep_hashes()
    put(tmp_path, OTHER, "features.npz")
    both = DatasetFolder(tmp_path, "grb-ring", {NAME: {}, "features.npz": {}})
    both.file("features.npz")
    both.keep_hashes()
    assert json.loads(record.read_text()) == {NAME: sha256(GOOD), "features.npz": sha256(OTHER)}
    path.write_bytes(OTHER)
    for changed in (data, folder(tmp_path, sha256=sha256(GOOD))):
        message = refusal(changed)
        assert sha256(OTHER) in message
        assert sha256(GOOD) in message
        assert message.endswith("; correct its hash if the file is right, or replace the file")
    linked = folder(tmp_path, "https://example.org/adj.npz", sha256=sha256(GOOD))
    assert refusal(linked).endswith("; delete the file to fetch it again, or correct its hash")
    assert data.status()[0].state == "damaged"


@pytest.mark.parametrize("known", [True, False])
def test_download_of_another_hash_is_not_kept(tmp_path: Path, server: Server, known: bool) -> None:
    options = {"sha256": sha256(GOOD)} if known else {}
    data = folder(tmp_path, server.url(NAME, Answer(GOOD)), **options)
    data.file(NAME).unlink()
    data.keep_hashes()  # in sha256.json, unless it is known
    server.url(NAME, Answer(OTHER))
    assert sha256(GOOD) in refusal(data)
    assert names(data.folder) <= {"sha256.json"}
    server.url(NAME, Answer(GOOD))
    assert data.file(NAME).read_bytes() == GOOD


def encrypted() -> bytes:
    content = bytearray(GOOD)
    content[content.index(b"PK\x01\x02") + 8] ^= 1
    return bytes(content)


BAD = {
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
    message = refusal(data := folder(tmp_path, server.url("bad", answer)))
    assert f"{server.url('bad')}: " in message
    assert word in message
    assert names(data.folder) == set()
    data = folder(tmp_path, server.url("bad"), server.url(NAME, Answer(GOOD)))
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
    [("mkdir", errno.EROFS), ("FileLock", errno.EACCES), ("retrieve", errno.EACCES)],
)
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int
) -> None:
    owner: Any = {"mkdir": Path, "FileLock": download, "retrieve": pooch}[what]
    monkeypatch.setattr(owner, what, raiser(number))
    message = refusal(folder(tmp_path, "http://127.0.0.1/adj.npz"))
    assert os.strerror(number) in message
    assert "http://127.0.0.1/adj.npz" in message


@pytest.mark.usefixtures("no_network")
def test_a_read_only_folder_works_without_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = put(tmp_path), folder(tmp_path)
    monkeypatch.setattr(download, "FileLock", raiser(errno.EROFS))
    assert data.file(NAME) == path
    data.keep_hashes()
    assert names(path.parent) == {NAME}
    monkeypatch.setattr(Path, "open", raiser(errno.EACCES))
    assert os.strerror(errno.EACCES) in refusal(data)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"\xff\xfe", b""])
def test_a_broken_list_of_hashes_is_named(tmp_path: Path, content: bytes) -> None:
    put(tmp_path)
    put(tmp_path, content, "sha256.json")
    assert "sha256.json: " in refusal(folder(tmp_path))


def fetch_when_told(root: Path, url: str, start: Barrier, sizes: "SimpleQueue[int]") -> None:
    data = folder(root, url)
    start.wait(30)
    sizes.put(data.file(NAME).stat().st_size)


def test_two_processes_at_once_download_once(tmp_path: Path, server: Server) -> None:
    url = server.url(NAME, Answer(GOOD, wait=0.7))
    # Forked, since to import everything twice would take ten times as long.
    fork = multiprocessing.get_context("fork")
    start, sizes = fork.Barrier(2), fork.SimpleQueue()
    workers = [
        fork.Process(target=fetch_when_told, args=(tmp_path, url, start, sizes)) for _ in range(2)
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
    finally:
        for worker in workers:
            worker.kill()
    assert [sizes.get(), sizes.get()] == [len(GOOD)] * 2
    assert server.requests == [f"/{NAME}"]
    assert (tmp_path / "grb-ring" / NAME).read_bytes() == GOOD
    assert names(tmp_path / "grb-ring") == {NAME}


@pytest.mark.parametrize("left", [WEB_PAGE, OTHER])
def test_what_killed_process_left_is_not_used(tmp_path: Path, server: Server, left: bytes) -> None:
    part = put(tmp_path, left, f".{NAME}.part")
    assert folder(tmp_path, server.url(NAME, Answer(GOOD))).file(NAME).read_bytes() == GOOD
    assert not part.exists()

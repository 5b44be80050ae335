import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system import artifact as artifact_module
from robust_diffusion.system.artifact import Artifact, read_artifact

KEY = {"attack": "speit", "seed": 0, "budget": {"nodes": 50, "limits": [-0.94, 0.94]}}
fork = multiprocessing.get_context("fork")


def small() -> Artifact:
    return Artifact({"x": torch.arange(6.0).reshape(2, 3)}, {"spent": 3, "limits": (-0.5, 0.5)})


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, NaN and the sign of 0 included."""
    raw = [tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_discard_removes_the_entries_of_one_kind(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.discard("part")
    for kind in ("part", "part-a", "graph"):
        store.get_or_compute(kind, KEY, small)
        store.get_or_compute(kind, {}, small)
    damaged = store.path("part", KEY)
    damaged.rename(f"{damaged}.damaged-1")
    store.discard("part")
    assert [name.rsplit("-", 1)[0] for name in entries(tmp_path)] == ["graph"] * 2 + ["part-a"] * 2


# At the same time


@pytest.mark.parametrize("failures", [0, 2])
def test_one_of_many_threads_computes(tmp_path: Path, failures: int) -> None:
    store, calls, found = ArtifactStore(tmp_path), [], []
    start = threading.Barrier(6)

    def compute() -> Artifact:
        calls.append(1)
        time.sleep(0.1)
        if len(calls) <= failures:
            raise RuntimeError
        return small()

    def need() -> None:
        start.wait()
        with suppress(RuntimeError):
            found.append(store.get_or_compute("graph", KEY, compute)[1])

    threads = [threading.Thread(target=need) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == failures + 1
    assert sorted(found) == [False] + [True] * (5 - failures)
    assert entries(tmp_path) == [store.path("graph", KEY).name]


def test_other_entries_do_not_wait(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    inner_found: list[bool] = []

    def outer() -> Artifact:
        inner = threading.Thread(
            target=lambda: inner_found.append(store.get_or_compute("graph", {"seed": 1}, small)[1])
        )
        inner.start()
        inner.join(timeout=20)  # it would never come back while this one is held
        return small()

    store.get_or_compute("graph", {"seed": 0}, outer)
    assert inner_found == [False]


def _hang_in_compute(folder: str, mark: str) -> None:
    def compute() -> Artifact:
        Path(mark).touch()
        time.sleep(600)
        return small()

    ArtifactStore(folder).get_or_compute("graph", KEY, compute)


def _hang_in_writing(folder: str, mark: str) -> None:
    def hang(_: int) -> None:
        Path(mark).touch()
        time.sleep(600)

    # Where the tests run in the background, a shell has them ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.fsync = hang
    ArtifactStore(folder).get_or_compute("graph", KEY, small)


def killed_at(target: Callable[[str, str], None], folder: Path, sign: int) -> list[str]:
    """Run the target, kill it once it has marked its place, and return what it left."""
    mark = folder.with_name("mark")
    process = fork.Process(target=target, args=(str(folder), str(mark)))
    process.start()
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, sign)
    process.join()
    assert process.exitcode != 0
    return entries(folder)


def never() -> Artifact:
    raise AssertionError("computed")


def test_is_computed_once_and_then_found_and_nobody_elses(tmp_path: Path) -> None:
    store, artifact = ArtifactStore(tmp_path / "a" / "store"), small()
    first, found = store.get_or_compute("graph", KEY, lambda: artifact)
    assert not found
    first.tensors["x"].zero_()
    first.metadata["spent"] = 99
    assert same(artifact.tensors["x"], small().tensors["x"])
    second, found = store.get_or_compute("graph", KEY, never)
    assert found
    path = store.path("graph", KEY)
    for read in (second, read_artifact(path)):
        assert same(read.tensors["x"], small().tensors["x"])
        assert read.metadata == {"spent": 3, "limits": [-0.5, 0.5]}
    assert entries(store.directory) == [path.name]
    anew = ArtifactStore(store.directory, refresh=True)
    other, found = anew.get_or_compute("graph", KEY, lambda: Artifact({}, {"version": 2}))
    assert not found
    assert store.get_or_compute("graph", KEY, never) == (other, True)
    assert entries(store.directory) == [path.name]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool]
)
def test_types_shapes_and_views_come_back(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {str(of): torch.ones(of).to(dtype) for of in ((), (0,), (0, 3), (3, 0), (2, 3, 4))}
    if dtype.is_floating_point:
        special = [0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1e-45, 0.1, 1.0]
        base = torch.tensor(special, dtype=dtype).reshape(2, 4).requires_grad_()
        tensors |= {"whole": base, "turned": base.T, "row": base[1], "every_other": base[:, ::2]}
    for _ in range(2):
        artifact, _ = ArtifactStore(tmp_path).get_or_compute("t", {}, lambda: Artifact(tensors))
        assert artifact.tensors.keys() == tensors.keys()
        assert all(same(artifact.tensors[name], of) for name, of in tensors.items())
        assert not any(of.requires_grad for of in artifact.tensors.values())


def test_checksums_among_the_users_words_are_words(tmp_path: Path) -> None:
    key = {"sha256": "a" * 64, "text": f'"sha256":"{"b" * 64}"}}"'}
    metadata = {"z": {"sha256": "c" * 64, "said": 'naïve \\ "q" \u2028'}}
    store = ArtifactStore(tmp_path)
    store.get_or_compute("note", key, lambda: Artifact({}, metadata))
    assert store.get_or_compute("note", key, never) == (Artifact({}, metadata), True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        *((of("no"), of) for of in (KeyboardInterrupt, SystemExit, RuntimeError)),
        *((OSError(code, "text"), ConfigError) for code in (errno.ENOSPC, errno.EFBIG, errno.EIO)),
    ],
)
def test_a_failed_computation_or_writing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, told: type[BaseException]
) -> None:
    def fail(*_: int) -> Artifact:
        raise error

    store, nan = ArtifactStore(tmp_path), Artifact({}, {"accuracy": float("nan")})
    with pytest.raises(type(error)) as passed:
        store.get_or_compute("graph", KEY, fail)
    assert passed.value is error
    with pytest.raises(ConfigError, match=r"metadata\.accuracy=nan"):
        store.get_or_compute("graph", KEY, lambda: nan)
    monkeypatch.setattr(os, "fsync", fail)
    match = rf"^paths\.store={tmp_path}: graph-[^\n]*$" if told is ConfigError else "no"
    with pytest.raises(told, match=match):
        store.get_or_compute("graph", KEY, small)
    assert entries(tmp_path) == []
    monkeypatch.undo()
    assert not store.get_or_compute("graph", KEY, small)[1]


@pytest.mark.parametrize(
    ("kind", "key", "named"),
    [
        ("graph", {"a": {"eps": float("nan")}}, "store.key.a.eps=nan"),
        ("graph", {"a": [1.0, float("inf")]}, "store.key.a[1]=inf"),
        *(("graph", {"a": of}, "store.key.a: ") for of in (Path("x"), {1, 2}, torch.ones(2))),
        ("graph", {"a": {3: "x"}}, "store.key.a: "),
        *((kind, {}, "store.kind=") for kind in ("", "a/b", "..", "a b", "grün")),
    ],
)
def test_what_is_no_identity_is_refused(tmp_path: Path, kind: str, key: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ArtifactStore(tmp_path / "store").get_or_compute(kind, key, never)
    assert str(caught.value).startswith(named)
    assert not (tmp_path / "store").exists()


def test_every_byte_counts(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_compute("graph", KEY, small)
    path = store.path("graph", KEY)
    whole = path.read_bytes()
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << (position % 8)
        for damaged in (bytes(content), whole[:position]):
            with pytest.raises(DataError, match="is damaged"):
                artifact_module.checked_artifact(damaged, path)


def test_damage_is_set_aside_numbered_and_computed_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "mark",)

    store = ArtifactStore(tmp_path / "store")
    path, other = store.path("graph", KEY), store.path("graph", {})
    store.get_or_compute("graph", KEY, small)
    store.get_or_compute("graph", {}, small)
    whole, of_another_name = path.read_bytes(), other.read_bytes()
    monkeypatch.setattr(artifact_module, "FORMAT", 2)
    store.get_or_compute("graph", {"format": 2}, small)
    monkeypatch.undo()
    of_another_format = store.path("graph", {"format": 2}).read_bytes()
    torch.save({"x": Bomb()}, path)
    contents = [whole[:-1], whole + b"\0", b"", of_another_name, of_another_format]
    contents.append(path.read_bytes())
    for number, content in enumerate(contents, 1):
        path.write_bytes(content)
        artifact, found = store.get_or_compute("graph", KEY, small)
        assert not found
        assert same(artifact.tensors["x"], small().tensors["x"])
        aside = path.with_name(f"{path.name}.damaged-{number}")
        assert aside.read_bytes() == content
        assert aside.name in caplog.text
        assert path.read_bytes() == whole
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("inside", ["file", "file/deeper", ""])
def test_a_folder_that_cannot_be_written_is_told_before_the_work_and_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "read-only", str(path))
        return real(path, flags, *rest, **options)

    (tmp_path / "file").touch()
    if not inside:
        ArtifactStore(tmp_path).get_or_compute("graph", {}, small)
        monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(ConfigError, match=r"paths\.store="):
        ArtifactStore(tmp_path / inside).get_or_compute("graph", KEY, never)
    assert inside or ArtifactStore(tmp_path).get_or_compute("graph", {}, never)[1]


@pytest.mark.parametrize(
    ("target", "sign", "left"),
    [
        (_hang_in_compute, signal.SIGKILL, [".lock"]),
        (_hang_in_writing, signal.SIGKILL, [".lock", ".part"]),
        (_hang_in_writing, signal.SIGINT, []),
    ],
)
def test_a_killed_process_holds_nobody_up(
    tmp_path: Path, target: Callable[[str, str], None], sign: int, left: list[str]
) -> None:
    store = ArtifactStore(tmp_path / "store")
    assert [Path(name).suffix for name in killed_at(target, store.directory, sign)] == left
    start = time.monotonic()
    artifact, found = store.get_or_compute("graph", KEY, small)
    assert time.monotonic() - start < 30
    assert not found
    assert same(artifact.tensors["x"], small().tensors["x"])
    # What the dead process left is gone as well.
    assert entries(store.directory) == [store.path("graph", KEY).name]
    assert store.get_or_compute("graph", KEY, never)[1]

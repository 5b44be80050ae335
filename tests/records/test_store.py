import errno
import multiprocessing
import os
import signal
import threading
import time
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


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store")


def test_is_computed_once_and_then_found_and_nobody_elses(store: ArtifactStore) -> None:
    artifact = small()
    first, found = store.get_or_compute("graph", KEY, lambda: artifact)
    assert not found
    first.tensors["x"].zero_()
    first.metadata["spent"] = 99
    assert same(artifact.tensors["x"], small().tensors["x"])
    second, found = store.get_or_compute("graph", KEY, pytest.fail)
    assert found
    path = store.path("graph", KEY)
    for read in (second, read_artifact(path)):
        assert same(read.tensors["x"], small().tensors["x"])
        assert read.metadata == {"spent": 3, "limits": [-0.5, 0.5]}
    anew = ArtifactStore(store.directory, refresh=True)
    other, found = anew.get_or_compute("graph", KEY, lambda: Artifact({}, {"version": 2}))
    assert not found
    assert store.get_or_compute("graph", KEY, pytest.fail) == (other, True)
    assert entries(store.directory) == [path.name]


def test_discard_removes_the_entries_of_one_kind(store: ArtifactStore) -> None:
    store.discard("part")
    for kind in ("part", "part-a", "graph"):
        store.get_or_compute(kind, KEY, small)
    damaged = store.path("part", KEY)
    damaged.rename(f"{damaged}.damaged-1")
    store.discard("part")
    assert [name.rsplit("-", 1)[0] for name in entries(store.directory)] == ["graph", "part-a"]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool]
)
def test_types_shapes_and_views_come_back(store: ArtifactStore, dtype: torch.dtype) -> None:
    tensors = {str(of): torch.ones(of).to(dtype) for of in ((), (0,), (0, 3), (3, 0), (2, 3, 4))}
    if dtype.is_floating_point:
        special = [0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1e-45, 0.1, 1.0]
        base = torch.tensor(special, dtype=dtype).reshape(2, 4).requires_grad_()
        tensors |= {"whole": base, "turned": base.T, "row": base[1], "every_other": base[:, ::2]}
    for _ in range(2):
        artifact, _ = store.get_or_compute("t", {}, lambda: Artifact(tensors))
        assert artifact.tensors.keys() == tensors.keys()
        assert all(same(artifact.tensors[name], of) for name, of in tensors.items())
        assert not any(of.requires_grad for of in artifact.tensors.values())


def test_checksums_among_the_users_words_are_words(store: ArtifactStore) -> None:
    key = {"sha256": "a" * 64, "text": f'"sha256":"{"b" * 64}"}}"'}
    metadata = {"z": {"sha256": "c" * 64, "said": 'naïve \\ "q" \u2028'}}
    store.get_or_compute("note", key, lambda: Artifact({}, metadata))
    assert store.get_or_compute("note", key, pytest.fail) == (Artifact({}, metadata), True)


@pytest.mark.parametrize(
    ("kind", "key", "named"),
    [
        ("graph", {"a": [1.0, float("inf")]}, "store.key.a[1]=inf"),
        *(("graph", {"a": of}, "store.key.a: ") for of in (Path("x"), torch.ones(2), {3: "x"})),
        *((kind, {}, "store.kind=") for kind in ("", "a/b", "..", "a b", "grün")),
    ],
)
def test_what_is_no_identity_is_refused(
    store: ArtifactStore, kind: str, key: Any, named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        store.get_or_compute(kind, key, pytest.fail)
    assert str(caught.value).startswith(named)
    assert not store.directory.exists()


# Failures and damage


@pytest.mark.parametrize(
    ("error", "told"),
    [
        *((of("no"), of) for of in (KeyboardInterrupt, RuntimeError)),
        *((OSError(code, "text"), ConfigError) for code in (errno.ENOSPC, errno.EFBIG, errno.EIO)),
    ],
)
def test_a_failed_computation_or_writing_leaves_nothing(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    told: type[BaseException],
) -> None:
    def fail(*_: int) -> Artifact:
        raise error

    with pytest.raises(type(error)) as passed:
        store.get_or_compute("graph", KEY, fail)
    assert passed.value is error
    with pytest.raises(ConfigError, match=r"metadata\.accuracy=nan"):
        store.get_or_compute("graph", KEY, lambda: Artifact({}, {"accuracy": float("nan")}))
    monkeypatch.setattr(os, "fsync", fail)
    match = rf"^paths\.store={store.directory}: graph-[^\n]*$" if told is ConfigError else "no"
    with pytest.raises(told, match=match):
        store.get_or_compute("graph", KEY, small)
    assert entries(store.directory) == []
    monkeypatch.undo()
    assert not store.get_or_compute("graph", KEY, small)[1]


def test_every_byte_counts(store: ArtifactStore) -> None:
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
    store: ArtifactStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, newer = (store.path("graph", key) for key in (KEY, {}, {"format": 2}))
    store.get_or_compute("graph", KEY, small)
    store.get_or_compute("graph", {}, small)
    with monkeypatch.context() as context:
        context.setattr(artifact_module, "FORMAT", 2)
        store.get_or_compute("graph", {"format": 2}, small)
    whole = path.read_bytes()
    contents = [whole[:-1], whole + b"\0", b"", other.read_bytes(), newer.read_bytes()]
    for number, content in enumerate(contents, 1):
        path.write_bytes(content)
        assert not store.get_or_compute("graph", KEY, small)[1]
        aside = path.with_name(f"{path.name}.damaged-{number}")
        assert aside.read_bytes() == content
        assert aside.name in caplog.text
        assert path.read_bytes() == whole


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
        ArtifactStore(tmp_path / inside).get_or_compute("graph", KEY, pytest.fail)
    assert inside or ArtifactStore(tmp_path).get_or_compute("graph", {}, pytest.fail)[1]


# At the same time


def test_one_of_many_threads_computes(store: ArtifactStore) -> None:
    calls, found, start = [], [], threading.Barrier(6)

    def compute() -> Artifact:
        calls.append(1)
        time.sleep(0.1)
        if len(calls) <= 2:
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
    assert len(calls) == 3
    assert sorted(found) == [False, True, True, True]
    assert entries(store.directory) == [store.path("graph", KEY).name]


def test_other_entries_do_not_wait(store: ArtifactStore) -> None:
    def outer() -> Artifact:
        inner = threading.Thread(target=store.get_or_compute, args=("graph", {}, small))
        inner.start()
        inner.join(timeout=20)  # it would never come back while this one is held
        return small()

    store.get_or_compute("graph", KEY, outer)
    assert len(entries(store.directory)) == 2


def _hang(folder: Path, mark: Path, *, writing: bool) -> None:
    def hang(*_: int) -> Artifact:
        mark.touch()
        time.sleep(600)
        return small()

    # Where the tests run in the background, a shell has them ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if writing:
        os.fsync = hang
    ArtifactStore(folder).get_or_compute("graph", KEY, small if writing else hang)


@pytest.mark.parametrize(
    ("writing", "sign", "left"),
    [
        (False, signal.SIGKILL, [".lock"]),
        (True, signal.SIGKILL, [".lock", ".part"]),
        (True, signal.SIGINT, []),
    ],
)
def test_a_killed_process_holds_nobody_up(
    store: ArtifactStore, tmp_path: Path, sign: int, left: list[str], *, writing: bool
) -> None:
    mark = tmp_path / "mark"
    process = fork.Process(target=_hang, args=(store.directory, mark), kwargs={"writing": writing})
    process.start()
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, sign)
    process.join()
    assert process.exitcode != 0
    assert [Path(name).suffix for name in entries(store.directory)] == left
    start = time.monotonic()
    artifact, found = store.get_or_compute("graph", KEY, small)
    assert time.monotonic() - start < 30
    assert not found
    assert same(artifact.tensors["x"], small().tensors["x"])
    # What the dead process left is gone as well.
    assert entries(store.directory) == [store.path("graph", KEY).name]

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
from robust_diffusion.records import store as store_module
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system import artifact
from robust_diffusion.system.artifact import Artifact, read_artifact

KEY = {"attack": "speit", "seed": 0, "budget": {"nodes": 50, "limits": [-0.94, 0.94]}}
fork = multiprocessing.get_context("fork")


def small() -> Artifact:
    return Artifact({"x": torch.arange(6.0).reshape(2, 3)}, {"spent": 3, "limits": (-0.5, 0.5)})


class Counter:
    """Computes the small artifact and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Artifact:
        self.calls += 1
        return small()


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, NaN and the sign of 0 included."""
    raw = [tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# One entry


def test_is_computed_once_and_then_found(tmp_path: Path) -> None:
    store, compute = ArtifactStore(tmp_path / "a" / "store"), Counter()
    first, found_first = store.get_or_compute("graph", KEY, compute)
    second, found_second = store.get_or_compute("graph", KEY, compute)
    assert (found_first, found_second, compute.calls) == (False, True, 1)
    assert same(first.tensors["x"], small().tensors["x"])
    assert same(first.tensors["x"], second.tensors["x"])
    assert first.metadata == second.metadata == {"spent": 3, "limits": [-0.5, 0.5]}
    assert entries(store.directory) == [store.path("graph", KEY).name]


def test_refresh_computes_anew_and_replaces(tmp_path: Path) -> None:
    ArtifactStore(tmp_path).get_or_compute("graph", KEY, small)
    anew = ArtifactStore(tmp_path, refresh=True)
    artifact, found = anew.get_or_compute("graph", KEY, lambda: Artifact({}, {"version": 2}))
    assert (found, artifact.metadata) == (False, {"version": 2})
    kept, found = ArtifactStore(tmp_path).get_or_compute("graph", KEY, Counter())
    assert (found, kept.metadata) == (True, {"version": 2})
    assert entries(tmp_path) == [anew.path("graph", KEY).name]


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


def test_what_is_handed_out_is_nobody_elses(tmp_path: Path) -> None:
    store, artifact = ArtifactStore(tmp_path), small()
    handed = [store.get_or_compute("graph", KEY, lambda: artifact)[0] for _ in range(3)]
    handed[0].tensors["x"].zero_()
    handed[1].metadata["spent"] = 99
    assert same(handed[2].tensors["x"], small().tensors["x"])
    assert same(artifact.tensors["x"], small().tensors["x"])
    assert store.get_or_compute("graph", KEY, Counter())[0].metadata["spent"] == 3


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (2, 3, 4)])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool]
)
def test_types_and_shapes_come_back(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    values = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    if dtype.is_floating_point and len(shape) == 3:
        special = [0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1e-45, 0.1]
        values.view(-1)[:7] = torch.tensor(special, dtype=dtype)
    store = ArtifactStore(tmp_path)
    for _ in range(2):
        artifact, _ = store.get_or_compute(
            "t", {}, lambda: Artifact({"values": values, "b": values})
        )
        assert set(artifact.tensors) == {"values", "b"}
        assert all(same(tensor, values) for tensor in artifact.tensors.values())


def test_views_of_one_tensor_are_kept_as_they_look(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4).requires_grad_()
    views = {"whole": base, "turned": base.T, "row": base[1], "every_other": base[:, ::2]}
    found, _ = ArtifactStore(tmp_path).get_or_compute("t", {}, lambda: Artifact(views))
    assert all(same(found.tensors[name], view) for name, view in views.items())
    assert not any(tensor.requires_grad for tensor in found.tensors.values())


@pytest.mark.parametrize(
    ("key", "metadata"),
    [
        (KEY, {"said": 'naïve \\ "q" \u2028'}),
        (  # checksums among the user's words
            {"sha256": "a" * 64, "text": f'"sha256":"{"b" * 64}"}}"'},
            {"z": {"sha256": "c" * 64}},
        ),
    ],
)
def test_an_entry_without_tensors_is_an_entry(
    tmp_path: Path, key: dict[str, Any], metadata: dict[str, Any]
) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_compute("note", key, lambda: Artifact({}, metadata))
    assert store.get_or_compute("note", key, Counter()) == (Artifact({}, metadata), True)


def test_one_file_can_be_read_by_its_path(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    stored, _ = store.get_or_compute("graph", KEY, small)
    read = read_artifact(store.path("graph", KEY))
    assert same(read.tensors["x"], stored.tensors["x"])
    assert read.metadata == stored.metadata
    with pytest.raises(DataError, match=r"nowhere: cannot be read \(No such file"):
        read_artifact(tmp_path / "nowhere")


# Keys


def test_the_order_of_a_key_does_not_matter(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    turned = dict(reversed(KEY.items()))
    assert list(turned) != list(KEY)
    assert store.path("graph", turned) == store.path("graph", KEY)
    assert store.path("graph", {"a": (1, 2)}) == store.path("graph", {"a": [1, 2]})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"v": 1}, {"v": 1.0}),
        ({"v": 1}, {"v": True}),
        ({"v": 1}, {"v": "1"}),
        ({"v": None}, {}),
        ({"v": [1, [2]]}, {"v": [[1], 2]}),
        ({"v": {"w": 1}}, {"v.w": 1}),
        ({"v": 0.1}, {"v": 0.10000000000000002}),
    ],
)
def test_different_keys_are_different_entries(
    tmp_path: Path, a: dict[str, Any], b: dict[str, Any]
) -> None:
    store = ArtifactStore(tmp_path)
    assert store.path("graph", a) != store.path("graph", b)
    assert store.path("graph", a).stem.split("-")[1] != store.path("other", a).stem.split("-")[1]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"a": {"eps": float("nan")}}, r"store\.key\.a\.eps=nan: is not finite"),
        ({"a": [1.0, float("inf")]}, r"store\.key\.a\[1\]=inf: is not finite"),
        ({"a": Path("x")}, r"store\.key\.a: a \w*Path cannot be kept as JSON"),
        ({"a": {1, 2}}, r"store\.key\.a: a set cannot be kept"),
        ({"a": torch.ones(2)}, r"store\.key\.a: a Tensor cannot be kept"),
        ({"a": {3: "x"}}, r"store\.key\.a: has the key 3; use strings"),
    ],
)
def test_a_key_that_identifies_nothing_is_refused(
    tmp_path: Path, key: dict[str, Any], message: str
) -> None:
    compute = Counter()
    with pytest.raises(ConfigError, match=message):
        ArtifactStore(tmp_path / "store").get_or_compute("graph", key, compute)
    assert compute.calls == 0
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", ["", "a/b", "..", "a b", "grün"])
def test_a_kind_that_is_no_name_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.kind="):
        ArtifactStore(tmp_path).get_or_compute(kind, {}, small)


def test_metadata_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(ConfigError, match=r"metadata\.accuracy=nan"):
        store.get_or_compute("t", {}, lambda: Artifact({}, {"accuracy": float("nan")}))
    assert entries(tmp_path) == []


# Damage


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, Path, bytes]:
    store = ArtifactStore(tmp_path_factory.mktemp("store"))
    store.get_or_compute("graph", KEY, small)
    path = store.path("graph", KEY)
    return store, path, path.read_bytes()


def test_every_byte_counts(good: tuple[ArtifactStore, Path, bytes]) -> None:
    _, path, whole = good
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << (position % 8)
        for damaged in (bytes(content), whole[:position]):
            with pytest.raises(DataError, match="is damaged"):
                artifact.checked(damaged, path)


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-1], lambda whole: whole + b"\0", lambda _: b""]
)
def test_damage_is_set_aside_and_computed_anew(
    good: tuple[ArtifactStore, Path, bytes],
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes], bytes],
) -> None:
    store, path, whole = good
    path.write_bytes(damage(whole))
    compute = Counter()
    artifact, found = store.get_or_compute("graph", KEY, compute)
    assert (found, compute.calls) == (False, 1)
    assert same(artifact.tensors["x"], small().tensors["x"])
    aside = path.with_name(f"{path.name}.damaged-1")
    assert str(path) in caplog.text
    assert aside.name in caplog.text
    assert aside.read_bytes() == damage(whole)
    aside.unlink()
    assert entries(store.directory) == [path.name]
    assert read_artifact(path).metadata["spent"] == 3


def test_damaged_entries_are_numbered(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    path = store.path("graph", KEY)
    for content in (b"one", b"two", b"three"):
        path.write_bytes(content)
        store.get_or_compute("graph", KEY, small)
    aside = [path.with_name(f"{path.name}.damaged-{n}").read_bytes() for n in (1, 2, 3)]
    assert aside == [b"one", b"two", b"three"]


def test_an_entry_under_the_name_of_another_is_not_believed(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_compute("graph", {"seed": 1}, lambda: Artifact({}, {"seed": 1}))
    other = store.path("graph", {"seed": 2})
    other.write_bytes(store.path("graph", {"seed": 1}).read_bytes())
    artifact, found = store.get_or_compute("graph", {"seed": 2}, lambda: Artifact({}, {"seed": 2}))
    assert (found, artifact.metadata) == (False, {"seed": 2})


def test_an_entry_of_another_version_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path)
    monkeypatch.setattr(artifact, "FORMAT", 2)
    store.get_or_compute("graph", KEY, small)
    monkeypatch.undo()
    compute = Counter()
    assert not store.get_or_compute("graph", KEY, compute)[1]
    assert compute.calls == 1


def test_nothing_in_an_entry_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    store = ArtifactStore(tmp_path / "store")
    store.directory.mkdir()
    path = store.path("graph", KEY)

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    torch.save({"x": Bomb()}, path)
    assert not store.get_or_compute("graph", KEY, small)[1]
    assert not mark.exists()


# Errors and interruptions


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, OSError])
def test_a_failed_computation_leaves_nothing_and_passes_through(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def fail() -> Artifact:
        raise error("no")

    store = ArtifactStore(tmp_path)
    with pytest.raises(error, match="no") as caught:
        store.get_or_compute("graph", KEY, fail)
    assert caught.type is error
    assert entries(tmp_path) == []
    assert not store.get_or_compute("graph", KEY, small)[1]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (KeyboardInterrupt("now"), KeyboardInterrupt, "now"),
        (OSError(errno.ENOSPC, "full"), ConfigError, r"No space left on device\); free space"),
        (OSError(errno.EFBIG, "large"), ConfigError, r"File too large\); free space"),
        (OSError(errno.EIO, "bad"), ConfigError, r"error\); make the folder accessible"),
    ],
)
def test_a_failed_writing_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    kind: type[BaseException],
    words: str,
) -> None:
    def fail(_: int) -> None:
        raise error

    store = ArtifactStore(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match=words) as caught:
        store.get_or_compute("graph", KEY, small)
    assert entries(tmp_path) == []
    if kind is ConfigError:
        assert str(caught.value).startswith(f"paths.store={tmp_path}: graph-")
        assert "point paths.store elsewhere" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").touch()
    compute = Counter()
    with pytest.raises(ConfigError, match=r"paths\.store=.*file.*accessible, or point paths.store"):
        ArtifactStore(tmp_path / "file" / inside).get_or_compute("graph", KEY, compute)
    assert compute.calls == 0  # not after hours of work


def test_a_folder_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "read-only", str(path))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    compute = Counter()
    with pytest.raises(ConfigError, match=r"written \(Read-only file system\); make the folder"):
        ArtifactStore(tmp_path).get_or_compute("graph", KEY, compute)
    assert compute.calls == 0


def test_a_store_that_cannot_be_written_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path)
    store.get_or_compute("graph", KEY, small)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("something was written")

    monkeypatch.setattr(store_module, "locked", never)
    monkeypatch.setattr(Path, "mkdir", never)
    assert store.get_or_compute("graph", KEY, Counter())[1]


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
    assert process.pid is not None
    os.kill(process.pid, sign)
    process.join()
    assert process.exitcode != 0
    return entries(folder)


@pytest.mark.parametrize(
    ("target", "left"), [(_hang_in_compute, [".lock"]), (_hang_in_writing, [".lock", ".part"])]
)
def test_a_killed_process_holds_nobody_up(
    tmp_path: Path, target: Callable[[str, str], None], left: list[str]
) -> None:
    store = ArtifactStore(tmp_path / "store")
    assert [
        Path(name).suffix for name in killed_at(target, store.directory, signal.SIGKILL)
    ] == left
    start = time.monotonic()
    artifact, found = store.get_or_compute("graph", KEY, small)
    assert time.monotonic() - start < 30
    assert not found
    assert same(artifact.tensors["x"], small().tensors["x"])
    # What the dead process left is gone as well.
    assert entries(store.directory) == [store.path("graph", KEY).name]
    assert store.get_or_compute("graph", KEY, Counter())[1]


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    assert killed_at(_hang_in_writing, tmp_path / "store", signal.SIGINT) == []

"""Files of a dataset: downloaded once into its folder, and verified."""

import logging
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robust_diffusion.errors import DataError
from robust_diffusion.system.files import (
    MOST_RATIO,
    MOST_UNPACKED,
    check_readable,
    locked,
    written_whole,
)
from robust_diffusion.system.hashes import file_hash

log = logging.getLogger(__name__)

LOCK = ".lock"
_TIMEOUT = 30

_State = Literal["present", "missing", "damaged"]


@dataclass(frozen=True)
class FileStatus:
    """State of one file."""

    path: Path  # its path, whether it exists or not
    state: _State  # `present` and verified, `missing`, or `damaged`
    sha256: str | None = None  # hash of the content, if there is any
    detail: str = ""  # the damage, or the mirrors of a missing file


class DatasetFolder:
    """A folder of named files with mirrors and, if known, hashes.

    Args:
        root: The data directory.
        path: The folder, relative to `root`.
        files: File name -> options: `urls`, the mirrors in the order in which they are tried, and
            optionally `sha256`.
        download: Download missing files; if false, a missing file is an error.
        urls: Pages from which to download the files by hand, for error messages.
    """

    def __init__(
        self,
        root: str | Path,
        path: str,
        files: Mapping[str, Mapping[str, Any]],
        *,
        download: bool = True,
        urls: Sequence[str] = (),
    ) -> None:
        self.folder = Path(root) / path
        self._relative = path
        self.names = list(files)
        self._urls = {name: list(options.get("urls") or []) for name, options in files.items()}
        self._sha256 = {name: options.get("sha256") for name, options in files.items()}
        self._download_missing = download
        self._pages = list(urls)

    def file(self, name: str) -> Path:
        """Return the path of a verified file, downloading it if it is missing.

        Raises:
            DataError: The file is missing and cannot be downloaded, or has another hash.
        """
        path = self.folder / name
        if not path.is_file():
            self._fetch(name)
        status = self._status(name)
        if status.state == "damaged":
            remedy = "delete the file to fetch it again, or correct its hash"
            if not self._urls[name]:  # deleting the only copy would lose it
                remedy = "correct its hash if the file is right, or replace the file"
            raise DataError(f"{path}: {status.detail}; {remedy}")
        return path

    def status(self) -> list[FileStatus]:
        """Return the state of every file, without downloading or writing anything."""
        return [self._status(name) for name in self.names]

    def _status(self, name: str) -> FileStatus:
        path = self.folder / name
        if not path.is_file():
            return FileStatus(path, "missing", detail="; ".join(self._urls[name]))
        try:
            digest = file_hash(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
        expected = self._sha256[name]
        if expected in (None, digest):
            return FileStatus(path, "present", digest)
        return FileStatus(path, "damaged", digest, f"expected sha256 {expected}, got {digest}")

    def _fetch(self, name: str) -> None:
        path, urls = self.folder / name, self._urls[name]
        by_hand = "".join(f"fetch {url} and " for url in (self._pages or urls)[:1]) + (
            f"put the file there by hand, or point paths.data_dir or ROBUST_DIFFUSION_DATA to the "
            f"folder that holds {self._relative}/"
        )
        if not urls or not self._download_missing:
            raise DataError(f"{path}: not found; {by_hand}")
        failures = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # If two processes need the file, the second waits until it is downloaded.
            with locked(self.folder / LOCK):
                for url in urls:
                    if path.is_file():
                        break
                    if failure := _download(url, path, self._sha256[name]):
                        failures.append(f"{url}: {failure}")
        except OSError as error:
            raise DataError(
                f"{path}: not found, and {self.folder} cannot be written "
                f"({error.strerror or error}); {by_hand}"
            ) from error
        if not path.is_file():
            raise DataError(f"{path}: not found, not downloaded ({'; '.join(failures)}); {by_hand}")


class LocalFolder(DatasetFolder):
    """A user-defined folder, without downloads or hashes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ".", {})

    def file(self, name: str) -> Path:
        """Return the path of a file; raise a `DataError` if it does not exist."""
        require(path := self.folder / name)
        return path


def require(path: Path) -> None:
    """Raise a DataError if there is no such file, or only a sparse one."""
    if not path.is_file():
        raise DataError(f"{path}: not found; check the path")
    check_readable(path)


def check_archive(path: Path) -> None:
    """Compare every byte with the checksums, which numpy and torch may skip."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > max(MOST_UNPACKED, MOST_RATIO * path.stat().st_size):
            raise zipfile.BadZipFile(f"it would unpack to {unpacked / 2**30:.1f} GiB")
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename} is compressed in an unknown way")
        if (broken := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{broken} does not match its checksum")


def _download(url: str, path: Path, sha256: str | None) -> str | None:
    """Download to a temporary name, check, and rename; return the reason of a failure, if any."""
    import pooch  # imported late, like requests, since most files exist already
    import requests

    # pooch would log every address and hash again.
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        with written_whole(path, locked=True) as part:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{sha256}" if sha256 else None,
                fname=part.name,
                path=part.parent,
                downloader=pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_TIMEOUT),
            )
            if problem := _unusable(part, path.suffix):
                part.unlink()
                return problem
        log.info("downloaded %s", path)
    except requests.HTTPError as error:
        return f"the server answered {error.response.status_code}"
    except requests.Timeout:
        return f"no answer in {_TIMEOUT} s"
    except requests.ConnectionError:
        return "the server cannot be reached: no network, or it is down"
    except (requests.RequestException, ValueError) as error:  # pooch's ValueError: another hash
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _unusable(path: Path, suffix: str) -> str | None:
    """Return the reason why the content cannot be a data file, or `None`."""
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if not start:
        return "it is empty"
    if start[:1] == b"<":
        return "it is a web page, not data"
    if suffix == ".npz":
        try:
            check_archive(path)
        except Exception as error:  # zipfile raises anything on damaged bytes
            return f"it is cut short or no npz file ({' '.join(str(error).split())})"
    return None

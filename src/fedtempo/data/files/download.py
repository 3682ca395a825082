"""Getting published files: by download, or from a folder that already has them.

A file appears under its name only when all of its bytes are there and have the pinned SHA-256. One process at a
time works on a file (the others wait, then find it), and an interrupted download goes on where it stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedtempo.data.files.folders import Fingerprint, check_sum, present, sha256_of
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.safe import exclusively, kind_of
from fedtempo.errors import DataError, OutputError
from fedtempo.support.extras import library
from fedtempo.support.files import replacing

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there and the bytes there will be."""
TIMEOUT = 30.0
_CHUNK = 1 << 16
_PART = "part"
_REASONS = {
    "ConnectionError": "no connection",
    "ConnectTimeout": "no answer",
    "ReadTimeout": "no answer",
    "InvalidSchema": "it leads to an address that is neither http nor https",
}


def get_files(
    data_set: DataSet,
    cache: Path,
    source: str | Path | None = None,
    mirror: str | None = None,
    progress: Progress = lambda name, done, total: None,
) -> list[Path]:
    """The files of a data set in the cache: copied from the folder `source`, or downloaded.

    `mirror` is an address that holds `<folder>/<file>` for every file; the sums are the same.
    """
    name = data_set.name
    if not data_set.ways:
        return []
    if source is not None:
        return _take_all(data_set, Path(source).expanduser(), cache)
    if not data_set.downloads:
        raise DataError(
            f"data set {name!r} cannot be downloaded as files. Get {_needed(data_set)} by way of {data_set.page}, "
            f"then `fedtempo data get {name} --from DIR`."
        )
    found = []
    for file in data_set.downloads:
        folder = file.folder or data_set.folder
        url = str(file.url) if mirror is None else f"{mirror.rstrip('/')}/{folder}/{file.name}"
        found.append(fetch(file, cache / "files" / folder, url, progress))
    return found


def fetch(file: File, folder: Path, url: str, progress: Progress = lambda name, done, total: None) -> Path:
    """Download one file into a folder, unless it is already there, whole and unaltered."""
    _check_address(url)
    path = folder / file.name
    incoming = folder / f".{file.name}.incoming"
    with exclusively(path):
        if path.is_file() and sha256_of(path) in file.sha256:
            return path
        resumed = (incoming / _PART).is_file()
        try:
            return _retrieve(file, path, incoming, url, progress)
        except _WrongSumError:
            if not resumed:
                raise
        # What was there belonged to another version of the file: once more, from the start.
        return _retrieve(file, path, incoming, url, progress)


class _WrongSumError(DataError):
    """The bytes came, and are not the ones wanted."""


def _retrieve(file: File, path: Path, incoming: Path, url: str, progress: Progress) -> Path:
    """Everything unfinished lives in `incoming`, which goes when the file is there or turns out to be another."""
    requests = library("requests", "data", "a download", DataError)
    part = incoming / _PART
    try:
        incoming.mkdir(parents=True, exist_ok=True)
        _resume(file, part, url, progress)
        if (found := sha256_of(part)) != file.sha256[0]:
            raise _WrongSumError(
                f"{file.name} from {url} is not the published file: it must have the SHA-256 {file.sha256[0]}. "
                f"Got {found}."
            )
        part.replace(path)
    except requests.RequestException as error:
        if not part.is_file():
            shutil.rmtree(incoming, ignore_errors=True)
        raise DataError(
            f"{file.name} could not be downloaded from {url} ({_reason(error)}). Run the command again to go on, "
            f"or put the file into {path.parent}."
        ) from None
    except DataError:
        shutil.rmtree(incoming, ignore_errors=True)
        raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None
    shutil.rmtree(incoming, ignore_errors=True)
    return path


def _resume(file: File, part: Path, url: str, progress: Progress) -> None:
    """Fill `part` up to the file's size, going on after the bytes that are there if the server can."""
    have = part.stat().st_size if part.is_file() else 0
    if have > file.size:
        part.unlink()
        have = 0
    if have == file.size:
        return
    requests = library("requests", "data", "a download", DataError)
    headers = {"Range": f"bytes={have}-"} if have else {}
    # Accept-Encoding: the bytes as they are, so that sizes and offsets mean the same to both sides.
    headers["Accept-Encoding"] = "identity"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        for earlier, later in pairwise([*response.history, response]):
            _check_address(later.url, before=earlier.url)
        response.raise_for_status()
        have = have if response.status_code == requests.codes.partial_content else 0
        with part.open("r+b" if have else "wb") as stream:
            stream.seek(have)
            for chunk in response.iter_content(_CHUNK):
                have += len(chunk)
                if have > file.size:
                    raise DataError(f"{file.name} from {url} must have {file.size} bytes. Got more.")
                stream.write(chunk)
                progress(file.name, have, file.size)
    if have < file.size:
        _check_short(file, part, url)


def _check_short(file: File, part: Path, url: str) -> None:
    """A transfer that ended well but early was another file, such as an error page: going on would not help."""
    with part.open("rb") as stream:
        start = stream.read(512)
    found, sum_found = part.stat().st_size, sha256_of(part)
    raise DataError(
        f"{file.name} from {url} must have {file.size} bytes and the SHA-256 {file.sha256[0]}. "
        f"Got {found} bytes, SHA-256 {sum_found}: {kind_of(start)}."
    )


def _check_address(url: str, before: str | None = None) -> None:
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https"):
        raise DataError(f"the address must be http or https. Got {url!r}.")
    if before is not None and urlsplit(before).scheme == "https" and scheme == "http":
        raise DataError(f"the address {before!r} must not lead to an unencrypted one. Got {url!r}.")


def _reason(error: Any) -> str:
    """What went wrong, from one of the exceptions of `requests`."""
    kind = type(error).__name__
    if kind == "HTTPError" and error.response is not None:
        return f"the server answered {error.response.status_code}"
    return _REASONS.get(kind, "the connection broke off")


def _needed(data_set: DataSet) -> str:
    return " or ".join(" + ".join(way) for way in data_set.ways)


def _take_all(data_set: DataSet, source: Path, cache: Path) -> list[Path]:
    found = present(data_set, source, cache)
    if found is None:
        folders = f"{source / data_set.folder} or {source}"
        raise DataError(f"data set {data_set.name!r} needs {_needed(data_set)}; not all of it is in {folders}.")
    return [_take(data_set.file(file), path, cache / "files", data_set.folder) for file, path in found.items()]


def _take(file: File, path: Path, files: Path, folder: str) -> Path:
    """Copy a file into the cache, if it is the published one."""
    check_sum(file, Fingerprint(path.stat().st_size, sha256_of(path)), path)
    target = files / (file.folder or folder) / file.name
    with exclusively(target), replacing(target) as partial:
        shutil.copyfile(path, partial)
    return target

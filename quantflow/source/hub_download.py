"""Files of the hub into its own cache, going on where an earlier run was stopped.

The hub's client begins a file anew in every process. Model files are large and networks fail, so that files
are fetched here piece by piece under their content's hash, checked, and put where that client looks for them.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import httpx
from huggingface_hub import HfApi, constants, get_session, hf_hub_url
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._fixes import WeakFileLock
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import hf_raise_for_status

from quantflow.errors import SourceError
from quantflow.pipeline.events import Reporter

WORKERS = 4
"""Files fetched at once: enough to fill most lines, few enough for a hub not to mind."""
FRUITLESS_ATTEMPTS = 5
"""Failures in a row, without a byte between them, after which a file is given up."""
LONGEST_PAUSE = 8.0
"""Seconds between two attempts, at most; the first pause is a sixteenth of it."""
TIMEOUT = httpx.Timeout(30.0)
CHUNK_BYTES = 1 << 20
MEGABYTE = 1_000_000
_TRANSIENT = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Blob:
    """A file of a repository.

    Attributes:
        name: Its name there.
        size: Bytes.
        etag: What its content is known by: SHA-256 of a large file, git's hash of a small one.
    """

    name: str
    size: int
    etag: str


def fill_cache(repository: str, commit: str, patterns: Sequence[str], reporter: Reporter) -> None:
    """Bring files of a repository into the hub's cache, each complete and checked.

    Args:
        repository: Hub id, `org/name`.
        commit: 40 hex digits.
        patterns: Which files, names of which `*` stands for anything.
        reporter: Receives progress.

    Raises:
        SourceError: A file's content is not what the hub says it is.
        httpx.HTTPError: The hub cannot be reached, in the hub client's own words.
    """
    blobs = [blob for blob in _list(repository, commit) if any(fnmatchcase(blob.name, p) for p in patterns)]
    folder = Path(constants.HF_HUB_CACHE).expanduser() / repo_folder_name(
        repo_id=repository, repo_type="model"
    )
    missing = [blob for blob in blobs if not (folder / "blobs" / blob.etag).exists()]
    # Beyond this size the hub hands files out by its own protocol alone, which its client speaks.
    missing = [blob for blob in missing if blob.size <= constants.MAX_HTTP_DOWNLOAD_SIZE]
    if not missing:
        return
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    total = sum(blob.size for blob in missing)
    with reporter.track(f"Fetching {repository}, MB", max(1, round(total / MEGABYTE))) as advance:
        meter = _Meter(advance)
        with ThreadPoolExecutor(WORKERS) as pool:
            tasks = [pool.submit(_fetch, repository, commit, blob, folder, meter) for blob in missing]
            try:
                for task in tasks:
                    task.result()
            except BaseException:
                meter.stop()  # the others end at their next piece, and keep what they have
                raise


def has_content(path: Path, etag: str) -> bool:
    """Whether a file's content is what its etag says; True where the etag does not tell.

    The hub's etags are the SHA-256 of large files and git's hash of small ones; mirrors may give the plain
    SHA-1.
    """
    if re.fullmatch(r"[0-9a-f]{64}", etag):
        return _digest(path, hashlib.sha256()) == etag
    if re.fullmatch(r"[0-9a-f]{40}", etag):
        git = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
        return etag in (_digest(path, git), _digest(path, hashlib.sha1(usedforsecurity=False)))
    return True


class _Meter:
    """Adds up what several threads fetch and tells it in whole megabytes."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance
        self._lock = threading.Lock()
        self._bytes = 0
        self._told = 0
        self.stopped = threading.Event()

    def add(self, count: int) -> None:
        with self._lock:
            self._bytes += count
            whole = self._bytes // MEGABYTE
            if whole > self._told:
                self._advance(whole - self._told)
                self._told = whole

    def stop(self) -> None:
        self.stopped.set()


def _list(repository: str, commit: str) -> Iterator[Blob]:
    for entry in HfApi().list_repo_tree(repository, revision=commit):
        if isinstance(entry, RepoFile):
            yield Blob(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)


def _fetch(repository: str, commit: str, blob: Blob, folder: Path, meter: _Meter) -> None:
    place = folder / "blobs" / blob.etag
    partial = place.with_name(f"{blob.etag}.quantflow.incomplete")
    attempts = _Attempts(meter)
    with _locked(folder, blob):
        if place.exists():  # another run was faster
            return
        meter.add(_size(partial))
        while _size(partial) < blob.size or not partial.exists():
            with attempts.counted(partial):
                _append(repository, commit, blob, partial, meter)
            if meter.stopped.is_set():
                return
            if attempts.exhausted:
                break
        if _size(partial) != blob.size or not has_content(partial, blob.etag):
            partial.unlink(missing_ok=True)
            raise SourceError(
                f"the hub gave {blob.name} another content than it lists: a transfer or a mirror is at fault",
                where=f"{repository} at {commit}",
                hint="What was fetched of it is thrown away: run again, or set HF_ENDPOINT to another hub.",
            )
        partial.replace(place)


def _append(repository: str, commit: str, blob: Blob, partial: Path, meter: _Meter) -> None:
    """Fetch the rest of a file, as far as the connection lasts."""
    begin = _size(partial)
    # Without compression, so that a byte's place in the file is its place in the transfer.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
    url = hf_hub_url(repository, blob.name, revision=commit)
    with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT) as response:
        if response.is_error:
            response.read()
            hf_raise_for_status(response)
        if begin and not _begins_at(response, begin):
            meter.add(-begin)
            begin = 0
        with partial.open("ab" if begin else "wb") as file:
            for chunk in response.iter_bytes():  # as they come: a larger piece would be lost with the line
                file.write(chunk)
                meter.add(len(chunk))
                if file.tell() > blob.size or meter.stopped.is_set():
                    return


def _begins_at(response: httpx.Response, begin: int) -> bool:
    """Whether an answer is the part that was asked for; a server may send the whole file all the same."""
    given = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return (
        response.status_code == httpx.codes.PARTIAL_CONTENT and given is not None and int(given[1]) == begin
    )


class _Attempts:
    """Counts requests in a row that brought nothing, and pauses after each that failed."""

    def __init__(self, meter: _Meter) -> None:
        self._meter = meter
        self._fruitless = 0

    @property
    def exhausted(self) -> bool:
        return self._fruitless >= FRUITLESS_ATTEMPTS

    @contextmanager
    def counted(self, partial: Path) -> Iterator[None]:
        """Tolerate a failure that can pass, unless there have been too many."""
        before = _size(partial)
        failure: httpx.HTTPError | None = None
        try:
            yield
        except httpx.HTTPError as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status not in (None, *_TRANSIENT) or isinstance(error, httpx.UnsupportedProtocol):
                raise
            failure = error
        self._fruitless = 0 if _size(partial) > before else self._fruitless + 1
        if failure is not None:
            if self.exhausted:
                raise failure
            self._meter.stopped.wait(min(LONGEST_PAUSE, LONGEST_PAUSE / 16 * 2**self._fruitless))


@contextmanager
def _locked(folder: Path, blob: Blob) -> Iterator[None]:
    """Let one process at a time write a partial file."""
    locks = folder.parent / ".locks" / folder.name
    locks.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(locks / f"{blob.etag}.quantflow.lock"):
        yield


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _digest(path: Path, digest: "hashlib._Hash") -> str:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()

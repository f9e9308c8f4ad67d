"""Makes room in the store: what dead runs left first, then objects by last use, never one that is in use."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.errors import StoreError
from quantflow.pipeline.history import RunHistory
from quantflow.pipeline.storage import remedy
from quantflow.pipeline.store import LOCKS, MANIFEST, PARTIAL, Manifest, Store

STORE = "store"
OF_NO_USE = ("unfinished", "damaged")
ABANDONED_SECONDS = 14 * 86_400.0
"""A run that nobody took up again for two weeks was of a recipe, or of code, that has changed since."""


class Removed(BaseModel):
    """One folder of the store that is gone, or would be.

    Attributes:
        kind: `unfinished` output of a dead run, `damaged` object, or the kind of stage.
        key: Its address.
        last_used: Seconds since the epoch.
        freed_bytes: What the disk gets back.
        shared_bytes: What it does not, as files are hard links that others hold as well.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    key: str
    last_used: float
    freed_bytes: int
    shared_bytes: int


class Cleaning(BaseModel):
    """What a cleaning came to.

    Attributes:
        dry_run: Whether it only looked.
        removed: In the order of removal.
        kept: Folders that stay.
        kept_bytes: Their size.
        in_use: Those of them that running runs use.
        needed: Those of them that would have gone, were they not inputs of others that stay.
    """

    model_config = ConfigDict(frozen=True)

    dry_run: bool
    removed: tuple[Removed, ...]
    kept: int
    kept_bytes: int
    in_use: int
    needed: int

    @property
    def freed_bytes(self) -> int:
        """What the disk gets back."""
        return sum(item.freed_bytes for item in self.removed)

    @property
    def shared_bytes(self) -> int:
        """What others still hold."""
        return sum(item.shared_bytes for item in self.removed)


@dataclass(frozen=True)
class _Item:
    """A folder of the store."""

    folder: Path
    kind: str
    key: str
    inputs: frozenset[str]
    last_used: float
    own: int
    shared: int

    @property
    def bytes(self) -> int:
        return self.own + self.shared

    @property
    def of_no_use(self) -> bool:
        return self.kind in OF_NO_USE


def clean(
    workspace: Path,
    *,
    older_than: float | None = None,
    keep: int | None = None,
    dry_run: bool = False,
) -> Cleaning:
    """Remove what has not been used for long, or the least recently used beyond a size.

    An object that a running run has named, or that is an input of one that stays, stays.

    Args:
        workspace: The workspace, `.quantflow`.
        older_than: Remove what was last used longer ago, seconds.
        keep: Remove until the store has at most this size, bytes.
        dry_run: Only say what would go.

    Raises:
        StoreError: The store cannot be read or written.
    """
    store = Store(workspace / STORE)
    cutoff = time.time() - older_than if older_than is not None else None
    with RunHistory(workspace).cleaning() as used:
        shelf = _Shelf(
            sorted(_items(store), key=lambda item: (not item.of_no_use, item.last_used)), set(used)
        )
        removed: list[Removed] = []
        # Each removal may leave an input that nobody needs any more: it is looked for from the oldest on.
        while (item := shelf.next_to_go(cutoff, keep)) is not None:
            if _remove(store, item, dry_run=dry_run):
                shelf.take(item)
                removed.append(_removed(item))
            else:
                shelf.busy.add(item.key)
    return Cleaning(
        dry_run=dry_run,
        removed=tuple(removed),
        kept=len(shelf.items),
        kept_bytes=shelf.bytes,
        in_use=sum(item.key in shelf.busy for item in shelf.items),
        needed=sum(shelf.is_needed(item) and shelf.is_unwanted(item, cutoff, keep) for item in shelf.items),
    )


def sweep(workspace: Path, older_than: float = ABANDONED_SECONDS) -> tuple[Removed, ...]:
    """Remove what interrupted runs left unfinished and nobody took up again.

    Args:
        workspace: The workspace, `.quantflow`.
        older_than: Seconds since something was last written to it.

    Returns:
        What is gone.

    Raises:
        StoreError: The store cannot be written.
    """
    store, cutoff = Store(workspace / STORE), time.time() - older_than
    with RunHistory(workspace).cleaning() as used:
        left = [_item(folder, "unfinished", None) for folder in store.unfinished()]
        old = [item for item in left if item.last_used < cutoff and item.key not in used]
        return tuple(_removed(item) for item in old if _remove(store, item, dry_run=False))


class _Shelf:
    """What stays, in the order in which it would go.

    Attributes:
        items: What stays.
        busy: Keys that some process uses.
        bytes: Size of what stays.
    """

    def __init__(self, items: Sequence[_Item], busy: set[str]) -> None:
        self.items = list(items)
        self.busy = busy
        self.bytes = sum(item.bytes for item in items)
        self._users = Counter(key for item in items for key in item.inputs)

    def next_to_go(self, cutoff: float | None, keep: int | None) -> _Item | None:
        """The first that is neither wanted nor in use nor needed."""
        for item in self.items:
            if (
                item.key not in self.busy
                and self.is_unwanted(item, cutoff, keep)
                and not self.is_needed(item)
            ):
                return item
        return None

    def take(self, item: _Item) -> None:
        """Let one go."""
        self.items.remove(item)
        self.bytes -= item.bytes
        self._users.subtract(item.inputs)

    def is_unwanted(self, item: _Item, cutoff: float | None, keep: int | None) -> bool:
        """Whether it is too old, or there is too much."""
        return (cutoff is not None and item.last_used < cutoff) or (keep is not None and self.bytes > keep)

    def is_needed(self, item: _Item) -> bool:
        """Whether something that stays was made from it."""
        return item.kind not in OF_NO_USE and self._users[item.key] > 0


def _items(store: Store) -> Iterator[_Item]:
    for folder in store.unfinished():
        yield _item(folder, "unfinished", None)
    for folder, manifest in store.objects():
        yield _item(folder, folder.parent.name if manifest is not None else "damaged", manifest)


def _item(folder: Path, kind: str, manifest: Manifest | None) -> _Item:
    own = shared = 0
    newest = folder.stat().st_mtime
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            newest = max(newest, stat.st_mtime)
            if stat.st_nlink > 1:
                shared += stat.st_size
            else:
                own += stat.st_size
    inputs = manifest.made_from.get("inputs") if manifest is not None else None
    return _Item(
        folder=folder,
        kind=kind,
        key=folder.name,
        inputs=frozenset(map(str, inputs.values())) if isinstance(inputs, dict) else frozenset(),
        # The runner touches the manifest of every object that a run takes from the store.
        last_used=(folder / MANIFEST).stat().st_mtime if manifest is not None else newest,
        own=own,
        shared=shared,
    )


def _removed(item: _Item) -> Removed:
    return Removed(
        kind=item.kind,
        key=item.key,
        last_used=item.last_used,
        freed_bytes=item.own,
        shared_bytes=item.shared,
    )


def _remove(store: Store, item: _Item, *, dry_run: bool) -> bool:
    """Remove a folder unless a process holds its key; whether it is gone, or would be."""
    with store.lock_if_free(item.key) as free:
        if not free or dry_run:
            return free
        # Out of sight at once, so that whoever looks meanwhile sees it whole or not at all.
        doomed = store.root / PARTIAL / f"{item.key}.{os.getpid()}.removed"
        try:
            doomed.parent.mkdir(exist_ok=True)
            item.folder.rename(doomed)
            shutil.rmtree(doomed)
            # Nobody waits for it: a run names its keys first, and for that waits until this cleaning is over.
            (store.root / LOCKS / item.key).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"it cannot be removed: {error.strerror}",
                where=str(item.folder),
                hint=f"What was removed before stays removed; the store is sound. {remedy(error)}".strip(),
            ) from error
    return True

"""Limits that a container or a job scheduler puts on this process, from control groups of either version."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

ROOT = Path("/")
# Version 1 writes "no limit" as the largest number of whole pages; anything near it limits nothing.
NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class MemoryLimit:
    """The tightest limit on this process's memory.

    Attributes:
        limit: Bytes that the group may hold.
        left: Bytes still to be had under it; file cache that the kernel can drop counts as left.
    """

    limit: int
    left: int


def memory_limit(root: Path = ROOT) -> MemoryLimit | None:
    """The limit that leaves the least, of this process's group and all above it; None where there is none.

    Args:
        root: Where `proc` and `sys` lie; for tests.
    """
    found = [
        *_limits(root, "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        *_limits(root, "", "memory.max", "memory.current", "inactive_file"),
    ]
    return min(found, key=lambda limit: limit.left, default=None)


def processor_limit(root: Path = ROOT) -> int | None:
    """Cores that this process's groups may keep busy, rounded up; None where there is no quota."""
    quotas = []
    for folder in _groups(root, ""):
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    for folder in _groups(root, "cpu"):
        quota, period = (_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota is not None and quota > 0 and period:
            quotas.append(quota / period)
    return max(1, ceil(min(quotas))) if quotas else None


def _limits(root: Path, controller: str, limit: str, usage: str, droppable: str) -> Iterator[MemoryLimit]:
    for folder in _groups(root, controller):
        most, used = _number(folder / limit), _number(folder / usage)
        if most is None or used is None or most >= NO_LIMIT:
            continue
        cache = _statistic(folder / "memory.stat", droppable)
        yield MemoryLimit(most, max(0, most - used + cache))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and those above it, the innermost first.

    Args:
        root: Where `proc` and `sys` lie.
        controller: Name of a version 1 controller; empty for the unified hierarchy of version 2.
    """
    mount = _mount(root, controller)
    if mount is None:
        return
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if controller not in names.split(","):
            continue
        folder = mount / path.lstrip("/")
        # Inside a container the path may be the host's, and only the mount itself is there to be seen.
        for place in (folder, *folder.parents):
            if place.is_dir():
                yield place
            if place == mount:
                return


def _mount(root: Path, controller: str) -> Path | None:
    for line in _read(root / "proc/self/mounts").splitlines():
        _, place, kind, options = line.split(" ")[:4]
        if (kind == "cgroup" and controller and controller in options.split(",")) or (
            kind == "cgroup2" and not controller
        ):
            return root / place.lstrip("/")
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_read(path))
    except ValueError:  # empty, or the word "max"
        return None


def _statistic(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0

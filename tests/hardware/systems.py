"""A `proc` and a `sys` of our own making."""

from pathlib import Path

MEMINFO = "MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {available} kB\nSwapFree: 5 kB\n"
KB = 1024


def make_system(
    root: Path,
    *,
    total_kb: int = 16_000,
    available_kb: int = 8_000,
    mounts: str = "",
    groups: str = "",
    files: dict[str, str] | None = None,
) -> Path:
    """Write the files that the hardware is read from.

    Args:
        root: Folder to take for `/`.
        total_kb: MemTotal.
        available_kb: MemAvailable.
        mounts: Content of /proc/self/mounts.
        groups: Content of /proc/self/cgroup.
        files: Path under the root → content.
    """
    texts = {
        "proc/meminfo": MEMINFO.format(total=total_kb, available=available_kb),
        "proc/self/mounts": mounts,
        "proc/self/cgroup": groups,
        **(files or {}),
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root

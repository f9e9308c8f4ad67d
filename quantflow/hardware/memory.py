"""How much memory there is and how much of it this process can have."""

from dataclasses import dataclass
from pathlib import Path

from quantflow.hardware.cgroup import ROOT, memory_limit


@dataclass(frozen=True)
class Memory:
    """Main memory, bytes.

    Attributes:
        total: What the machine has, or the control group's limit where that is less.
        available: What this process can have without anything being swapped out or killed.
        limit: The control group's limit; None where there is none.
        swap_free: Free swap space; not counted as available, as a run that needs it does not end.
    """

    total: int
    available: int
    limit: int | None
    swap_free: int


def find_memory(root: Path = ROOT) -> Memory | None:
    """Memory of this machine; None where the system does not say (only Linux does).

    Args:
        root: Where `proc` and `sys` lie; for tests.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (x.partition(":") for x in lines)}
        total, available = fields["MemTotal"], fields["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return None
    group = memory_limit(root)
    if group is not None and group.limit < total:
        total = group.limit
    if group is not None:
        available = min(available, group.left)
    limit = group.limit if group is not None else None
    return Memory(total, available, limit, fields.get("SwapFree", 0))

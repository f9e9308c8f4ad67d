"""The processor: its name, the cores this process may use, and its instruction sets."""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from quantflow.hardware.cgroup import ROOT, processor_limit

_NAME_FIELDS = re.compile(r"^(?:model name|Model|cpu model|Hardware)\s*:\s*(.+)$", re.MULTILINE)
_FLAG_FIELDS = re.compile(r"^(?:flags|Features)\s*:\s*(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Processor:
    """What computes where there is no GPU.

    Attributes:
        name: As the system calls it.
        architecture: Family, e.g. `x86_64`.
        cores: Cores that this process may use: affinity and a control group's quota allowed for.
        flags: Features of the processor in the kernel's spelling, e.g. `avx512_vnni`.
    """

    name: str
    architecture: str
    cores: int
    flags: frozenset[str]


def find_processor(root: Path = ROOT) -> Processor:
    """The processor of this machine.

    Args:
        root: Where `proc` and `sys` lie; for tests.
    """
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    name, flags = _NAME_FIELDS.search(text), _FLAG_FIELDS.search(text)
    architecture = platform.machine()
    return Processor(
        name=name[1].strip() if name else platform.processor() or architecture,
        architecture=architecture,
        cores=min(_allowed_cores(), processor_limit(root) or os.cpu_count() or 1),
        flags=frozenset(flags[1].split()) if flags else frozenset(),
    )


def _allowed_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

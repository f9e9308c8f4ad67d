"""What a stage takes of the machine while it runs: processor time and peak memory, kept with its output."""

import ctypes
import gc
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.hardware.gpu import find_gpus, first_visible
from quantflow.hardware.processor import find_processor

PROC = Path("/proc")
# Seconds between two looks at child processes: a stage starts few, and what they hold they hold for longer.
INTERVAL = 0.25
# Environment that sets how many threads torch computes with.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


class Usage(BaseModel):
    """What a stage took.

    Attributes:
        cpu_seconds: Processor time of all threads and of finished child processes.
        peak_memory: Most resident memory of the process and its children, bytes (VmHWM); None where the
            system does not tell it for the stage alone.
        computed_on: The machine, as `machine_name` has it.
        resumed: Whether an earlier run had done a part of the work, which is not in these figures.
    """

    model_config = ConfigDict(frozen=True)

    cpu_seconds: float
    peak_memory: int | None
    computed_on: str
    resumed: bool = False


@cache
def machine_name(device: str) -> str:
    """What decides how fast a stage runs here; equal names may be compared.

    Args:
        device: `cpu` or `cuda`.
    """
    processor = find_processor()
    parts = [processor.name, f"{processor.cores} cores", f"torch {version('torch')}"]
    parts += [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if os.environ.get(name)]
    gpu = first_visible(find_gpus()) if device == "cuda" else None
    return ", ".join([*parts, gpu.name] if gpu else parts)


@contextmanager
def metered(device: str, *, resumed: bool = False) -> Iterator[Callable[[], Usage]]:
    """Measure what happens inside; yields a function that says what it took so far.

    Args:
        device: Where stages compute: `cpu` or `cuda`.
        resumed: Whether an earlier run had done a part of the work.
    """
    begun = _cpu_seconds()
    before = None if _reset_peak() else _peak("self")
    stop, children = threading.Event(), [0]
    sampler = threading.Thread(target=_watch_children, args=(stop, children), daemon=True)
    sampler.start()

    def usage() -> Usage:
        peak = _peak("self")
        if before is not None and peak == before:
            peak = None  # the high-water mark is that of an earlier stage
        return Usage(
            cpu_seconds=round(_cpu_seconds() - begun, 3),
            peak_memory=None if peak is None else peak + children[0],
            computed_on=machine_name(device),
            resumed=resumed,
        )

    try:
        yield usage
    finally:
        stop.set()
        sampler.join()


def release_memory() -> None:
    """Give the system back what earlier stages freed and the allocator holds on to.

    Some hundred MB stay with glibc's allocator after a stage has let go of its tensors; on a machine that is
    nearly full the next stage needs them. Other allocators have no such call, and are left alone.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _reset_peak() -> bool:
    """Start the process's high-water mark anew from what it holds now, see proc(5), `clear_refs`."""
    try:
        (PROC / "self" / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak(process: str) -> int | None:
    try:
        found = _PEAK.search((PROC / process / "status").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _watch_children(stop: threading.Event, most: list[int]) -> None:
    while not stop.wait(INTERVAL):
        most[0] = max(most[0], sum(_peak(child) or 0 for child in _descendants("self")))


def _descendants(process: str) -> Iterator[str]:
    try:
        threads = list((PROC / process / "task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield child
            yield from _descendants(child)

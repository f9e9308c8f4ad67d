"""What the quantization of a model takes, told by the process that does it; needs nothing but Python.

Every tool is measured by this same clock: from before its model is loaded to after its artifact is saved,
imports left out.
"""

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def measured() -> Iterator[None]:
    """Time what is inside; then print one line of JSON: seconds, processor seconds, peak memory in bytes."""
    started, used = time.monotonic(), _cpu_seconds()
    yield
    taken = {
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(_cpu_seconds() - used, 1),
        "peak_bytes": _peak_bytes(),
    }
    print(f"\n{json.dumps(taken)}", flush=True)


def _cpu_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _peak_bytes() -> int:
    """VmHWM of this process, imports and all."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

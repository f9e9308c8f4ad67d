import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quantflow.pipeline import usage as usage_module
from quantflow.pipeline.usage import machine_name, metered, release_memory

MB = 1 << 20


def test_peak_memory_is_of_the_stage_alone() -> None:
    with metered("cpu") as large:
        block = bytearray(200 * MB)
        del block
        after_large = large()
    with metered("cpu") as small:
        after_small = small()
    assert after_large.peak_memory is not None
    assert after_small.peak_memory is not None
    assert after_large.peak_memory > after_small.peak_memory + 150 * MB


def test_children_count() -> None:
    with metered("cpu") as usage:
        subprocess.run(
            [sys.executable, "-c", f"import time; b = b'x' * {100 * MB}; time.sleep(1)"], check=True
        )
        with_child = usage()
    with metered("cpu") as usage:
        without = usage()
    assert with_child.peak_memory is not None
    assert without.peak_memory is not None
    assert with_child.peak_memory > without.peak_memory + 90 * MB


def test_processor_time_is_not_wall_time() -> None:
    with metered("cpu") as usage:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.5)"], check=True)
        assert usage().cpu_seconds < 0.5
    with metered("cpu") as usage:
        while usage().cpu_seconds < 0.05:
            pass


def test_where_the_peak_cannot_be_reset_an_old_one_is_not_told_as_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("VmHWM:\t  1000 kB\n")
    (tmp_path / "self" / "clear_refs").mkdir()  # cannot be written to
    monkeypatch.setattr(usage_module, "PROC", tmp_path)
    with metered("cpu") as usage:
        assert usage().peak_memory is None
        (tmp_path / "self" / "status").write_text("VmHWM:\t  3000 kB\n")
        assert usage().peak_memory == 3000 * 1024


def test_the_machines_name_says_what_its_speed_hangs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    machine_name.cache_clear()
    name = machine_name("cpu")
    machine_name.cache_clear()
    assert "OMP_NUM_THREADS=3" in name
    assert "torch" in name


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator is not glibc's")
def test_memory_that_a_stage_has_freed_goes_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pieces = [b"x" * (64 << 10) for _ in range(1600)]  # 105 MB, each below what malloc maps by itself
    pinned = pieces[-1]  # at the end of the heap, so that nothing before it is given back unasked
    del pieces
    held = resident()
    release_memory()
    assert held - resident() > 80 << 20
    assert len(pinned) == 64 << 10

"""Memory of the data stage follows from what is asked for, not from the size of the files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000

MOST_GROWTH = 30 * MEGABYTE
"""Noise of two runs: allocators, buffers. The larger file has 180 MB more, which would show."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["txt", "jsonl.gz", "csv", "parquet"])
def test_a_file_ten_times_as_large_takes_no_more_memory(kind: str) -> None:
    command = [sys.executable, "benchmarks/data_memory.py", "--megabytes", "20", "200", "--format", kind]
    command += ["--windows", "64", "--length", "256"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    small, large = result["megabytes"]["20"], result["megabytes"]["200"]
    assert large["documents"] > 9 * small["documents"]
    assert (
        large["windows"] == small["windows"] == dict.fromkeys(("calibration", "selection", "evaluation"), 64)
    )
    assert result["growth_bytes"] < MOST_GROWTH

"""A checkpoint of hundreds of shards costs neither memory nor file descriptors."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quantflow.errors import SourceError
from quantflow.model.weights import INDEX_FILE, SafetensorsReader

ROOT = Path(__file__).parents[2]
SHARDS = 500
TENSORS = 4  # in each shard, of 64 KB
VALUES = 16_384


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    weight_map: dict[str, str] = {}
    for number in range(1, SHARDS + 1):
        shard = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        tensors = {
            f"model.layers.{number}.{n}.weight": torch.full((VALUES,), float(n)) for n in range(TENSORS)
        }
        save_file(tensors, folder / shard, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, shard)
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Allow only a few files to be open beside those that are."""
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 8, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_every_tensor_is_read_with_a_handful_of_descriptors(folder: Path) -> None:
    with few_descriptors():
        reader = SafetensorsReader(folder)
        assert len(reader.names()) == SHARDS * TENSORS
        assert len(reader.shards) == SHARDS
        total = sum(float(chunk.sum()) for name in reader.names() for chunk in reader.chunks(name))
    assert total == SHARDS * VALUES * sum(range(TENSORS))


READ_ALL = """
import re, sys
from pathlib import Path
from quantflow.model.weights import SafetensorsReader

def megabytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

before = megabytes()
reader = SafetensorsReader(Path(sys.argv[1]))
for name in reader.names():
    for chunk in reader.chunks(name):
        pass
    reader.read(name)
print(megabytes() - before)
"""


def test_peak_memory_does_not_grow_with_the_data(folder: Path) -> None:
    command = [sys.executable, "-c", READ_ALL, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 25  # megabytes, of 131 that were read twice


def test_one_shard_of_hundreds_that_is_not_there_is_named(folder: Path) -> None:
    gone = folder / f"model-00377-of-{SHARDS:05d}.safetensors"
    gone.rename(folder / "kept")
    try:
        with pytest.raises(SourceError, match="model-00377-of-00500"):
            SafetensorsReader(folder)
    finally:
        (folder / "kept").rename(gone)

"""The stage, run on a folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quantflow.inspection.params import InspectParams
from quantflow.inspection.record import Inspection, load_inspection
from quantflow.inspection.stage import run
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.reporting import RecordingReporter

Inspect = Callable[..., Inspection]


@pytest.fixture
def inspect(tmp_path: Path, reporter: RecordingReporter) -> Inspect:
    """Run the stage on a folder; its record."""

    def inspect(folder: Path, *, allow_suspect: bool = False) -> Inspection:
        output, source = tmp_path / "inspected", tmp_path / "source"
        for made in (output, source):
            made.mkdir()
        checkpoint = Checkpoint(folder, "0" * 64, "folder", str(folder), "bfloat16", "llama", 1, 1, {})
        save_checkpoint(source, checkpoint)
        params = InspectParams(device="cpu", allow_suspect=allow_suspect)
        run(params, {"source": source}, output, reporter)
        return load_inspection(output)

    return inspect

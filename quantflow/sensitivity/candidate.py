"""A candidate: an artifact with some units spared, written as the final one is, read back and measured.

What is measured is what would ship. Each candidate has a folder of its own among what lets a stage go on: an
interrupted one is taken up where it was.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.windows import Windows
from quantflow.formats.assembly import Assembly, load_assembly
from quantflow.measure.evaluation import load_scored
from quantflow.measure.measurement import Samples, load_samples, save_measurement
from quantflow.measure.summary import summarize
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.sensitivity.choosing import Choosing
from quantflow.sensitivity.kept import Precisions
from quantflow.sensitivity.making import Maker, maker_of

MEASURED_FOLDER = "measured"


@dataclass(frozen=True)
class Bench:
    """What candidates of one artifact are made by and held against.

    Attributes:
        maker: Writes and measures them.
        windows: The selection windows.
        slices: Slice of each document.
    """

    maker: Maker
    windows: Windows
    slices: tuple[str, ...]

    @classmethod
    def of(cls, choosing: Choosing, inputs: Mapping[str, Path]) -> "Bench":
        """From the finished outputs of `source`, `data`, `codes` and what else a maker needs.

        Raises:
            DataError: There is no selection text to measure on.
        """
        windows = load_scored(inputs["data"], "selection")
        slices = tuple(document.slice for document in load_documents(inputs["data"]))
        return cls(maker_of(choosing, inputs, windows), windows, slices)


@dataclass(frozen=True)
class Candidate:
    """A candidate on disk.

    Attributes:
        assembly: What was written.
        samples: What was measured of it, on the selection windows.
    """

    assembly: Assembly
    samples: Samples

    @property
    def kl(self) -> float:
        """Mean KL from the lossless model, nats per token."""
        assert self.samples.kl is not None
        return float(self.samples.kl.mean())


def written(bench: Bench, precisions: Precisions, folder: Path, reporter: Reporter) -> Assembly:
    """Write an artifact to `folder`, complete or not at all; one that is there is taken as it is.

    Args:
        bench: What it is made of.
        precisions: The assignment.
        folder: Holds the artifact and what it came to, as the assemble stage's output does.
        reporter: Receives progress.
    """
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        bench.maker.write(precisions, partial, reporter)
        partial.rename(folder)
    return load_assembly(folder)


def measured(bench: Bench, folder: Path, part: PartReporter, what: str) -> Samples:
    """Measure an artifact of `written` on the selection windows, unless an interrupted run did.

    Args:
        bench: What it is held against.
        folder: Where it is.
        part: The candidate's own; keeps its progress and, in the end, its measurement.
        what: What progress is shown as.
    """
    output = part.progress_folder / MEASURED_FOLDER
    if not output.exists():
        running = PartReporter(part, "running")
        samples, runtime = bench.maker.measure(folder, running, what)
        partial = output.with_name(f"{output.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        save_measurement(partial, summarize(samples, bench.slices, runtime), samples)
        partial.rename(output)
        shutil.rmtree(running.progress_folder, ignore_errors=True)
    return load_samples(output)

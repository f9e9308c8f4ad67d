"""Measuring that is interrupted goes on after the last piece it scored, with equal numbers in the end."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from quantflow.measure import scoring
from quantflow.measure.artifact import run as run_artifact
from quantflow.measure.baseline import run as run_baseline
from quantflow.measure.divergence import token_nll
from quantflow.measure.params import BaselineParams, MeasureParams
from quantflow.measure.pieces import score_in_pieces
from quantflow.pipeline import pace
from tests.formats.assembling import assembled, rounded_blocks
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY

POSITIONS, STEP = 215, 20
PIECES = 11


@dataclass
class Interrupting(RecordingReporter):
    """Is interrupted when so many steps of scoring are done."""

    after: float = float("inf")

    @contextmanager
    def track(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        with super().track(what, total) as advance:

            def advance_or_stop(steps: int) -> None:
                advance(steps)
                if what.startswith("Scoring") and self.progress[what][0] >= self.after:
                    raise KeyboardInterrupt

            yield advance_or_stop


@pytest.fixture(autouse=True)
def kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of twenty positions, each kept however little time it took."""
    monkeypatch.setattr(scoring, "LOGITS_BYTES", VOCABULARY * 4 * STEP)
    monkeypatch.setattr(pace, "MAX_OVERHEAD", float("inf"))


@pytest.fixture(scope="module")
def inputs(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("resume")
    artifact = assembled(root / "assembly", tiny_llama, rounded_blocks(tiny_llama), "bfloat16")
    windows = evaluation_windows()
    assert int(windows.scored_counts.sum()) == POSITIONS
    return {
        "source": source_output(root / "source", tiny_llama),
        "data": data_output(root / "data", windows),
        "assemble": artifact.folder.parent,
    }


def measure_baseline(inputs: Mapping[str, Path], output: Path, reporter: RecordingReporter) -> None:
    output.mkdir(exist_ok=True)
    run_baseline(BaselineParams(device="cpu", batch_tokens=128), inputs, output, reporter)


def measure_artifact(inputs: Mapping[str, Path], output: Path, reporter: RecordingReporter) -> None:
    if "baseline" not in inputs:
        baseline = output.with_name("baseline-of-it")
        measure_baseline(inputs, baseline, RecordingReporter())
        inputs = {**inputs, "baseline": baseline}
    output.mkdir(exist_ok=True)
    run_artifact(MeasureParams(device="cpu", batch_tokens=128), inputs, output, reporter)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("measure", [measure_baseline, measure_artifact])
def test_it_goes_on_after_the_last_piece(
    inputs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measure: Callable[[Mapping[str, Path], Path, RecordingReporter], None],
) -> None:
    measure(inputs, tmp_path / "whole", RecordingReporter())
    output, progress = tmp_path / "cut", tmp_path / "progress"
    progress.mkdir()
    with pytest.raises(KeyboardInterrupt):
        measure(inputs, output, Interrupting(progress_folder=progress, after=3 * STEP))

    scored: list[int] = []

    def counted_nll(log_p: Tensor, targets: Tensor) -> Tensor:
        scored.append(targets.numel())
        return token_nll(log_p, targets)

    monkeypatch.setattr(scoring, "token_nll", counted_nll)
    reporter = RecordingReporter(progress_folder=progress)
    baseline = {"baseline": tmp_path / "baseline-of-it"} if measure is measure_artifact else {}
    measure(inputs | baseline, output, reporter)
    assert len(scored) == PIECES - 3
    assert sum(scored) == POSITIONS - 3 * STEP
    # The model itself was not run again, and what its run had kept for itself is gone.
    assert list(reporter.progress) == [f"Scoring, going on after {3 * STEP} of {POSITIONS}"]
    assert not list(progress.glob("blocks-*"))
    assert contents(output) == contents(tmp_path / "whole")


def test_hidden_states_that_the_disk_does_not_take_stay_in_memory(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    class FullDisk(RecordingReporter):
        def keep(self, write: Callable[[], None]) -> bool:
            return False

    measure_artifact(inputs, tmp_path / "whole", RecordingReporter())
    reporter = FullDisk()
    measure_artifact(inputs | {"baseline": tmp_path / "baseline-of-it"}, tmp_path / "full", reporter)
    assert not list(reporter.progress_folder.iterdir())
    assert contents(tmp_path / "full") == contents(tmp_path / "whole")


def squares(begin: int, end: int) -> dict[str, np.ndarray]:
    return {"square": np.arange(begin, end, dtype=np.float64) ** 2}


def test_pieces_that_cost_too_much_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MAX_OVERHEAD", 0.0)
    reporter = Interrupting(after=50)
    with pytest.raises(KeyboardInterrupt):
        score_in_pieces(100, 10, squares, reporter)
    assert [path.name for path in reporter.progress_folder.iterdir()] == ["scores-000000000000.safetensors"]
    again = RecordingReporter(progress_folder=reporter.progress_folder)
    found = score_in_pieces(100, 10, squares, again)
    np.testing.assert_array_equal(found["square"], np.arange(100.0) ** 2)
    assert list(again.progress) == ["Scoring, going on after 10 of 100"]


def test_a_damaged_piece_and_what_follows_it_is_scored_again() -> None:
    reporter = RecordingReporter()
    score_in_pieces(100, 10, squares, reporter)
    third = sorted(reporter.progress_folder.iterdir())[2]
    third.write_bytes(third.read_bytes()[:-8])
    again = RecordingReporter(progress_folder=reporter.progress_folder)
    found = score_in_pieces(100, 10, squares, again)
    np.testing.assert_array_equal(found["square"], np.arange(100.0) ** 2)
    assert list(again.progress) == ["Scoring, going on after 20 of 100"]


def test_pieces_of_another_run_s_length_are_not_taken() -> None:
    reporter = RecordingReporter()
    score_in_pieces(30, 10, squares, reporter)
    shutil.copy(
        reporter.progress_folder / "scores-000000000020.safetensors",
        reporter.progress_folder / "scores-000000000000.safetensors",
    )
    again = RecordingReporter(progress_folder=reporter.progress_folder)
    score_in_pieces(25, 15, squares, again)
    assert list(again.progress) == ["Scoring"]

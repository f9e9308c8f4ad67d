from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from quantflow.model.passes import PassProgress
from quantflow.pipeline import pace
from tests.reporting import RecordingReporter

SHAPES = [torch.Size((2, 5, 4)), torch.Size((1, 3, 4))]


def states(value: float) -> list[torch.Tensor]:
    return [torch.full(shape, value) for shape in SHAPES]


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PassProgress:
    monkeypatch.setattr(pace, "MAX_OVERHEAD", float("inf"))
    return PassProgress(RecordingReporter(progress_folder=tmp_path / "pass"))


def test_the_newest_states_come_back_and_older_ones_are_gone(progress: PassProgress, tmp_path: Path) -> None:
    assert progress.load(SHAPES) is None
    progress.keep(1, states(1.0))
    progress.keep(2, states(2.5))
    loaded = PassProgress(RecordingReporter(progress_folder=tmp_path / "pass")).load(SHAPES)
    assert loaded is not None
    assert loaded[0] == 2
    assert all(torch.equal(a, b) for a, b in zip(loaded[1], states(2.5), strict=True))
    assert len(list((tmp_path / "pass").iterdir())) == 1


def test_a_damaged_file_is_not_taken(progress: PassProgress, tmp_path: Path) -> None:
    progress.keep(3, states(1.0))
    (path,) = (tmp_path / "pass").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert progress.load(SHAPES) is None


def test_states_of_another_shape_are_not_taken(progress: PassProgress) -> None:
    progress.keep(3, states(1.0))
    assert progress.load([SHAPES[1], SHAPES[0]]) is None


def test_keeping_is_left_out_where_it_would_cost_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = PassProgress(RecordingReporter(progress_folder=tmp_path / "pass"))
    progress.keep(1, states(1.0))
    monkeypatch.setattr(pace, "MAX_OVERHEAD", 0.0)
    progress.keep(2, states(2.0))
    loaded = progress.load(SHAPES)
    assert loaded is not None
    assert loaded[0] == 1


def test_a_full_disk_leaves_the_states_before_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MAX_OVERHEAD", float("inf"))

    class FullDisk(RecordingReporter):
        def keep(self, write: Callable[[], None]) -> bool:
            return False

    PassProgress(RecordingReporter(progress_folder=tmp_path / "pass")).keep(1, states(1.0))
    progress = PassProgress(FullDisk(progress_folder=tmp_path / "pass"))
    progress.keep(2, states(2.0))
    loaded = progress.load(SHAPES)
    assert loaded is not None
    assert loaded[0] == 1


def test_what_a_kill_cut_off_is_swept_by_the_next_run(progress: PassProgress, tmp_path: Path) -> None:
    cut = tmp_path / "pass" / "blocks-00007.safetensors.partial"
    cut.write_bytes(b"half")
    PassProgress(RecordingReporter(progress_folder=tmp_path / "pass"))
    assert not cut.exists()


def test_dropped_states_free_the_disk(progress: PassProgress, tmp_path: Path) -> None:
    progress.keep(1, states(1.0))
    progress.drop()
    assert not list((tmp_path / "pass").iterdir())

"""The windows that models are measured on: the gate's, and those that choices are made by."""

from pathlib import Path

from quantflow.data.windows import EVALUATION_FILE, SELECTION_FILE, Windows, load_windows, scored_documents
from quantflow.errors import DataError
from quantflow.measure.params import MeasuredSplit


def load_evaluation(data_output: Path) -> Windows:
    """The evaluation windows.

    Raises:
        DataError: They have no scored position.
    """
    return load_scored(data_output, "evaluation")


def load_scored(data_output: Path, split: MeasuredSplit) -> Windows:
    """The windows of a split in which something is scored.

    Raises:
        DataError: They have no scored position.
    """
    windows = load_windows(data_output / (EVALUATION_FILE if split == "evaluation" else SELECTION_FILE))
    if scored_documents(windows).size == 0:
        raise DataError(
            f"the {split} data has no token to score",
            where=f"data.split.{split}",
            hint=f"Give more documents, or a larger share of them to the {split}.",
        )
    return windows

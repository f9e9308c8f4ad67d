"""The evaluation windows, as every runtime measures on them."""

from pathlib import Path

from quantflow.data.windows import EVALUATION_FILE, Windows, load_windows, scored_documents
from quantflow.errors import DataError


def load_evaluation(data_output: Path) -> Windows:
    """The evaluation windows.

    Raises:
        DataError: They have no scored position.
    """
    windows = load_windows(data_output / EVALUATION_FILE)
    if scored_documents(windows).size == 0:
        raise DataError(
            "the evaluation data has no token to score",
            where="data.split.evaluation",
            hint="Give more documents, or a larger share of them to the evaluation.",
        )
    return windows

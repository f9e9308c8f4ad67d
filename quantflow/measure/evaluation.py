"""The windows that models are measured on: the gate's, and those that choices are made by."""

from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.windows import EVALUATION_FILE, SELECTION_FILE, Windows, load_windows, scored_documents
from quantflow.errors import DataError
from quantflow.measure.params import MeasuredSplit


def load_evaluation(data_output: Path) -> Windows:
    """The evaluation windows.

    Raises:
        DataError: They have no scored position.
    """
    return load_scored(data_output, "evaluation")


def load_scored(data_output: Path, split: MeasuredSplit, min_documents: int = 1) -> Windows:
    """The windows of a split in which something is scored.

    Args:
        data_output: Finished output of the data stage.
        split: Which.
        min_documents: Fewest documents, near duplicates counted once, that are of use.

    Raises:
        DataError: They have no scored position, or are of too few documents.
    """
    windows = load_windows(data_output / (EVALUATION_FILE if split == "evaluation" else SELECTION_FILE))
    scored = set(scored_documents(windows).tolist())
    if not scored:
        raise DataError(
            f"the {split} data has no token to score",
            where=f"data.split.{split}",
            hint=f"Give more documents, or a larger share of them to the {split}.",
        )
    if min_documents > 1:
        documents = load_documents(data_output)
        independent = {i if documents[i].near is None else documents[i].near for i in scored}
        if len(independent) < min_documents:  # what could not be judged hours later
            raise DataError(
                f"{len(independent)} {split} documents, near duplicates counted once, are too few to judge "
                f"anything on: at least {min_documents} are needed",
                where=f"data.split.{split}",
                hint=f"Give more documents, or a larger share of them to the {split}; without "
                "`sensitivity.until: gate` fewer do.",
            )
    return windows

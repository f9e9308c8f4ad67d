"""Reading files as the stage does, for tests of what is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from quantflow.data.encoding import encoding_of
from quantflow.data.files import find_files
from quantflow.data.params import DataParams, FieldParams, ReadParams, default_slice
from quantflow.data.read import read_records
from quantflow.data.record import Mistake, Record

BY_DEFAULT = FieldParams()
NOWHERE: Callable[[int], None] = lambda _: None  # noqa: E731


def make_params(*files: Path, reading: ReadParams | None = None, **changed: Any) -> DataParams:
    """Parameters of the data stage: tiny windows, everything else as a recipe has it by default."""
    reading = reading or ReadParams()
    given: dict[str, Any] = {
        "files": tuple(str(path) for path in files),
        "slices": tuple(default_slice(str(path), reading) for path in files),
        "reading": reading,
        "calibration_windows": 10,
        "calibration_length": 16,
        "evaluation_windows": 512,
        "evaluation_length": 8,
        "evaluation_stride": changed.get("evaluation_length", 8),
        "evaluation_bos": "auto",
        "calibration_share": 0.5,
        "selection_share": 0.25,
        "evaluation_share": 0.25,
        "max_overlap": 1.0,
        "seed": 0,
    }
    return DataParams(**given | changed)


def read(
    *files: Path,
    advance: Callable[[int], None] = NOWHERE,
    fields: FieldParams = BY_DEFAULT,
    **reading: Any,
) -> list[Record | Mistake]:
    """All documents and mistakes of some files."""
    given = ReadParams(fields=fields, **reading)
    params = make_params(*files, reading=given)
    found = find_files(params)
    encodings = [None if f.format == "parquet" else encoding_of(f, given.encoding) for f in found]
    return list(read_records(found, encodings, given, advance))


def records(outcomes: list[Record | Mistake]) -> list[Record]:
    """The documents, where there are no mistakes."""
    found = [outcome for outcome in outcomes if isinstance(outcome, Record)]
    assert len(found) == len(outcomes), outcomes
    return found


def texts(*files: Path, **reading: Any) -> list[str | list[dict[str, Any]]]:
    """What the documents of some files say."""
    return [record.content for record in records(read(*files, **reading))]


def line_of(outcome: Record | Mistake) -> int:
    """The line that a document or mistake is at."""
    return int(outcome.where.rpartition(":")[2])

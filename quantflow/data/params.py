"""What the data stage is asked."""

import math
from pathlib import PurePath
from typing import Literal, Self

from pydantic import Field, model_validator

from quantflow.data.names import format_of_name, stem
from quantflow.pipeline.stage import StageParams


class FieldParams(StageParams):
    """Where in a row or object its parts are.

    Attributes:
        text: Paths of the text, joined by blank lines; empty where rows are not texts.
        messages: Path of the messages; empty where rows are not conversations.
        role: Who speaks, within a message.
        content: What is said, within a message.
        tools: Path of a conversation's tools.
        slice: Path of the slice.
        id: Path of the document's own name.
        required: Those of `slice` and `id` that every row has to have, because the recipe names them.
    """

    text: tuple[str, ...] = ("text",)
    messages: str = "messages"
    role: str = "role"
    content: str = "content"
    tools: str = "tools"
    slice: str = "slice"
    id: str = "id"
    required: tuple[Literal["slice", "id"], ...] = ()


class ReadParams(StageParams):
    """How files become documents.

    Attributes:
        format: Format of all files, or `auto` for each by its name.
        encoding: Text encoding of all files, or `auto`.
        delimiter: Character between the columns of CSV files, or `auto`.
        documents: What a document is in a text file.
        fields: Where the parts of a row are.
        roles: The data's own word for a role → the role.
        invalid: What to do about a line that cannot be used.
    """

    format: Literal["auto", "jsonl", "json", "txt", "csv", "parquet"] = "auto"
    encoding: str = "auto"
    delimiter: Literal["auto", ",", ";", "\t", "|"] = "auto"
    documents: Literal["file", "paragraph", "line"] = "file"
    fields: FieldParams = FieldParams()
    roles: dict[str, str] = Field(default_factory=dict)
    invalid: Literal["refuse", "skip"] = "refuse"


class FilesParams(StageParams):
    """Files of text; their content travels in the stage's `external`.

    Attributes:
        files: Absolute paths.
        slices: For each file, the slice of documents that name none.
        reading: How files become documents.
    """

    files: tuple[str, ...]
    slices: tuple[str, ...]
    reading: ReadParams

    @model_validator(mode="after")
    def _has_a_slice_for_each_file(self) -> Self:
        if len(self.slices) != len(self.files):
            raise ValueError("one slice is needed for each file")
        return self


class DataParams(FilesParams):
    """Resolved parameters of the data stage.

    Attributes:
        calibration_windows: Calibration windows wanted.
        calibration_length: Tokens of every calibration window.
        evaluation_windows: Most selection windows, and most evaluation windows.
        evaluation_length: Most tokens of a selection or evaluation window.
        evaluation_stride: Tokens from the start of one of these windows to that of the next.
        evaluation_bos: Whether each of these windows begins with BOS.
        calibration_share: Fraction of documents for calibration.
        selection_share: Fraction of documents for selection.
        evaluation_share: Fraction of documents for evaluation; the three sum to 1.
        max_overlap: Largest fraction of evaluation tokens in passages that calibration or selection has.
        seed: Seed of the draws, of the split and of the order of packing.
    """

    calibration_windows: int = Field(ge=1)
    calibration_length: int = Field(ge=2)
    evaluation_windows: int = Field(ge=1)
    evaluation_length: int = Field(ge=2)
    evaluation_stride: int = Field(ge=1)
    evaluation_bos: Literal["auto", "always", "never"]
    calibration_share: float = Field(gt=0, lt=1)
    selection_share: float = Field(ge=0, lt=1)
    evaluation_share: float = Field(gt=0, lt=1)
    max_overlap: float = Field(ge=0, le=1)
    seed: int

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        total = self.calibration_share + self.selection_share + self.evaluation_share
        if not math.isclose(total, 1, abs_tol=1e-6):
            raise ValueError(f"the shares sum to {total}, not to 1")
        if self.evaluation_stride > self.evaluation_length:
            raise ValueError("the stride is longer than a window")
        return self


def default_slice(file: str, reading: ReadParams) -> str:
    """The slice of a file's documents that name none.

    The file's name without its endings; for a text file that is one document, the folder's name, since each
    such file would else be a slice of its own.
    """
    path = PurePath(file)
    kind = format_of_name(path.name) if reading.format == "auto" else reading.format
    if kind == "txt" and reading.documents == "file" and path.parent.name:
        return path.parent.name
    return stem(path.name)

"""What the gate stage tells of divergence beside its verdict: llama.cpp's figures, and where it is."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.data.documents import Document
from quantflow.data.windows import Windows
from quantflow.measure.divergence_detail import (
    ConfidenceRange,
    WorstPosition,
    by_confidence,
    worst_positions,
)
from quantflow.measure.llama_cpp import LlamaCppBlock, llama_cpp_block, second_half
from quantflow.measure.measurement import Samples

DIVERGENCE_FILE = "divergence.json"


class Divergence(BaseModel):
    """Divergence of an artifact from its baseline, in detail; nothing is judged by it.

    Attributes:
        llama_cpp: llama.cpp's block by its definitions; None where the runtime gives no whole distributions.
        by_confidence: Divergence by how sure the baseline is.
        worst: Positions that diverge most, no two of one document. Their tokens are text of the data: who
            shows or passes on a report decides whether they are in it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    llama_cpp: LlamaCppBlock | None
    by_confidence: tuple[ConfidenceRange, ...]
    worst: tuple[WorstPosition, ...]

    def without_text(self) -> "Divergence":
        """The same without tokens of the data."""
        nothing = {"target": None, "context": (), "likeliest_before": None, "likeliest": None}
        hidden = tuple(one.model_copy(update=nothing) for one in self.worst)
        return self.model_copy(update={"worst": hidden})


def find_divergence(
    baseline: Samples, measured: Samples, windows: Windows, documents: Sequence[Document]
) -> Divergence:
    """Sum samples up that can be paired.

    Args:
        baseline: Samples of the lossless model.
        measured: Samples of the artifact at the same positions, from the runtime that KL is measured in.
        windows: The evaluation windows.
        documents: The documents that they are of.
    """
    return Divergence(
        llama_cpp=llama_cpp_block(baseline, measured, second_half(windows)),
        by_confidence=by_confidence(measured),
        worst=worst_positions(measured, windows, [d.id for d in documents], [d.slice for d in documents]),
    )


def save_divergence(output: Path, divergence: Divergence) -> None:
    """Write divergence.json."""
    text = json.dumps(divergence.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
    (output / DIVERGENCE_FILE).write_text(text + "\n", encoding="utf-8")


def load_divergence(stage_output: Path) -> Divergence | None:
    """Read what the gate stage wrote; None where samples could not be paired."""
    path = stage_output / DIVERGENCE_FILE
    return Divergence.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None

"""Outputs of earlier stages for tests of measuring."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quantflow.data.documents import Document, save_documents
from quantflow.data.windows import EVALUATION_FILE, Windows, make_windows, save_windows
from quantflow.source.identify import source_params
from quantflow.source.stage import run as run_source
from quantflow.source.uri import parse
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY

SLICES = ("chat", "articles", "chat")
LENGTHS = (40, 7, 64, 64, 2, 33, 12)
DOCUMENTS = (0, 0, 1, 1, 1, 2, 2)


def evaluation_windows(
    lengths: Sequence[int] = LENGTHS, document: Sequence[int] = DOCUMENTS, seed: int = 0
) -> Windows:
    """Windows of random tokens."""
    generator = np.random.default_rng(seed)
    pieces = [generator.integers(0, VOCABULARY, length).astype(np.int32) for length in lengths]
    return make_windows(pieces, document)


def data_output(folder: Path, windows: Windows, slices: Sequence[str] = SLICES) -> Path:
    """What measuring reads of a data stage's output."""
    folder.mkdir()
    save_windows(folder / EVALUATION_FILE, windows)
    save_documents(
        folder, [Document(f"d{number}", name, "evaluation", 99) for number, name in enumerate(slices)]
    )
    return folder


def source_output(folder: Path, model: Path) -> Path:
    """A source stage's output for a local folder."""
    folder.mkdir()
    params = source_params(parse(str(model), Path("/")), None, lambda path: "0" * 64)
    run_source(params, {}, folder, RecordingReporter())
    return folder

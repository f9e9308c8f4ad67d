"""The texts that every tool is calibrated on and judged by, as token windows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from quantflow.data.windows import (
    CALIBRATION_FILE,
    EVALUATION_FILE,
    SELECTION_FILE,
    Windows,
    make_windows,
    save_windows,
)

LENGTH = 256
"""Tokens of every window."""
CALIBRATION_WINDOWS = 64
SELECTION_WINDOWS = 16
"""Held out of calibration, for choices that a tool makes by measuring; of the same files."""
CALIBRATION_LISTS = "calibration.json"
CHARACTERS_PER_TOKEN = 8
"""More than any text here has, so that no more is tokenized than can be needed."""


@dataclass(frozen=True)
class TextFiles:
    """Files of plain text by use; windows are taken from those of one use in turn.

    Attributes:
        calibration: What tools are calibrated on.
        in_domain: Text of the same kind, to judge by.
        out_of_domain: Text of another kind, to judge by.
    """

    calibration: tuple[Path, ...]
    in_domain: tuple[Path, ...]
    out_of_domain: tuple[Path, ...]


def prepare(
    files: TextFiles, checkpoint: Path, folder: Path, evaluation_windows: int
) -> Mapping[str, Windows]:
    """Write the calibration data for every tool, and give the windows to judge by.

    `folder` becomes what QuantFlow's data stage would have written; `CALIBRATION_LISTS` in it has the same
    calibration tokens as lists, for the peers.

    Args:
        files: The texts.
        checkpoint: Where the model's tokenizer is.
        folder: Where to write.
        evaluation_windows: How many windows of each text to judge by.

    Raises:
        SystemExit: A text is too short.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(checkpoint))
    wanted = CALIBRATION_WINDOWS + SELECTION_WINDOWS
    fitting = _windows(tokenizer, files.calibration, wanted)
    calibration, selection = fitting[:CALIBRATION_WINDOWS], fitting[CALIBRATION_WINDOWS:]
    judging = {
        "in_domain": _windows(tokenizer, files.in_domain, evaluation_windows),
        "out_of_domain": _windows(tokenizer, files.out_of_domain, evaluation_windows),
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_windows(folder / CALIBRATION_FILE, _made(calibration))
    save_windows(folder / SELECTION_FILE, _made(selection))
    save_windows(folder / EVALUATION_FILE, _made(judging["in_domain"]))
    (folder / CALIBRATION_LISTS).write_text(json.dumps([window.tolist() for window in calibration]))
    return {name: _made(windows) for name, windows in judging.items()}


def _windows(tokenizer: object, files: Sequence[Path], count: int) -> list[NDArray[np.int32]]:
    """`count` windows, from the files in turn, each from its beginning."""
    each = -(-count // len(files))
    by_file = [_of_file(tokenizer, path, each) for path in files]
    windows = [window for turn in zip(*by_file, strict=True) for window in turn]
    return windows[:count]


def _of_file(tokenizer: object, path: Path, count: int) -> list[NDArray[np.int32]]:
    characters = count * LENGTH * CHARACTERS_PER_TOKEN
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(characters)
    assert callable(tokenizer)
    ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    if len(ids) < count * LENGTH:
        raise SystemExit(
            f"{path} has {len(ids)} tokens, and {count} windows of {LENGTH} are wanted of it: give more or "
            "longer files"
        )
    return [np.array(ids[i * LENGTH : (i + 1) * LENGTH], dtype=np.int32) for i in range(count)]


def _made(windows: Sequence[NDArray[np.int32]]) -> Windows:
    return make_windows(windows, range(len(windows)))

"""Inputs of the scan for its tests: the tiny Llama, random text, codes of the quantize stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from quantflow.data.windows import (
    CALIBRATION_FILE,
    PACKED,
    SELECTION_FILE,
    Windows,
    make_windows,
    save_windows,
)
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize import stage
from quantflow.quantize.params import QuantizeParams, Scheme
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.stored import StoredCodes
from quantflow.sensitivity.swap import WeightSwaps
from quantflow.sensitivity.text import scan_text
from tests.measure.inputs import source_output
from tests.reporting import RecordingReporter
from tests.tiny_models import documents, tiny_tokenizer

AWQ = Scheme(method="awq", bits=3, group_size=32)
RTN = Scheme(method="rtn", bits=4, group_size=32)
LENGTH = 48


def letters(count: int, seed: int, lengths: Sequence[int]) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
    """Windows of the text that the tiny Llama was trained on."""
    tokenizer = tiny_tokenizer()
    ids = [token for text in documents(60, seed) for token in tokenizer(text)["input_ids"]]
    places = [sum(lengths[:n]) for n in range(count)]
    return [
        np.asarray(ids[begin : begin + length], dtype=np.int32)
        for begin, length in zip(places, lengths, strict=True)
    ]


def unscored(pieces: list[np.ndarray[Any, np.dtype[np.int32]]]) -> Windows:
    """Windows as the data stage makes them for calibration: packed, and none of their tokens to be scored."""
    return make_windows(pieces, [PACKED] * len(pieces), [len(piece) for piece in pieces])


def scan_inputs(
    folder: Path, model: Path, schemes: Sequence[Scheme] = (AWQ,), windows: int = 4
) -> dict[str, Path]:
    """Outputs of `source`, `data` and, as `codes`, `quantize`."""
    folders = {name: folder / name for name in ("data", "codes")}
    for path in folders.values():
        path.mkdir(parents=True)
    folders["source"] = source_output(folder / "source", model)
    calibration = letters(windows, seed=3, lengths=[LENGTH] * windows)
    save_windows(folders["data"] / CALIBRATION_FILE, unscored(calibration))
    selection = letters(4, seed=4, lengths=[20, 48, 33, 48])
    save_windows(folders["data"] / SELECTION_FILE, make_windows(selection, [0, 1, 1, 2]))
    params = QuantizeParams(candidates=tuple(schemes), device="cpu", batch_tokens=96)
    stage.run(params, folders, folders["codes"], RecordingReporter())
    return folders


@dataclass(frozen=True)
class Ground:
    """What the methods of a scan work on."""

    boundaries: Boundaries
    codes: dict[str, StoredCodes]
    model: Path

    @property
    def keys(self) -> list[tuple[str, str]]:
        """All units in all precisions."""
        family = self.boundaries.decoder.family
        return [
            (f"{family.block_name(index)}.{unit}", precision)
            for precision, codes in self.codes.items()
            for index in range(self.boundaries.decoder.num_blocks)
            for unit in codes.units(index)
        ]


def ground(
    inputs: dict[str, Path],
    model: Path,
    schemes: Sequence[Scheme] = (AWQ,),
    reporter: Any = None,
    split: str = CALIBRATION_FILE,
) -> Ground:
    """Boundaries and codes, the lossless forward done."""
    from quantflow.data.windows import load_windows

    reporter = reporter or RecordingReporter()
    decoder = StreamedDecoder(model, SafetensorsReader(model))
    text = scan_text(load_windows(inputs["data"] / split), tokens=4096, batch_tokens=96)
    assert text is not None
    boundaries = Boundaries(decoder, text, reporter)
    boundaries.fill(reporter, "Running the lossless model")
    codes = {s.id: StoredCodes(inputs["codes"], s, decoder.family) for s in schemes}
    return Ground(boundaries, codes, model)


def naive_kl(model: Path, ground: Ground, key: tuple[str, str]) -> float:
    """One full forward of transformers' own model with one unit's weights replaced, nothing shared."""
    load: Any = AutoModelForCausalLM.from_pretrained
    loaded = load(model, dtype=torch.float32).eval()
    text, family = ground.boundaries.text, ground.boundaries.decoder.family
    index, unit = int(key[0].split(".")[2]), key[0].rpartition(".")[2]
    swaps = ground.codes[key[1]].open(index)
    assert isinstance(swaps, WeightSwaps)
    total, positions = 0.0, 0
    with torch.no_grad():
        windows = [torch.from_numpy(window.astype("int64"))[None] for window in text.windows]
        lossless = [loaded(window).logits.log_softmax(-1) for window in windows]
        for name in family.units[unit]:
            loaded.get_submodule(f"{family.block_name(index)}.{name}").weight.copy_(swaps.weight(name))
        for window, log_p in zip(windows, lossless, strict=True):
            log_q = loaded(window).logits.log_softmax(-1)
            kl = (log_p.exp() * (log_p - log_q)).sum(-1, dtype=torch.float64)[0, :-1]
            total, positions = total + float(kl.sum()), positions + kl.numel()
    return total / positions

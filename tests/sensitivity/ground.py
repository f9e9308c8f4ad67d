"""Outputs of the stages before an assignment, of the tiny model rounded to three bits."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quantflow.data.documents import Document, save_documents
from quantflow.data.windows import SELECTION_FILE, make_windows, save_windows
from quantflow.formats.params import AssembleParams
from quantflow.measure import baseline
from quantflow.measure.params import BaselineParams
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize import stage as quantize
from quantflow.quantize.params import QuantizeParams, Scheme
from quantflow.sensitivity.choosing import Choosing
from quantflow.sensitivity.record import ScanControls, ScanRecord, UnitScore, save_scan
from tests.measure.inputs import source_output
from tests.reporting import RecordingReporter
from tests.tiny_models import documents, tiny_tokenizer

SCHEME = Scheme(method="rtn", bits=3, group_size=32, symmetric=True)
DOCUMENTS, BATCH = 40, 512
UNITS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
BLOCKS = 3
NAMES = tuple(f"model.layers.{block}.{unit}" for block in range(BLOCKS) for unit in UNITS)


def choosing(keep: Sequence[str] = (), force: Sequence[str] = ()) -> Choosing:
    return Choosing(
        assemble=AssembleParams(name="int3", format="gptq", scheme=SCHEME, keep=tuple(keep)),
        force=tuple(force),
        ladder=(SCHEME.id,),
        device="cpu",
        batch_tokens=BATCH,
    )


def stage_outputs(root: Path, model: Path) -> dict[str, Path]:
    """Outputs of `source`, `data`, `codes` and, on the selection documents, `baseline`."""
    folders = {role: root / role for role in ("data", "codes", "baseline")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    folders["source"] = source_output(root / "source", model)
    tokenizer = tiny_tokenizer()
    letters = [tokenizer(text)["input_ids"][:48] for text in documents(DOCUMENTS, seed=7)]
    windows = make_windows([np.array(ids, dtype=np.int32) for ids in letters], range(DOCUMENTS))
    save_windows(folders["data"] / SELECTION_FILE, windows)
    told = [Document(f"d{n}", "letters", "selection", len(ids)) for n, ids in enumerate(letters)]
    save_documents(folders["data"], told)
    reporter = RecordingReporter()
    measuring = BaselineParams(device="cpu", batch_tokens=BATCH, split="selection", min_documents=30)
    baseline.run(measuring, folders, folders["baseline"], reporter)
    params = QuantizeParams(candidates=(SCHEME,), device="cpu", batch_tokens=BATCH)
    save_windows(folders["data"] / "calibration.safetensors", make_windows([windows.tokens[:64]], [-1]))
    quantize.run(params, folders, folders["codes"], reporter)
    return folders


def scan_output(root: Path, model: Path, kl: Mapping[str, float]) -> Path:
    """A scan that found these; 0.01 where nothing is said."""
    root.mkdir(parents=True)
    reader = SafetensorsReader(model)
    scores = []
    for name in NAMES:
        block, _, unit = name.rpartition(".")
        weights = sum(math.prod(reader.shape(f"{block}.{linear}.weight")) for linear in UNITS[unit])
        value = kl.get(name, 0.01)
        scores.append(
            UnitScore(
                unit=name,
                precision=SCHEME.id,
                kl=value,
                ci_low=value,
                ci_high=value,
                method="exact",
                kl_by_half=(value, value),
                weights=weights,
                bytes_quantized=weights * 3 // 8,
                bytes_source=2 * weights,
            )
        )
    save_scan(
        root,
        ScanRecord(
            method="exact",
            precisions=(SCHEME.id,),
            scores=tuple(scores),
            controls=ScanControls(nothing_swapped_kl=0.0, halves_rank_correlation={}),
            forwards=12.0,
            cost_by_step={},
            tokens=1000,
        ),
    )
    return root

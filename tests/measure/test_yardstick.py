"""The yardstick: rounding to nearest, measured as an artifact is."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.measure import baseline, yardstick
from quantflow.measure.measurement import load_measurement
from quantflow.measure.params import BaselineParams, YardstickParams
from quantflow.quantize.codes import dequantize
from quantflow.quantize.grid import GridKind
from quantflow.quantize.rtn import quantize_rtn
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter

PARAMS = YardstickParams(
    bits=3, group_size=32, symmetric=True, keep=("*.down",), device="cpu", batch_tokens=128
)


@pytest.fixture
def inputs(tmp_path: Path, tiny_llama: Path) -> dict[str, Path]:
    folders = {
        "source": source_output(tmp_path / "source", tiny_llama),
        "data": data_output(tmp_path / "data", evaluation_windows()),
        "baseline": tmp_path / "baseline",
    }
    folders["baseline"].mkdir()
    params = BaselineParams(device="cpu", batch_tokens=128)
    baseline.run(params, folders, folders["baseline"], RecordingReporter())
    return folders


@pytest.mark.parametrize("group_size", [32, -1])
def test_it_measures_the_model_with_every_linear_but_kept_ones_rounded(
    inputs: dict[str, Path], tmp_path: Path, tiny_llama: Path, group_size: int
) -> None:
    output, rounded, again = (tmp_path / name for name in ("yardstick", "rounded", "again"))
    for folder in (output, rounded, again):
        folder.mkdir()
    params = PARAMS.model_copy(update={"group_size": group_size})
    yardstick.run(params, inputs, output, RecordingReporter())
    for path in tiny_llama.iterdir():
        (rounded / path.name).write_bytes(path.read_bytes())
    tensors = load_file(tiny_llama / "model.safetensors")
    for name, weight in tensors.items():
        if name.endswith("_proj.weight") and "down" not in name:
            size = group_size if group_size > 0 else weight.shape[1]
            codes = quantize_rtn(weight.float(), kind=GridKind(3, symmetric=True), group_size=size)
            tensors[name] = dequantize(codes)
        else:
            tensors[name] = weight.to(torch.float32)
    save_file(tensors, rounded / "model.safetensors", {"format": "pt"})
    other = {"source": source_output(tmp_path / "source-rounded", rounded), "data": inputs["data"]}
    baseline.run(BaselineParams(device="cpu", batch_tokens=128), other, again, RecordingReporter())
    measured = load_measurement(output)
    assert measured.perplexity == load_measurement(again).perplexity
    assert measured.kl is not None
    assert measured.kl.mean > 0

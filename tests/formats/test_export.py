"""The lossless export: the model itself in 16 bits, with every value that does not survive counted."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from quantflow.errors import ArtifactError, SourceError
from quantflow.formats.assembly import load_assembly
from quantflow.formats.export import run
from quantflow.formats.params import ExportParams
from quantflow.formats.read import open_artifact
from quantflow.formats.rounding import losses
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import Checkpoint, identity_of, save_checkpoint
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

DOWN, UP, GATE = (f"model.layers.1.mlp.{name}_proj.weight" for name in ("down", "up", "gate"))


def exported(
    root: Path, source: Path, dtype: str, reporter: RecordingReporter | None = None, stored: str = "bfloat16"
) -> Path:
    """Run the stage; returns the artifact."""
    files = {"config.json": "0" * 64}
    inputs = {"source": root / "source"}
    inputs["source"].mkdir(parents=True)
    checkpoint = Checkpoint(source, identity_of(files), "folder", str(source), stored, "llama", 1, 1, files)
    save_checkpoint(inputs["source"], checkpoint)
    output = root / "output"
    output.mkdir()
    params = ExportParams.model_validate({"name": "half", "format": "hf", "dtype": dtype})
    run(params, inputs, output, reporter or RecordingReporter())
    return load_assembly(output).folder


def spoiled(
    folder: Path, values: dict[str, list[float]], dtype: torch.dtype = torch.bfloat16, **config: Any
) -> Path:
    """A model whose tensors begin with these values."""
    random_model(folder, tiny_config(num_hidden_layers=2, **config), dtype=dtype)
    tensors = load_file(folder / "model.safetensors")
    for name, begin in values.items():
        tensors[name].view(-1)[: len(begin)] = torch.tensor(begin, dtype=dtype)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def greedy(folder: Path, **loading: Any) -> list[int]:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, **loading)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("Good morning, this is about", return_tensors="pt").input_ids
    result: list[int] = model.float().generate(ids, max_new_tokens=24, do_sample=False)[0].tolist()
    return result


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_plain_transformers_loads_an_export_and_says_the_same_tokens(
    tiny_llama: Path, tmp_path: Path, dtype: str
) -> None:
    folder = exported(tmp_path, tiny_llama, dtype)
    assert AutoConfig.from_pretrained(folder).dtype == getattr(torch, dtype)
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == getattr(torch, dtype)
    assert greedy(folder) == greedy(tiny_llama)


def test_every_tensor_is_that_of_the_source_rounded_once(tiny_llama: Path, tmp_path: Path) -> None:
    folder = exported(tmp_path, tiny_llama, "float16")
    source, reader = SafetensorsReader(tiny_llama), open_artifact(folder)
    assert reader.names() == source.names()
    for name in source.names():
        assert reader.read(name).dtype == torch.float16
        assert torch.equal(reader.read(name), source.read(name).half()), name


def test_the_same_data_type_is_the_same_numbers_without_an_event(
    tiny_llama: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    folder = exported(tmp_path, tiny_llama, "bfloat16", reporter)
    source, reader = SafetensorsReader(tiny_llama), open_artifact(folder)
    assert all(torch.equal(reader.read(name), source.read(name)) for name in source.names())
    assert reporter.events == []


def test_an_export_says_what_it_is_with_a_hash_of_every_file(tiny_llama: Path, tmp_path: Path) -> None:
    folder = exported(tmp_path, tiny_llama, "float16")
    provenance = json.loads((folder / "quantflow.json").read_text())
    assert (provenance["name"], provenance["format"], provenance["dtype"]) == ("half", "hf", "float16")
    assert provenance["precisions"]["model.layers.2.gate_up"] == "float16"
    others = {path.name: file_digest(path) for path in folder.iterdir() if path.name != "quantflow.json"}
    assert provenance["files"] == others
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= others.keys()
    assembly = load_assembly(folder.parent)
    assert assembly.bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert (assembly.format, assembly.quantized_linears, assembly.kept_units) == ("hf", 0, ())


def test_equal_sources_give_equal_bytes(tiny_llama: Path, tmp_path: Path) -> None:
    folders = [exported(tmp_path / place, tiny_llama, "float16") for place in ("here", "there")]
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert first == second


def test_a_unit_that_would_overflow_keeps_its_data_type_with_all_its_linears(
    tmp_path: Path, reporter: RecordingReporter
) -> None:
    source = spoiled(tmp_path / "model", {UP: [1e5], "model.norm.weight": [70_000.0]})
    folder = exported(tmp_path / "run", source, "float16", reporter)
    reader = SafetensorsReader(folder)
    kept = {name for name in reader.names() if reader.spec(name).dtype == torch.bfloat16}
    assert kept == {UP, GATE, "model.norm.weight"}
    assert reader.read(UP).view(-1)[0] == torch.tensor(1e5, dtype=torch.bfloat16)
    event = next(event for event in reporter.events if event.code == "unit-keeps-dtype")
    assert event.detail["units"] == {
        "model.layers.1.gate_up": {"tensors": sorted([GATE, UP]), "largest": 99840.0},
        "model.norm.weight": {"tensors": ["model.norm.weight"], "largest": 70144.0},
    }
    precisions = json.loads((folder / "quantflow.json").read_text())["precisions"]
    assert {unit for unit, dtype in precisions.items() if dtype == "bfloat16"} == event.detail["units"].keys()
    assert load_assembly(folder.parent).kept_units == ("model.layers.1.gate_up",)


def test_with_a_kept_unit_config_says_the_wider_type_so_that_loading_makes_nothing_infinite(
    tmp_path: Path,
) -> None:
    source = spoiled(tmp_path / "model", {UP: [1e5]})
    folder = exported(tmp_path / "run", source, "float16")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder)
    original: Any = AutoModelForCausalLM.from_pretrained(source)
    state = loaded.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in original.state_dict().items())


def test_a_float32_source_keeps_float32_where_half_precision_would_overflow(tmp_path: Path) -> None:
    source = spoiled(tmp_path / "model", {DOWN: [1e5]}, torch.float32)
    folder = exported(tmp_path / "run", source, "float16", stored="float32")
    assert SafetensorsReader(folder).spec(DOWN).dtype == torch.float32
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"


def test_values_too_small_for_float16_are_counted_for_each_tensor(
    tmp_path: Path, reporter: RecordingReporter
) -> None:
    # 2^-30 is below half of float16's least number; 2^-20 times 1.0078125 has more digits than are left
    # there.
    lost = [2.0**-30, -(2.0**-30), 2.0**-20 * 1.0078125, 2.0**-24, 0.0]
    source = spoiled(tmp_path / "model", {DOWN: lost})
    folder = exported(tmp_path / "run", source, "float16", reporter)
    event = next(event for event in reporter.events if event.code == "export-underflows")
    tensors: Any = event.detail["tensors"]
    assert (tensors[DOWN]["to_zero"], tensors[DOWN]["to_subnormal"]) == (2, 1)
    provenance = json.loads((folder / "quantflow.json").read_text())
    assert provenance["losses"][DOWN] == tensors[DOWN]
    assert torch.equal(
        SafetensorsReader(folder).read(DOWN).view(-1)[:2], torch.tensor([0.0, -0.0], dtype=torch.float16)
    )


def test_rounding_to_fewer_digits_is_told(tmp_path: Path, reporter: RecordingReporter) -> None:
    source = spoiled(tmp_path / "model", {}, torch.float32)
    exported(tmp_path / "run", source, "bfloat16", reporter, stored="float32")
    assert reporter.codes() == ["export-rounds"]
    assert reporter.events[0].detail["affected"] == 21


@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
)
def test_losses_are_what_comparing_each_value_says(values: list[float], dtype: torch.dtype) -> None:
    stored = [float(torch.tensor(value).to(dtype)) for value in values]
    pairs = list(zip(values, stored, strict=True))
    counted = losses(torch.tensor(values), dtype)
    smallest = torch.finfo(dtype).smallest_normal
    assert counted.values == len(values)
    assert counted.changed == sum(before != after for before, after in pairs)
    assert counted.overflow == sum(abs(after) == float("inf") for after in stored)
    assert counted.to_zero == sum(after == 0 and before != 0 for before, after in pairs)
    assert counted.to_subnormal == sum(
        0 < abs(after) < smallest and before != after for before, after in pairs
    )
    assert counted.largest == max(map(abs, values))


def test_what_is_no_number_is_the_source_s_fault(tmp_path: Path) -> None:
    source = spoiled(tmp_path / "model", {DOWN: [float("nan")]})
    with pytest.raises(SourceError, match="NaN") as refused:
        exported(tmp_path / "run", source, "float16")
    assert refused.value.where == DOWN


def test_a_large_export_is_cut_into_shards(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.formats.export.MAX_SHARD_BYTES", 40_000)
    folder = exported(tmp_path, tiny_llama, "float16")
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    source, reader = SafetensorsReader(tiny_llama), open_artifact(folder)
    assert all(torch.equal(reader.read(name), source.read(name).half()) for name in source.names())


def test_a_quantized_artifact_that_lost_its_settings_is_not_taken_for_an_export(
    tiny_llama: Path, tmp_path: Path
) -> None:
    folder = exported(tmp_path, tiny_llama, "float16")
    path = folder / "quantflow.json"
    provenance = json.loads(path.read_text())
    path.write_text(json.dumps(provenance | {"format": "awq"}))
    with pytest.raises(ArtifactError, match="quantization_config"):
        open_artifact(folder)
    # Without a provenance it is somebody else's: plain weights, as it holds no codes.
    path.unlink()
    assert open_artifact(folder).names()


def test_a_damaged_export_is_refused_where_it_is_read_back(tiny_llama: Path, tmp_path: Path) -> None:
    folder = exported(tmp_path, tiny_llama, "float16")
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate((folder / "model.safetensors").stat().st_size - 100)
    with pytest.raises(ArtifactError, match="cut short"):
        open_artifact(folder)

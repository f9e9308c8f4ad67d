"""Several schemes from one calibration: each as if alone, for one forward and one read of the weights."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.errors import QuantizationError
from quantflow.model.forward import BlockPass
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize import factor, stage
from quantflow.quantize.block import quantize_block
from quantflow.quantize.codes import dequantize, load_block
from quantflow.quantize.grid import GridKind
from quantflow.quantize.outcome import load_quantize_record as load_record
from quantflow.quantize.params import QuantizeParams, Scheme
from quantflow.quantize.rtn import quantize_rtn
from tests.quantize.test_stage import inputs_for
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

AWQ = Scheme(method="awq", bits=4, group_size=32)
BOTH = Scheme(method="awq+gptq", bits=4, group_size=32)
GPTQ = Scheme(method="gptq", bits=4, group_size=32, symmetric=True)
GPTQ_ACT = Scheme(method="gptq", bits=3, group_size=-1, desc_act=True, scale_search="mse")
GPTQ_MIXED = Scheme(method="gptq", bits=4, group_size=32, desc_act=True)
RTN = Scheme(method="rtn", bits=8, group_size=64)
ALL = (AWQ, BOTH, GPTQ, GPTQ_ACT, GPTQ_MIXED, RTN)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return random_model(tmp_path / "model", tiny_config())


def run(
    folder: Path,
    tmp_path: Path,
    schemes: Sequence[Scheme],
    name: str = "out",
    reporter: RecordingReporter | None = None,
) -> Path:
    inputs = {role: tmp_path / role for role in ("source", "data")}
    if not inputs["source"].exists():
        inputs = inputs_for(folder, tmp_path)
    (tmp_path / name).mkdir(exist_ok=True)
    params = QuantizeParams(candidates=tuple(schemes), device="cpu", batch_tokens=64)
    stage.run(params, inputs, tmp_path / name, reporter or RecordingReporter())
    return tmp_path / name


def codes_of(output: Path, scheme: Scheme) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((output / "codes" / scheme.id).iterdir())}


def test_a_scheme_s_codes_do_not_depend_on_the_schemes_beside_it(folder: Path, tmp_path: Path) -> None:
    together = run(folder, tmp_path, ALL)
    for scheme in ALL:
        alone = run(folder, tmp_path, [scheme], f"alone-{scheme.id}")
        assert len(codes_of(alone, scheme)) == 3
        assert codes_of(alone, scheme) == codes_of(together, scheme), scheme.id


def test_one_forward_and_one_read_serve_all(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    real = BlockPass.run

    def counting(self: BlockPass, index: int, *rest: Any) -> bool:
        passes.append(index)
        return real(self, index, *rest)

    monkeypatch.setattr(BlockPass, "run", counting)
    record = load_record(run(folder, tmp_path, ALL))
    assert passes == [0, 1, 2]
    # A forward but for the head, which has 400 · 64 of the weights that are multiplied by.
    inside = 3 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
    assert record.forwards == pytest.approx(1 - 400 * 64 / (400 * 64 + inside))
    assert record.calibration_tokens == 8 * 32
    blocks = sum(
        SafetensorsReader(folder).spec(name).bytes
        for name in SafetensorsReader(folder).names()
        if name.startswith("model.layers.")
    )
    # Beside the blocks the final norm, a part of the model before its head, and rows of the embedding: at
    # most every token's in each of the four batches.
    rows = record.bytes_read - blocks
    assert 0 < rows <= 4 * (64 + 1 + 1) * 64 * 4
    assert record.weight_bytes > record.bytes_read - 4 * 64 * 64 * 4


def test_rounding_to_nearest_needs_no_forward(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockPass, "run", None)
    output = run(folder, tmp_path, [RTN])
    record = load_record(output)
    assert (record.forwards, record.calibration_tokens) == (0.0, 0)
    name = "model.layers.1.mlp.up_proj"
    codes = load_block(output / "codes" / RTN.id / "block-00001.safetensors").linears[name]
    weight = SafetensorsReader(folder).read(f"{name}.weight")
    expected = quantize_rtn(weight, kind=GridKind(8, lowest_zero_point=1), group_size=64)
    assert torch.equal(dequantize(codes), dequantize(expected))


def test_hidden_states_on_disk_make_no_difference(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = run(folder, tmp_path, ALL, "in-memory")
    monkeypatch.setattr(stage, "SPILL_BYTES", 0)
    monkeypatch.setattr("quantflow.model.passes.PassProgress.keep", None)
    on_disk = run(folder, tmp_path, ALL, "on-disk")
    for scheme in ALL:
        assert codes_of(in_memory, scheme) == codes_of(on_disk, scheme)


@pytest.mark.parametrize("spill_bytes", [0, 1 << 30])
@pytest.mark.parametrize("schemes", [ALL, (RTN,)], ids=["calibrated", "rtn"])
def test_an_interrupted_stage_goes_on_and_ends_with_the_same_bytes(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spill_bytes: int,
    schemes: tuple[Scheme, ...],
) -> None:
    whole = run(folder, tmp_path, schemes, "whole")
    monkeypatch.setattr(stage, "SPILL_BYTES", spill_bytes)
    monkeypatch.setattr("quantflow.pipeline.pace.MAX_OVERHEAD", float("inf"))
    real, seen = quantize_block, list[int]()

    def dying(block: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(block.index)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(block, *args, **kwargs)

    reporter = RecordingReporter()
    monkeypatch.setattr(stage, "quantize_block", dying)
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path, schemes, "cut", reporter)
    cut = run(folder, tmp_path, schemes, "cut", reporter)
    assert seen == [0, 1, 1, 2]
    for scheme in schemes:
        assert codes_of(cut, scheme) == codes_of(whole, scheme)
    assert load_record(cut) == load_record(whole)


def test_gptq_does_without_folds_and_can_be_stored_in_autogptq_s_layout(folder: Path, tmp_path: Path) -> None:
    output = run(folder, tmp_path, ALL)
    for scheme in (GPTQ, GPTQ_ACT, GPTQ_MIXED, RTN):
        block = load_block(output / "codes" / scheme.id / "block-00000.safetensors")
        assert not block.folds
        assert len(block.linears) == 7
        for codes in block.linears.values():
            assert codes.bits == scheme.bits
            assert (codes.group_index is None) == (scheme is not GPTQ_MIXED)
            if scheme.symmetric:
                assert (codes.zero_points == 8).all()
            else:
                assert codes.zero_points.min() >= 1
    assert load_block(output / "codes" / BOTH.id / "block-00000.safetensors").folds


def spoil(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def events_of(folder: Path, tmp_path: Path, schemes: Sequence[Scheme]) -> dict[str, Any]:
    reporter = RecordingReporter()
    run(folder, tmp_path, schemes, "events", reporter)
    return {event.code: event for event in reporter.events}


def test_a_sound_block_raises_no_event(folder: Path, tmp_path: Path) -> None:
    assert events_of(folder, tmp_path, ALL) == {}


def test_a_dead_channel_is_an_event_and_is_rounded_to_nearest(folder: Path, tmp_path: Path) -> None:
    def kill(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.mlp.up_proj.weight"][[5, 9]] = 0

    spoil(folder, kill)
    found = events_of(folder, tmp_path, ALL)
    assert found.keys() == {"dead-channels"}
    assert found["dead-channels"].detail == {"units": {"model.layers.1.down": 2}}
    assert "2 in all" in found["dead-channels"].message
    block = load_block(tmp_path / "events" / "codes" / GPTQ.id / "block-00001.safetensors")
    codes = block.linears["model.layers.1.mlp.down_proj"]
    weight = SafetensorsReader(folder).read("model.layers.1.mlp.down_proj.weight")
    dead = dequantize(codes)[:, [5, 9]] - weight[:, [5, 9]]
    # Half a step, and half more where the largest of a group is clipped.
    assert (dead.abs() <= codes.scales[:, :1].float() * 1.01).all()
    assert not torch.equal(dequantize(codes)[:, 5], torch.zeros(64))


def test_a_constant_column_is_an_event(folder: Path, tmp_path: Path) -> None:
    def flatten(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.2.self_attn.o_proj.weight"][:, 3] = 0.25

    spoil(folder, flatten)
    found = events_of(folder, tmp_path, [GPTQ])
    assert found["constant-columns"].detail == {"units": {"model.layers.2.o": 1}}


def test_fewer_tokens_than_inputs_are_an_event_where_gptq_is_asked_for(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config(intermediate_size=320))  # for 256 tokens
    found = events_of(folder, tmp_path, [GPTQ])
    assert found["fewer-tokens-than-inputs"].detail["units"] == {
        f"model.layers.{i}.down": 320 for i in range(3)
    }
    shutil.rmtree(tmp_path / "events")
    assert events_of(folder, tmp_path, [AWQ]) == {}


def test_damping_that_had_to_be_raised_is_an_event(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = factor._cholesky, list[int]()

    def fails_first(matrix: torch.Tensor) -> bool:
        calls.append(len(matrix))
        return len(calls) % 2 == 0 and real(matrix)

    monkeypatch.setattr(factor, "_cholesky", fails_first)
    found = events_of(folder, tmp_path, [GPTQ])
    units = [f"model.layers.{index}.{unit}" for index in range(3) for unit in ("qkv", "o", "gate_up", "down")]
    assert found["damping-raised"].detail["units"] == dict.fromkeys(units, pytest.approx(0.1))
    assert "raised (to as much as 0.1)" in found["damping-raised"].message


@pytest.mark.parametrize("scheme", [RTN, AWQ, GPTQ], ids=["rtn", "awq", "gptq"])
def test_a_weight_that_no_format_can_hold_is_refused_by_name(
    folder: Path, tmp_path: Path, scheme: Scheme
) -> None:
    def grow(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.0.self_attn.v_proj.weight"] *= 1e8

    spoil(folder, grow)
    with pytest.raises(QuantizationError, match=r"model\.layers\.0\.qkv: a scale of .* does not fit float16"):
        run(folder, tmp_path, [scheme])


def test_the_record_is_readable_by_people(folder: Path, tmp_path: Path) -> None:
    record = json.loads((run(folder, tmp_path, [AWQ, GPTQ]) / "quantize.json").read_text())
    search = record["searches"][AWQ.id]["model.layers.0.down"]
    assert 0 <= search["exponent"] < 1
    assert 0 < search["loss"] <= 1
    assert record["searches"][GPTQ.id] == {}

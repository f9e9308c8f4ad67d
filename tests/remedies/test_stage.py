"""The remedy stage on a tiny model whose activations have outliers."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from quantflow.data.windows import CALIBRATION_FILE, PACKED, SELECTION_FILE, make_windows, save_windows
from quantflow.quantize import stage as quantize_stage
from quantflow.quantize.emulated import EmulatedDecoder
from quantflow.quantize.int8_block import Int8Block, int8_file, read_int8_block
from quantflow.quantize.params import QuantizeParams, RemedyParams, int8_scheme
from quantflow.remedies import stage
from quantflow.remedies.record import RemedyRecord, load_remedy_record
from tests.measure.inputs import source_output
from tests.quantize.test_int8_stage import final_logits
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer

W8A8, INT8 = int8_scheme("w8a8"), int8_scheme("int8")
PARAMS = RemedyParams(scheme=W8A8, device="cpu", batch_tokens=128)
BLOCKS = 3
LOUD = [3, 20]
"""Rows of the second block's up_proj, and so inputs of its down_proj, that are sixty times as loud."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of `source`, `data` and `quantize`."""
    folder = tmp_path_factory.mktemp("remedies")
    model = random_model(folder / "model", tiny_config(tie_word_embeddings=True))
    tiny_tokenizer().save_pretrained(model)
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][LOUD] *= 60
    tensors["model.layers.1.mlp.down_proj.weight"][:, LOUD] /= 60
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    folders = {name: folder / name for name in ("data", "codes")}
    for own in folders.values():
        own.mkdir()
    folders["source"] = source_output(folder / "source", model)
    generator = np.random.default_rng(0)

    def windows(count: int) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
        return list(generator.integers(0, 400, (count, 32)).astype(np.int32))

    save_windows(folders["data"] / CALIBRATION_FILE, make_windows(windows(8), [PACKED] * 8))
    save_windows(folders["data"] / SELECTION_FILE, make_windows(windows(6), [0, 0, 1, 2, 3, 3]))
    params = QuantizeParams(candidates=(W8A8, INT8), device="cpu", batch_tokens=128)
    quantize_stage.run(params, folders, folders["codes"], RecordingReporter())
    return folders


def run(
    inputs: dict[str, Path],
    output: Path,
    *,
    reporter: RecordingReporter | None = None,
    **changes: Any,
) -> Path:
    output.mkdir(exist_ok=True)
    stage.run(PARAMS.model_copy(update=changes), inputs, output, reporter or RecordingReporter())
    return output


@pytest.fixture(scope="module")
def output(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(inputs, tmp_path_factory.mktemp("remedied"))


def values(output: Path, scheme: str = W8A8.id) -> dict[int | None, Int8Block]:
    return {index: read_int8_block(output, scheme, index) for index in (*range(BLOCKS), None)}


def trials(record: RemedyRecord) -> dict[str, float]:
    return {trial.name: trial.kl for trial in record.trials}


def test_the_best_whole_model_is_taken_and_is_better_than_minmax(output: Path) -> None:
    record = load_remedy_record(output)
    kl = trials(record)
    taken = next(trial for trial in record.trials if trial.taken)
    assert sum(trial.taken for trial in record.trials) == 1
    assert taken.kl == min(kl.values())
    assert taken.kl < 0.7 * kl["minmax"]
    assert record.floating_share == taken.floating_share <= PARAMS.max_floating
    assert record.tokens == 6 * 32


def test_the_outliers_are_taken_apart_or_smoothed_away(output: Path) -> None:
    unit = next(unit for unit in load_remedy_record(output).units if unit.unit == "model.layers.1.down")
    assert unit.channels >= 2 or unit.exponent > 0 or unit.twice
    assert unit.kl is not None
    assert unit.kl_minmax is not None
    assert unit.kl < 0.2 * unit.kl_minmax


def test_what_is_measured_is_the_kl_of_the_values_that_are_written(
    inputs: dict[str, Path], output: Path, tmp_path: Path
) -> None:
    model = inputs["source"].parent / "model"
    load: Any = AutoModelForCausalLM.from_pretrained
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 400, (14, 32))[8:])
    with torch.no_grad():
        log_p = load(model, dtype=torch.float32)(ids).logits[:, :-1].log_softmax(-1)
        decoder = EmulatedDecoder(model, partial(read_int8_block, output, W8A8.id))
        log_q = final_logits(decoder, ids, tmp_path)[:, :-1].log_softmax(-1)
    kl = float((log_p.exp() * (log_p - log_q)).sum(-1).mean())
    record = load_remedy_record(output)
    assert kl == pytest.approx(min(trials(record).values()), rel=0.02)


def test_the_record_says_of_every_unit_what_its_values_are(output: Path) -> None:
    record = load_remedy_record(output)
    assert len(record.units) == 4 * BLOCKS + 1
    linears = {name: own for block in values(output).values() for name, own in block.linears.items()}
    assert len(linears) == 7 * BLOCKS + 1
    folds = [name for block in values(output).values() for name in block.folds]
    assert len(folds) == sum(unit.exponent > 0 for unit in record.units)
    first = {"qkv": "self_attn.q_proj", "o": "self_attn.o_proj", "gate_up": "mlp.gate_proj"}
    for unit in record.units:
        prefix, _, name = unit.unit.rpartition(".")
        own = linears[f"{prefix}.{first.get(name, 'mlp.down_proj')}" if prefix else name]
        assert len(own.floating_channels) == unit.channels
        assert (own.remainder is not None) == unit.twice
        assert own.input is not None
        assert (own.input.lowest_value, own.input.highest_value) == (unit.low, unit.high)
    weights = sum(own.q.numel() for own in linears.values())
    apart = sum(own.floating_weight.numel() for own in linears.values())
    assert record.floating_share == pytest.approx(apart / weights)


@pytest.mark.parametrize("budget", [0.0, 0.02])
def test_no_more_is_in_floating_point_than_the_budget_says(
    inputs: dict[str, Path], tmp_path: Path, budget: float
) -> None:
    record = load_remedy_record(run(inputs, tmp_path / "out", max_floating=budget))
    assert all(trial.floating_share <= budget for trial in record.trials)
    assert min(trials(record).values()) < trials(record)["minmax"]


def test_kept_units_have_no_values_and_no_folds_and_count_as_floating(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    output = run(inputs, tmp_path / "out", keep=("model.layers.1.down", "lm_head"))
    found = values(output)
    assert "model.layers.1.mlp.down_proj" not in found[1].linears
    assert "model.layers.1.mlp.up_proj.weight" not in found[1].folds
    assert found[None] == Int8Block({}, {})
    record = load_remedy_record(output)
    kept = 64 * 128 + 400 * 64
    total = 3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128) + 400 * 64
    assert record.trials[0].floating_share == pytest.approx(kept / total)
    assert record.trials[0].name == "minmax"


def test_kept_units_beyond_the_budget_are_an_event(inputs: dict[str, Path], tmp_path: Path) -> None:
    reporter = RecordingReporter()
    run(inputs, tmp_path / "out", reporter=reporter, keep=("*.down",), max_floating=0.01)
    assert "floating-share-exceeded" in reporter.codes()
    record = load_remedy_record(tmp_path / "out")
    assert {unit.channels for unit in record.units} == {0}


def test_without_selection_text_values_are_as_they_came_and_that_is_an_event(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    save_windows(data / SELECTION_FILE, make_windows([], []))
    reporter = RecordingReporter()
    output = run(inputs | {"data": data}, tmp_path / "out", reporter=reporter)
    assert reporter.codes() == ["remedies-not-judged"]
    for index in (*range(BLOCKS), None):
        files = (int8_file(folder, W8A8.id, index) for folder in (output, inputs["codes"]))
        assert len({file.read_bytes() for file in files}) == 1
    assert load_remedy_record(output).trials == ()


def test_without_inputs_in_int8_only_weights_are_remedied(inputs: dict[str, Path], tmp_path: Path) -> None:
    record = load_remedy_record(run(inputs, tmp_path / "out", scheme=INT8))
    found = values(tmp_path / "out", INT8.id)
    assert all(own.input is None for block in found.values() for own in block.linears.values())
    assert min(trials(record).values()) <= trials(record)["minmax"]


def test_weights_are_reduced_where_that_is_asked_for(inputs: dict[str, Path], tmp_path: Path) -> None:
    record = load_remedy_record(run(inputs, tmp_path / "out", reduced=True))
    found = values(tmp_path / "out")
    assert {int(own.q.abs().max()) for block in found.values() for own in block.linears.values()} == {64}
    assert record.reduced


def test_an_interrupted_stage_goes_on_and_ends_the_same(
    inputs: dict[str, Path], output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.pipeline.pace.MAX_OVERHEAD", float("inf"))
    from quantflow.remedies import estimate

    real, seen = estimate.block_gradients, list[int]()  # type: ignore[attr-defined]

    def dying(boundaries: Any, index: int, *args: Any) -> Any:
        seen.append(index)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(boundaries, index, *args)

    monkeypatch.setattr(estimate, "block_gradients", dying)
    reporter = RecordingReporter()
    with pytest.raises(KeyboardInterrupt):
        run(inputs, tmp_path / "cut", reporter=reporter)
    cut = run(inputs, tmp_path / "cut", reporter=reporter)
    assert seen == [2, 1, 1, 0]
    for path in sorted(p for p in output.rglob("*") if p.is_file()):
        assert path.read_bytes() == (cut / path.relative_to(output)).read_bytes(), path.name

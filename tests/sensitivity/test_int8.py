"""The scan of W8A8: inputs quantized as well, and the head a unit like any other."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from quantflow.model.replaced import forwards_replaced
from quantflow.model.units import HEAD
from quantflow.quantize.int8 import InputRange
from quantflow.quantize.int8_block import read_int8_block
from quantflow.quantize.params import int8_scheme
from quantflow.sensitivity import scan
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.exact import exact_scores
from quantflow.sensitivity.histograms import OutputHistograms
from quantflow.sensitivity.ladder import ladders
from quantflow.sensitivity.methods import Ground, activation, exact, fisher
from quantflow.sensitivity.params import ScanParams, ladder_of
from quantflow.sensitivity.record import load_scan
from quantflow.sensitivity.scores import rank_correlation
from quantflow.sensitivity.stored import StoredCodes
from tests.reporting import RecordingReporter
from tests.sensitivity.scanning import ground, scan_inputs
from tests.tiny_models import tiny_tokenizer

W8A8 = int8_scheme("w8a8")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> dict[str, Path]:
    return scan_inputs(tmp_path_factory.mktemp("scan"), tiny_llama, (W8A8,), windows=8)


@pytest.fixture(scope="module")
def made(inputs: dict[str, Path], tiny_llama: Path) -> Ground:
    boundaries: Boundaries = ground(inputs, tiny_llama, ()).boundaries
    codes = {W8A8.id: StoredCodes(inputs["codes"], W8A8, boundaries.decoder.family)}
    return Ground(boundaries, codes, RecordingReporter())


def naive(made: Ground, model: Path, folder: Path, unit: str) -> float:
    """One full forward of transformers' own model with the unit's linears as the QDQ graph computes them."""
    load: Any = AutoModelForCausalLM.from_pretrained
    loaded = load(model, dtype=torch.float32).eval()
    windows = [torch.from_numpy(w.astype("int64"))[None] for w in made.boundaries.text.windows]
    index = None if unit == HEAD else int(unit.split(".")[2])
    values = read_int8_block(folder, W8A8.id, index)
    names = (HEAD,) if index is None else made.boundaries.decoder.family.units[unit.rpartition(".")[2]]
    with torch.no_grad():
        lossless = [loaded(window).logits[0, :-1].log_softmax(-1) for window in windows]
        for name in names:
            full = name if index is None else f"model.layers.{index}.{name}"
            linear = values.linears[full]
            how = linear.input
            assert how is not None
            weight = linear.q.float() * linear.scales[:, None]

            def forward(
                x: torch.Tensor, weight: torch.Tensor = weight, how: InputRange = how
            ) -> torch.Tensor:
                codes: torch.Tensor = (torch.round(x / how.scale) + how.zero_point).clamp(0, 255)
                return ((codes - how.zero_point) * how.scale) @ weight.T

            loaded.get_submodule(full).forward = forward
        kl = []
        for window, log_p in zip(windows, lossless, strict=True):
            log_q = loaded(window).logits[0, :-1].log_softmax(-1)
            kl.append((log_p.exp() * (log_p - log_q)).sum(-1, dtype=torch.float64))
    return float(torch.cat(kl).mean())


def test_exact_equals_full_forwards_with_quantized_inputs_the_head_included(
    made: Ground, inputs: dict[str, Path], tiny_llama: Path
) -> None:
    scored = exact(made)
    assert len(scored.found) == 13
    for unit in ("model.layers.0.down", "model.layers.1.qkv", HEAD):
        expected = naive(made, tiny_llama, inputs["codes"], unit)
        assert scored.found[unit, W8A8.id].kl == pytest.approx(expected, abs=1e-6)


def test_fisher_ranks_with_quantized_inputs_and_takes_the_head_exactly(made: Ground) -> None:
    estimated, reference = fisher(made), exact(made)
    head = (HEAD, W8A8.id)
    assert estimated.found[head].method == "exact"
    assert estimated.found[head].kl == pytest.approx(reference.found[head].kl, rel=1e-4)
    correlation = rank_correlation(*([s.found[key].kl for key in made.keys] for s in (estimated, reference)))
    assert correlation is not None
    assert correlation > 0.85


def test_a_head_alone_costs_a_head(made: Ground) -> None:
    measured = exact_scores(made.boundaries, made.codes, [(HEAD, W8A8.id)], RecordingReporter())
    assert measured.forwards["swapped"] == pytest.approx(measured.forwards["lossless logits"])


def test_the_stage_scans_int8_codes_and_says_what_the_head_takes(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    params = ScanParams(
        precisions=(W8A8,),
        device="cpu",
        batch_tokens=96,
    )
    scan.run(params, inputs, tmp_path, RecordingReporter())
    record = load_scan(tmp_path)
    head = next(score for score in record.scores if score.unit == HEAD)
    # One byte for each of 400 × 64 weights, and a float32 scale for each output.
    assert (head.weights, head.bytes_quantized, head.bytes_source) == (
        400 * 64,
        400 * 64 + 400 * 4,
        2 * 400 * 64,
    )
    assert not record.controls.no_op_swaps
    assert record.controls.nothing_swapped_kl < 1e-9


def test_histograms_of_the_head_are_of_its_logits_in_either_half(made: Ground, tiny_llama: Path) -> None:
    made = Ground(made.boundaries, made.codes, RecordingReporter())  # keeps nothing of other tests' passes
    found = activation(made).found
    assert {unit for unit, _ in found} == {unit for unit, _ in made.keys}
    head = found[HEAD, W8A8.id]
    assert head.kl > 0 and min(head.halves) > 0
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(tiny_llama, dtype=torch.float32).eval()
    text, swaps = made.boundaries.text, made.codes[W8A8.id].open_head()
    assert swaps is not None
    outputs = OutputHistograms(text)
    with torch.no_grad():
        for batch in text.batches:
            ids = torch.from_numpy(batch.ids)
            before = model(ids).logits
            with forwards_replaced([model.lm_head], swaps.swap(HEAD, model.lm_head)):
                after = model(ids).logits
            at = [
                (window, row, place)
                for window, (row, _, place) in zip(text.window_of_row(batch), batch.scored(), strict=True)
            ]
            windows = np.concatenate([np.full(p.stop - p.start, window) for window, _, p in at])
            y, changed = (torch.cat([logits[row, p] for _, row, p in at]) for logits in (before, after))
            outputs.add_rows((HEAD, W8A8.id), HEAD, windows, y, changed - y)
    expected = outputs.kl((HEAD, W8A8.id))
    assert (head.kl, *head.halves) == pytest.approx(expected, rel=1e-3)


def test_the_middle_rung_is_the_same_codes_with_the_input_left_as_it_is(
    made: Ground, inputs: dict[str, Path]
) -> None:
    """Held to full forwards in which a unit's weights alone are rounded."""
    unit = "model.layers.0.down"
    codes = StoredCodes(inputs["codes"], W8A8, made.boundaries.decoder.family, weights_only=True)
    assert codes.precision == int8_scheme("int8").id
    keys = [(unit, codes.precision), (HEAD, codes.precision)]
    measured = exact_scores(made.boundaries, {codes.precision: codes}, keys, RecordingReporter())
    load: Any = AutoModelForCausalLM.from_pretrained
    windows = [torch.from_numpy(w.astype("int64"))[None] for w in made.boundaries.text.windows]
    for key, index, linear in (
        (keys[0], 0, "model.layers.0.mlp.down_proj"),
        (keys[1], None, HEAD),
    ):
        loaded = load(made.boundaries.decoder.folder, dtype=torch.float32).eval()
        own = read_int8_block(inputs["codes"], W8A8.id, index).linears[linear]
        with torch.no_grad():
            lossless = [loaded(window).logits[0, :-1].log_softmax(-1) for window in windows]
            rounded = own.q.float() * own.scales[:, None]
            loaded.get_submodule(linear).forward = lambda x, weight=rounded: x @ weight.T
            kl = [
                (log_p.exp() * (log_p - loaded(window).logits[0, :-1].log_softmax(-1))).sum(-1)
                for window, log_p in zip(windows, lossless, strict=True)
            ]
        found = made.boundaries.text.mean(measured.sums[key])
        assert found == pytest.approx(float(torch.cat(kl).double().mean()), abs=1e-6)
        assert found > 0


def test_the_stage_scores_both_rungs_of_w8a8_and_the_middle_one_costs_less_kl_and_as_many_bytes(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    ladder = ladder_of(W8A8)
    params = ScanParams(
        precisions=(W8A8,),
        weights_only=True,
        method="fisher",
        device="cpu",
        batch_tokens=96,
    )
    assert params.candidates == 2
    scan.run(params, inputs, tmp_path, RecordingReporter())
    record = load_scan(tmp_path)
    assert record.precisions == ladder
    both = list(zip(*(record.of(precision) for precision in ladder), strict=True))
    assert len(both) == 13
    assert sum(own.kl for own, _ in both) > 2 * sum(middle.kl for _, middle in both) > 0
    assert all(own.bytes_quantized == middle.bytes_quantized for own, middle in both)
    units = ladders(record, ladder, "float32")
    assert [rung.spared for rung in units[0].rungs] == [0, units[0].weights // 2, units[0].weights]
    assert units[0].rungs[-1].bytes == 4 * units[0].weights


def test_an_input_with_planted_outliers_comes_first_and_a_unit_that_cannot_matter_scores_zero(
    tiny_llama: Path, tmp_path: Path
) -> None:
    """One channel of an input 200 times as large, read by weights a 200th: the same function in float32."""
    planted, last, dead = "model.layers.1.down", "model.layers.2.down", "model.layers.2.gate_up"
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(tiny_llama, dtype=torch.float32)
    with torch.no_grad():
        mlp = model.model.layers[1].mlp
        mlp.up_proj.weight[5] *= 200
        mlp.down_proj.weight[:, 5] /= 200
        model.model.layers[2].mlp.down_proj.weight.zero_()
    model.save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    folders = scan_inputs(tmp_path / "inputs", tmp_path / "model", (W8A8,), windows=4)
    methods: tuple[Literal["exact", "fisher"], ...] = ("exact", "fisher")
    for method in methods:
        output = tmp_path / method
        output.mkdir()
        params = ScanParams(
            precisions=(W8A8,),
            weights_only=True,
            method=method,
            device="cpu",
            batch_tokens=96,
        )
        reporter = RecordingReporter()
        scan.run(params, folders, output, reporter)
        whole, weights = (
            {score.unit: score.kl for score in load_scan(output).of(precision)}
            for precision in ladder_of(W8A8)
        )
        assert max(whole, key=lambda unit: whole[unit]) == planted
        assert whole[planted] > 20 * weights[planted]  # it is the input that cannot bear it
        assert whole[last] == whole[dead] == weights[last] == weights[dead] == 0
        assert min(kl for unit, kl in whole.items() if unit not in (last, dead)) > 0
        # Weights of zero are their own codes; with its input rounded a unit never is what it was.
        assert load_scan(output).controls.no_op_swaps == (f"{last} @ {ladder_of(W8A8)[1]}",)
        assert "swaps-without-effect" in reporter.codes()

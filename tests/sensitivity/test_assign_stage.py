"""The assign stage: what was chosen is written, read back, measured, and undone where it is worse."""

import json
from pathlib import Path
from typing import Any

import pytest

from quantflow.errors import QuantizationError, RecipeError
from quantflow.formats import assemble
from quantflow.formats.assembly import ARTIFACT_FOLDER, WRITTEN_FOLDER, load_assembly
from quantflow.formats.params import AssembleParams
from quantflow.formats.read import open_artifact
from quantflow.measure.measurement import Samples, load_samples
from quantflow.sensitivity import assign_stage
from quantflow.sensitivity.assignment import AssignmentRecord, load_assignment
from quantflow.sensitivity.choosing import AssignParams
from quantflow.sensitivity.decisions import ROLLED_BACK
from quantflow.sensitivity.kept import load_precisions
from tests.reporting import RecordingReporter
from tests.sensitivity.ground import NAMES, SCHEME, choosing, scan_output

# Of 110,592 weights an `o` has 4,096 and a `qkv` 8,192: together 11.1 %.
WORST = {"model.layers.1.o": 0.5, "model.layers.2.qkv": 0.2}


def run(
    outputs: dict[str, Path],
    tmp_path: Path,
    tiny_llama: Path,
    kl: dict[str, float] | None = None,
    reporter: RecordingReporter | None = None,
    keep: tuple[str, ...] = (),
    force: tuple[str, ...] = (),
    **policy: Any,
) -> tuple[AssignmentRecord, Path]:
    scan = scan_output(tmp_path / "scan", tiny_llama, WORST if kl is None else kl)
    output = tmp_path / "out"
    output.mkdir()
    values: dict[str, Any] = {"policy": "budget", "max_spared": 0.12} | policy
    params = AssignParams(choosing=choosing(keep, force), **values)
    assign_stage.run(params, {**outputs, "scan": scan}, output, reporter or RecordingReporter())
    return load_assignment(output), output


def test_what_is_spared_is_in_the_artifact_and_in_the_record_with_its_reason(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    record, output = run(outputs, tmp_path, tiny_llama)
    assert {decision.unit for decision in record.spared} == set(WORST)
    assert load_precisions(output).kept == set(WORST)
    assert load_assembly(output / WRITTEN_FOLDER).kept_units == tuple(sorted(WORST))
    reader = open_artifact(output / WRITTEN_FOLDER / ARTIFACT_FOLDER)
    quantized = reader.quantized  # type: ignore[attr-defined]
    assert "model.layers.1.self_attn.o_proj" not in quantized
    assert "model.layers.0.self_attn.o_proj" in quantized
    by_unit = {decision.unit: decision for decision in record.decisions}
    assert [decision.unit for decision in record.decisions] == list(NAMES)
    spared, quantized_one = by_unit["model.layers.1.o"], by_unit["model.layers.0.o"]
    assert (spared.precision, spared.kl_quantized, spared.kl) == ("bfloat16", 0.5, 0.0)
    assert (quantized_one.precision, quantized_one.kl) == (SCHEME.id, 0.01)
    assert "its KL of 0.5 is rank 1 of 12; within 12 % of the weights" in spared.reason
    assert quantized_one.reason.startswith("Quantized: ")
    assert spared.bytes > spared.bytes_quantized > 0


def test_the_mix_is_measured_as_a_whole_beside_the_sum_of_its_parts_and_beside_nothing_spared(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    record, output = run(outputs, tmp_path, tiny_llama)
    plain = load_samples(output / assign_stage.PLAIN)
    assert plain.kl is not None
    assert record.plain.kl == pytest.approx(float(plain.kl.mean()))
    assert record.plain.sum_of_parts == pytest.approx(0.7 + 10 * 0.01)
    assert record.mix.sum_of_parts == pytest.approx(10 * 0.01)
    assert 0 < record.mix.kl < record.plain.kl
    assert record.mix.additivity_ratio == pytest.approx(record.mix.kl / 0.1)
    assert record.mix.units == 2
    assert record.mix.spared == pytest.approx((4096 + 8192) / 110592)
    assert record.mix.bytes > record.plain.bytes
    assert record.rolled_back is None


def test_frontier_and_next_unit_are_in_bytes_of_the_artifact(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    record, output = run(outputs, tmp_path, tiny_llama)
    first, second, *_ = record.frontier
    assert (first.unit, first.units, first.spared) == ("", 0, 0.0)
    assert (second.unit, second.precision) == ("model.layers.1.o", "bfloat16")
    assert second.kl == pytest.approx(first.kl - 0.5)
    chosen = next(point for point in record.frontier if point.units == 2)
    assert chosen.bytes == pytest.approx(load_assembly(output / WRITTEN_FOLDER).weight_bytes, rel=0.02)
    assert record.next is not None
    assert record.next.unit == "model.layers.0.o"  # of equal KL, the fewest weights
    assert record.next.kl == 0.01


def test_a_mix_that_measures_worse_than_nothing_spared_is_rolled_back_and_said(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, reporter = assign_stage.measured, RecordingReporter()  # type: ignore[attr-defined]

    def worse(bench: Any, folder: Path, part: Any, what: str) -> Samples:
        samples = real(bench, folder, part, what)
        assert samples.kl is not None
        factor = 100 if "mix" in what else 1
        return Samples(samples.document, samples.nll, samples.kl * factor, samples.top1)

    monkeypatch.setattr(assign_stage, "measured", worse)
    record, output = run(outputs, tmp_path, tiny_llama, reporter=reporter)
    assert reporter.codes() == ["assignment-rolled-back"]
    assert record.spared == ()
    assert load_precisions(output).kept == set()
    assert load_assembly(output / WRITTEN_FOLDER).kept_units == ()
    assert record.mix == record.plain
    assert record.rolled_back is not None
    assert record.rolled_back.kl > record.plain.kl
    undone = next(decision for decision in record.decisions if decision.unit == "model.layers.1.o")
    assert undone.reason == ROLLED_BACK


def test_kept_units_are_no_part_of_the_budget_and_forced_ones_stay_quantized(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    record, output = run(
        outputs, tmp_path, tiny_llama, keep=("*.down", "*.gate_up"), force=("model.layers.1.o",)
    )
    kept = {name for name in NAMES if name.endswith(("down", "gate_up"))}
    assert {decision.unit for decision in record.decisions} == set(NAMES) - kept
    # 12 % of what is left, 36,864 weights, is one `o`, and the first of those that cost as much.
    assert [decision.unit for decision in record.spared] == ["model.layers.0.o"]
    assert load_precisions(output).kept == kept | {"model.layers.0.o"}
    forced = next(decision for decision in record.decisions if decision.unit == "model.layers.1.o")
    assert forced.reason == "Quantized because sensitivity.force names it."


def test_threshold_and_top_k_choose_as_they_say(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    by_threshold, _ = run(
        outputs, tmp_path / "a", tiny_llama, policy="threshold", threshold=0.3, max_spared=None
    )
    assert [decision.unit for decision in by_threshold.spared] == ["model.layers.1.o"]
    assert "is above the threshold of 0.3" in by_threshold.spared[0].reason
    by_count, _ = run(outputs, tmp_path / "b", tiny_llama, policy="top_k", top_k=2, max_spared=None)
    assert {decision.unit for decision in by_count.spared} == set(WORST)
    assert by_count.settings == {"top_k": 2}


def test_limits_that_cannot_be_met_are_refused_before_anything_is_measured(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr(assign_stage, "measured", never)
    cases: dict[str, dict[str, Any]] = {
        "sensitivity.effective_bits": {"max_spared": None, "effective_bits": 2.9},
        "sensitivity.max_bytes": {"max_spared": None, "max_bytes": 1000},
        "sensitivity.threshold": {"policy": "threshold", "threshold": 0.001, "max_spared": None},
        "sensitivity.top_k": {"policy": "top_k", "top_k": 12, "max_spared": None},
        "keep": {"keep": ("nothing",)},
        "sensitivity.force": {"force": ("model.layers.9.o",)},
    }
    for number, (key, policy) in enumerate(cases.items()):
        with pytest.raises(RecipeError) as caught:
            run(outputs, tmp_path / str(number), tiny_llama, **policy)
        assert caught.value.where == key
    with pytest.raises(RecipeError, match="both to be kept and to be quantized"):
        run(outputs, tmp_path / "both", tiny_llama, keep=("*.o",), force=("model.layers.1.o",))


def test_a_score_that_is_no_number_is_refused(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    with pytest.raises(QuantizationError, match="nothing can be decided by"):
        run(outputs, tmp_path, tiny_llama, {"model.layers.1.o": float("nan")})


def test_assemble_passes_on_what_was_written_and_writes_anew_what_was_not(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    _, assigned = run(outputs, tmp_path, tiny_llama)
    artifacts = {}
    for written in (True, False):
        output = tmp_path / f"assembled-{written}"
        output.mkdir()
        params = choosing().assemble.model_copy(update={"written": written})
        assert isinstance(params, AssembleParams)
        assemble.run(params, {**outputs, "assignment": assigned}, output, RecordingReporter())
        artifacts[written] = load_assembly(output).folder
        assert load_assembly(output).kept_units == tuple(sorted(WORST))
    names = sorted(path.name for path in artifacts[True].iterdir())
    for name in names:
        ours, anew = artifacts[True] / name, artifacts[False] / name
        assert ours.read_bytes() == anew.read_bytes()
        assert ours.samefile(assigned / WRITTEN_FOLDER / ARTIFACT_FOLDER / name)
    assert names == sorted(path.name for path in artifacts[False].iterdir())
    told = json.loads((artifacts[True] / "quantflow.json").read_text())["precisions"]
    assert told["model.layers.1.o"] == "bfloat16"


def test_an_interrupted_stage_goes_on_with_the_candidates_it_has(
    outputs: dict[str, Path], tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter, real = RecordingReporter(), assign_stage.written  # type: ignore[attr-defined]
    made: list[str] = []

    def dying(bench: Any, kept: Any, folder: Path, part: Any) -> Any:
        made.append(folder.parent.name)
        if made == ["plain", "mix"]:
            raise KeyboardInterrupt
        return real(bench, kept, folder, part)

    monkeypatch.setattr(assign_stage, "written", dying)
    with pytest.raises(KeyboardInterrupt):
        run(outputs, tmp_path / "cut", tiny_llama, reporter=reporter)
    plain = reporter.progress_folder / "plain"
    before = (plain / "measured" / "samples.safetensors").stat().st_mtime_ns
    again = tmp_path / "again"
    record, _ = run(outputs, again, tiny_llama, reporter=reporter)
    assert (plain / "measured" / "samples.safetensors").stat().st_mtime_ns == before
    assert len(record.spared) == 2

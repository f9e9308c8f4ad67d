"""The scan stage on models of which the answer is known."""

from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from quantflow.data.windows import CALIBRATION_FILE, SELECTION_FILE, make_windows, save_windows
from quantflow.errors import DataError
from quantflow.formats.making import Ingredients, write_artifact
from quantflow.formats.params import AssembleParams
from quantflow.pipeline.pace import Pace
from quantflow.quantize.params import Scheme
from quantflow.sensitivity import scan, settle_stage
from quantflow.sensitivity.artifact_size import tensor_bytes
from quantflow.sensitivity.assign import nothing_spared, total_bytes
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.params import ChoiceParams, ScanParams, SettleParams
from quantflow.sensitivity.record import ScanRecord, load_scan
from quantflow.sensitivity.settle import DECIDING
from tests.reporting import RecordingReporter
from tests.sensitivity.scanning import AWQ, LENGTH, RTN, letters, scan_inputs, unscored
from tests.tiny_models import tiny_tokenizer

OUTLIERS = "model.layers.0.down"
# A choice that hangs on units of nearly the same score, as that by weights does not in a model of twelve.
WORST_FOUR = ChoiceParams(precisions=(RTN.id,), policy="top_k", top_k=4)
CANNOT_MATTER, ZERO = "model.layers.2.gate_up", "model.layers.2.down"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """The tiny Llama with outliers in one unit, and one whose output goes nowhere."""
    folder = tmp_path_factory.mktemp("planted")
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(tiny_llama, dtype=torch.float32)
    with torch.no_grad():
        mlp = model.model.layers[0].mlp
        # Every third column 30 times as large, fed with a thirtieth: the same function on another grid.
        mlp.down_proj.weight[:, ::3] *= 30
        mlp.up_proj.weight[::3] /= 30
        model.model.layers[2].mlp.down_proj.weight.zero_()
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, planted: Path) -> dict[str, Path]:
    return scan_inputs(tmp_path_factory.mktemp("scan"), planted, (RTN,), windows=8)


def run(
    inputs: dict[str, Path],
    folder: Path,
    method: str,
    schemes: tuple[Scheme, ...] = (RTN,),
    choices: tuple[ChoiceParams, ...] = (),
    **changes: Any,
) -> tuple[ScanRecord, RecordingReporter]:
    """The scan stage and, of method `auto`, the one that settles what it estimated."""
    output, reporter = folder / method, RecordingReporter()
    output.mkdir()
    params = ScanParams.model_validate(
        {
            "precisions": schemes,
            "method": "fisher" if method == "auto" else method,
            "device": "cpu",
            "batch_tokens": 96,
            **changes,
        }
    )
    if method != "auto":
        scan.run(params, inputs, output, reporter)
        return load_scan(output), reporter
    (estimated := folder / "estimated").mkdir()
    scan.run(params, inputs, estimated, reporter)
    chosen = choices or (ChoiceParams(precisions=(schemes[0].id,)),)
    given = {**inputs, "scan": estimated}
    settle_stage.run(SettleParams(scan=params, choices=chosen), given, output, reporter)
    return load_scan(output), reporter


@pytest.mark.parametrize("method", ["exact", "fisher", "auto"])
def test_a_layer_with_planted_outliers_comes_first_and_one_that_cannot_matter_scores_zero(
    inputs: dict[str, Path], tmp_path: Path, method: str
) -> None:
    record, reporter = run(inputs, tmp_path, method)
    scores = {score.unit: score for score in record.of(RTN.id)}
    assert len(scores) == 12
    assert max(scores, key=lambda unit: scores[unit].kl) == OUTLIERS
    assert scores[CANNOT_MATTER].kl == 0 == scores[ZERO].kl
    assert all(score.kl > 0 for unit, score in scores.items() if unit not in (CANNOT_MATTER, ZERO))
    assert record.controls.nothing_swapped_kl < 1e-9
    # Zero is on every grid: the codes of a unit without weights are its weights.
    assert record.controls.no_op_swaps == (f"{ZERO} @ {RTN.id}",)
    assert "swaps-without-effect" in reporter.codes()


def test_every_score_has_an_interval_a_confirmation_and_sizes(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    record, _ = run(inputs, tmp_path, "fisher")
    worst = max(record.scores, key=lambda score: score.kl)
    assert worst.ci_low is not None
    assert worst.ci_high is not None
    assert worst.ci_low < worst.kl < worst.ci_high
    assert min(worst.kl_by_half) < worst.kl < max(worst.kl_by_half)
    assert worst.kl_selection is not None
    assert worst.selection_ci_low is not None
    assert 0.3 < worst.kl_selection / worst.kl < 3
    # 64 × 128 codes of 4 bits, and a float16 scale and a zero point of 4 bits for each 32.
    assert (worst.weights, worst.bytes_source) == (64 * 128, 4 * 64 * 128)
    assert worst.bytes_quantized == 64 * 128 // 2 + 64 * 4 * 2 + 64 * 4 // 2
    assert record.controls.halves_rank_correlation[RTN.id] is not None
    assert record.tokens == 8 * LENGTH
    assert record.selection_tokens == 20 + 48 + 33 + 48


def test_costs_are_counted_and_auto_costs_less_than_all_exact(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    costs = {
        method: run(inputs, tmp_path, method, choices=(WORST_FOUR,))[0]
        for method in ("exact", "fisher", "auto")
    }
    assert costs["exact"].forwards == pytest.approx(sum(costs["exact"].cost_by_step.values()))
    assert costs["fisher"].forwards < 4
    assert costs["fisher"].forwards < costs["auto"].forwards < costs["exact"].forwards
    assert costs["auto"].settled is not None
    assert costs["exact"].settled is None


def test_histograms_of_outputs_are_ranked_and_held_against_the_default(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    record, _ = run(inputs, tmp_path, "activation")
    assert {score.method for score in record.scores} == {"activation"}
    assert next(score.kl for score in record.scores if score.unit == ZERO) == 0
    # What articles describe does not know that nothing comes of this unit.
    assert next(score.kl for score in record.scores if score.unit == CANNOT_MATTER) > 0
    correlation = record.controls.default_rank_correlation[RTN.id]
    assert correlation is not None
    assert -1 <= correlation < 1


def test_too_little_text_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "little"
    data.mkdir()
    one = letters(1, seed=3, lengths=[LENGTH])
    for name in (CALIBRATION_FILE, SELECTION_FILE):
        save_windows(data / name, unscored(one))
    with pytest.raises(DataError, match="fewer than two calibration windows"):
        run({**inputs, "data": data}, tmp_path, "fisher")


def test_without_selection_text_the_scan_says_that_nothing_confirms_it(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    data = tmp_path / "unconfirmed"
    data.mkdir()
    save_windows(data / CALIBRATION_FILE, unscored(letters(4, seed=3, lengths=[LENGTH] * 4)))
    save_windows(data / SELECTION_FILE, make_windows([], []))
    record, reporter = run({**inputs, "data": data}, tmp_path, "fisher")
    assert "scan-without-selection" in reporter.codes()
    assert all(score.kl_selection is None for score in record.scores)


def test_an_interrupted_scan_ends_in_the_same_scores_and_so_does_what_settles_them(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "due", True)
    whole, _ = run(inputs, tmp_path, "auto", choices=(WORST_FOUR,))
    assert whole.cost_by_step["swapped"] > 0
    (estimated := tmp_path / "again").mkdir()
    (settled := tmp_path / "settled").mkdir()
    params = ScanParams(precisions=(RTN,), device="cpu", batch_tokens=96)
    settling = SettleParams(scan=params, choices=(WORST_FOUR,))
    assert interrupted(6, lambda reporter: scan.run(params, inputs, estimated, reporter)) >= 2
    assert load_scan(estimated) == load_scan(tmp_path / "estimated")
    given = {**inputs, "scan": estimated}
    assert interrupted(4, lambda reporter: settle_stage.run(settling, given, settled, reporter)) >= 2
    assert load_scan(settled) == whole


def interrupted(steps: int, work: Callable[[Any], None]) -> int:
    """How often work had to be begun that is interrupted after every few steps."""
    reporter = RecordingReporter()
    for attempt in range(1, 20):
        with suppress(KeyboardInterrupt):
            work(_Stop(reporter, steps))
            return attempt
    raise AssertionError("it does not go on from where it was")


def test_another_budget_is_settled_from_the_same_estimates_and_what_is_in_no_doubt_costs_nothing(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, _ = run(inputs, tmp_path, "auto", choices=(WORST_FOUR,))
    assert record.method == "auto"
    exact_ones = {score.unit for score in record.scores if score.method == "exact"}
    assert 0 < len(exact_ones) < len(record.scores)
    estimated = load_scan(tmp_path / "estimated")
    assert record.forwards > estimated.forwards + record.cost_by_step[settle_stage.AGAIN]
    params = ScanParams(precisions=(RTN,), device="cpu", batch_tokens=96)
    given = {**inputs, "scan": tmp_path / "estimated"}

    def forbidden(*args: Any) -> None:
        raise AssertionError("the lossless model was run for nothing")

    monkeypatch.setattr(Boundaries, "fill", forbidden)
    # Of twelve units the worst alone, and all but two that score zero: no score is near these cuts.
    certain = ChoiceParams(precisions=(RTN.id,), policy="threshold", threshold=1e6)
    (tmp_path / "certain").mkdir()
    settle_stage.run(
        SettleParams(scan=params, choices=(certain,)), given, tmp_path / "certain", RecordingReporter()
    )
    found = load_scan(tmp_path / "certain")
    assert found.settled
    assert (found.forwards, found.scores) == (estimated.forwards, estimated.scores)


def test_max_bytes_is_settled_by_the_bytes_that_the_artifact_really_has(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = AssembleParams(name="int4", format="gptq", scheme=RTN)
    (tmp_path / "written").mkdir()
    model = Ingredients.of(inputs)
    written = write_artifact(artifact, model, frozenset(), tmp_path / "written", RecordingReporter())
    assert tensor_bytes(artifact, inputs, frozenset()) == written.weight_bytes
    real, seen = settle_stage.choice_by, []  # type: ignore[attr-defined]

    def choice_by(*args: Any) -> Any:
        seen.append(args)
        return real(*args)

    monkeypatch.setattr(settle_stage, "choice_by", choice_by)
    choice = ChoiceParams(precisions=(RTN.id,), max_spared=None, max_bytes=1, sized=artifact)
    record, _ = run(inputs, tmp_path, "auto", choices=(choice,))
    ((_, units, other),) = seen
    plain = total_bytes(units, nothing_spared(units))
    assert other + plain == written.weight_bytes
    # Room for nothing but the smallest unit, and for a byte less than that.
    step = min(unit.rungs[1].bytes - unit.own.bytes for unit in units)
    scores = {(score.unit, score.precision): score.kl for score in record.scores}
    for room, spared in ((step, 1), (step - 1, 0)):
        limited = choice.model_copy(update={"max_bytes": written.weight_bytes + room})
        chosen: Any = real(limited, units, other)(scores)
        assert sum(chosen) == spared


class _Stop:
    """Interrupts after so many steps of progress; which units decide is found out anew and does not count."""

    def __init__(self, reporter: RecordingReporter, steps: int) -> None:
        self._reporter, self._left = reporter, steps
        self.progress_folder = reporter.progress_folder
        self.event, self.keep = reporter.event, reporter.keep

    def track(self, what: str, total: int) -> Any:
        @contextmanager
        def tracked() -> Any:
            yield (lambda steps: None) if what == DECIDING else self._advance

        return tracked()

    def _advance(self, steps: int) -> None:
        self._left -= steps > 0
        if self._left <= 0:
            raise KeyboardInterrupt


def test_schemes_are_scanned_from_one_backward_pass(tmp_path: Path, tiny_llama: Path) -> None:
    inputs = scan_inputs(tmp_path / "both", tiny_llama, (AWQ, RTN))
    record, _ = run(inputs, tmp_path, "fisher", (AWQ, RTN))
    assert record.precisions == (AWQ.id, RTN.id)
    by_precision = {p: sum(score.kl for score in record.of(p)) for p in record.precisions}
    assert by_precision[AWQ.id] > by_precision[RTN.id] > 0  # three bits and four
    assert record.forwards < 5

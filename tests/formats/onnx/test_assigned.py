"""INT8 graphs whose units come down their ladder: integer arithmetic, INT8 weights alone, float32."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quantflow.formats.assembly import ARTIFACT_FOLDER, WRITTEN_FOLDER
from quantflow.formats.onnx.census_record import load_census
from quantflow.formats.onnx.params import GRAPH_FILE, OnnxAssembleParams
from quantflow.gate.params import GateParams
from quantflow.measure import onnx as measuring
from quantflow.measure.onnx_params import OnnxMeasureParams
from quantflow.model.units import HEAD
from quantflow.quantize.params import int8_scheme
from quantflow.runtime.ort import OnnxModel
from quantflow.sensitivity import assign_stage, search_stage
from quantflow.sensitivity.assignment import AssignmentRecord, load_assignment
from quantflow.sensitivity.choosing import AssignParams, Choosing, SearchParams
from quantflow.sensitivity.kept import load_precisions
from quantflow.sensitivity.params import ladder_of
from quantflow.sensitivity.record import ScanControls, ScanRecord, UnitScore, save_scan
from tests.formats.onnx.conftest import SESSION, Ground
from tests.reporting import RecordingReporter
from tests.sensitivity.ground import NAMES
from tests.tiny_models import VOCABULARY

W8A8, W8 = ladder_of(int8_scheme("w8a8"))
WEIGHTS = {"qkv": 8192, "o": 4096, "gate_up": 16384, "down": 8192, HEAD: 25600}
OUTLIERS, BAD_WEIGHT = "model.layers.0.down", "model.layers.1.o"
# Nats: what each unit costs in W8A8, and with its input left as it is. Others cost a little of both.
COSTS = {OUTLIERS: (0.5, 0.001), BAD_WEIGHT: (0.3, 0.29)}
LITTLE = (0.01, 0.01)
MEASURING = OnnxMeasureParams(session=SESSION, instruction_set="avx2")
CHOOSING = Choosing(
    assemble=OnnxAssembleParams(name="w8a8", scheme="w8a8", session=SESSION),
    graph=MEASURING,
    ladder=(W8A8, W8),
    device="cpu",
    batch_tokens=512,
)


def scanned(folder: Path, costs: Mapping[str, tuple[float, float]]) -> Path:
    """A scan that found these."""
    folder.mkdir(parents=True)
    scores = []
    for place, precision in enumerate((W8A8, W8)):
        for unit in (*NAMES, HEAD):
            weights, kl = WEIGHTS[unit.rpartition(".")[2]], costs.get(unit, LITTLE)[place]
            scores.append(
                UnitScore(
                    unit=unit,
                    precision=precision,
                    kl=kl,
                    ci_low=kl,
                    ci_high=kl,
                    method="exact",
                    kl_by_half=(kl, kl),
                    weights=weights,
                    bytes_quantized=weights,
                    bytes_source=2 * weights,
                )
            )
    record = ScanRecord(
        method="exact",
        precisions=(W8A8, W8),
        scores=tuple(scores),
        controls=ScanControls(nothing_swapped_kl=0.0, halves_rank_correlation={}),
        forwards=1.0,
        cost_by_step={},
        tokens=100,
    )
    save_scan(folder, record)
    return folder


@pytest.fixture(scope="module")
def inputs(
    ground: Ground, calibrated: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Outputs of the stages before an assignment."""
    return {**calibrated, "base": ground.base, "scan": scanned(tmp_path_factory.mktemp("scan") / "s", COSTS)}


def assigned(inputs: dict[str, Path], output: Path, **policy: Any) -> AssignmentRecord:
    output.mkdir()
    params = AssignParams(choosing=CHOOSING, **policy)
    assign_stage.run(params, inputs, output, RecordingReporter(progress_folder=output.with_suffix(".p")))
    return load_assignment(output)


def test_the_best_rung_of_each_unit_is_written_and_onnx_runtime_runs_it_as_such(
    ground: Ground, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """Room for 8,200 of 136,192 weights: half of a `down` and all of an `o`, or a `down` and nothing else."""
    record = assigned(inputs, tmp_path / "out", policy="budget", max_spared=8200 / 136192)
    assert record.rolled_back is None
    by_unit = {decision.unit: decision for decision in record.decisions}
    assert {unit for unit, decision in by_unit.items() if decision.spared} == {OUTLIERS, BAD_WEIGHT}
    middle, last = by_unit[OUTLIERS], by_unit[BAD_WEIGHT]
    assert (middle.precision, middle.kl, middle.bytes) == (W8, 0.001, middle.bytes_quantized)
    assert middle.reason.endswith("and leaves 0.001.")
    assert (last.precision, last.kl, last.bytes) == ("float32", 0.0, 4 * last.weights)
    assert record.mix.spared == pytest.approx(8192 / 136192)
    assert record.mix.sum_of_parts == pytest.approx(0.001 + 11 * 0.01)
    assert load_precisions(tmp_path / "out").having(W8) == {OUTLIERS}
    written = tmp_path / "out" / WRITTEN_FOLDER
    ids = np.arange(20)
    assert np.isfinite(OnnxModel(written / ARTIFACT_FOLDER, SESSION).start(20).logits(ids)).all()
    (tmp_path / "measured").mkdir()
    given = {"base": ground.base, "data": ground.data, "baseline": ground.base, "assemble": written}
    measuring.artifact(MEASURING, given, tmp_path / "measured", RecordingReporter())
    census = load_census(tmp_path / "measured")
    found = {unit: own.found for unit, own in census.units.items() if own.found != "int8"}
    assert found == {OUTLIERS: "weights-int8", BAD_WEIGHT: "float"}
    assert census.fallen_back == ()


def test_a_search_for_a_graph_goes_down_the_ladder_and_killed_in_a_round_it_ends_the_same(
    ground: Ground, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A margin that nothing can meet: the best candidate is saved, whether the search was killed or not."""
    inspected = SimpleNamespace(vocab_size=VOCABULARY)
    monkeypatch.setattr("quantflow.sensitivity.judging.load_inspection", lambda folder: inspected)
    monkeypatch.setattr(search_stage, "next_point", one_at_a_time)
    (tmp_path / "baseline").mkdir()
    selection = MEASURING.model_copy(update={"split": "selection"})
    measuring.baseline(selection, inputs, tmp_path / "baseline", RecordingReporter())
    assigned(inputs, tmp_path / "plain", policy="search")
    own = {"assignment": tmp_path / "plain", "baseline": tmp_path / "baseline", "inspect": tmp_path}
    gate = GateParams(artifact="w8a8", max_increase=9.0, max_mean_kl=1e-9)
    params = SearchParams(choosing=CHOOSING, gate=gate, max_spared=0.5, max_rounds=2)

    def search(name: str) -> AssignmentRecord:
        (tmp_path / name).mkdir(exist_ok=True)
        reporter = RecordingReporter(progress_folder=tmp_path / f"{name}-progress")
        search_stage.run(params, {**inputs, **own}, tmp_path / name, reporter)
        return load_assignment(tmp_path / name)

    whole = search("whole")
    assert whole.stopped_by == "max_rounds"
    # Per weight that counts, half of the outliers' unit is worth most, then the whole of the other.
    assert [done.added for done in whole.rounds] == [(), (OUTLIERS,), (BAD_WEIGHT,)]
    best = next(done for done in reversed(whole.rounds) if done.best)
    assert best.number > 0
    assert whole.mix == best.mix
    real, calls = search_stage.measured, []  # type: ignore[attr-defined]

    def dying(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(search_stage, "measured", dying)
    with pytest.raises(KeyboardInterrupt):
        search("cut")
    assert (tmp_path / "cut-progress" / "round-001" / WRITTEN_FOLDER / ARTIFACT_FOLDER / GRAPH_FILE).is_file()
    assert search("cut") == whole
    assert len(calls) == 3  # the first round is not measured again
    for name in ("whole", "cut"):
        OnnxModel(tmp_path / name / WRITTEN_FOLDER / ARTIFACT_FOLDER, SESSION)
        assert load_precisions(tmp_path / name).having(W8) == {OUTLIERS}


def one_at_a_time(points: Any, current: int, strained: float) -> int | None:
    return current + 1 if current + 1 < len(points) else None

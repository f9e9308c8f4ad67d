"""`quantflow scan`: a recipe's scores without its artifacts."""

import json
from pathlib import Path
from typing import Any

import pytest

from quantflow.commands.scan import show
from quantflow.errors import RecipeError
from quantflow.pipeline.scanning import scan_recipe
from quantflow.recipe.load import load_recipe
from quantflow.sensitivity.record import ScanRecord
from tests.tiny_run import write_recipe


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> tuple[Path, ScanRecord]:
    folder = tmp_path_factory.mktemp("scan-run")
    recipe = load_recipe(write_recipe(folder, tiny_llama))
    (record,) = scan_recipe(recipe, folder=folder).records
    return folder, record


def test_a_recipe_is_scanned_in_the_schemes_of_its_artifacts_and_none_is_written(
    scanned: tuple[Path, ScanRecord],
) -> None:
    folder, record = scanned
    assert record.precisions == ("awq-w4-g32-asym",)
    assert len(record.scores) == 12
    assert record.selection_tokens > 0
    assert not (folder / "artifacts").exists()
    kinds = {path.name for path in (folder / ".quantflow" / "store").iterdir()}
    assert {"scan", "settle"} <= kinds
    assert record.method == "auto"
    assert "baseline" not in kinds


def test_a_second_scan_is_answered_from_the_store(
    scanned: tuple[Path, ScanRecord], tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record = scanned

    def forbidden(*args: Any) -> None:
        raise AssertionError("it was computed again")

    monkeypatch.setattr("quantflow.sensitivity.scan.run", forbidden)
    monkeypatch.setattr("quantflow.sensitivity.settle_stage.run", forbidden)
    assert scan_recipe(load_recipe(folder / "tiny.yaml"), folder=folder).records == (record,)


def test_a_recipe_that_quantizes_nothing_is_refused(tmp_path: Path, tiny_llama: Path) -> None:
    recipe = load_recipe(
        write_recipe(tmp_path, tiny_llama), ("artifacts=[{name: same, format: hf, dtype: bfloat16}]",)
    )
    with pytest.raises(RecipeError, match="nothing to scan"):
        scan_recipe(recipe, folder=tmp_path)


def test_units_are_shown_the_dearest_first_with_what_sparing_them_takes(
    scanned: tuple[Path, ScanRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    _, record = scanned
    show(record, 3)
    shown = capsys.readouterr().out
    ranked = sorted(record.scores, key=lambda score: -score.kl)
    places = [shown.index(score.unit) for score in ranked[:3]]
    assert places == sorted(places)
    assert ranked[3].unit not in shown
    assert "and 9 more" in shown
    assert f"{record.forwards:.1f} forwards over {record.tokens} calibration tokens" in shown
    assert "two halves of the text" in shown
    show(record, None)
    everything = capsys.readouterr().out
    assert all(score.unit in everything for score in ranked)


def test_the_record_is_json_that_reads_back(scanned: tuple[Path, ScanRecord]) -> None:
    _, record = scanned
    assert ScanRecord.model_validate(json.loads(record.model_dump_json())) == record


def test_a_single_calibration_window_is_refused_before_anything_is_computed(
    tmp_path: Path, tiny_llama: Path
) -> None:
    recipe = load_recipe(write_recipe(tmp_path, tiny_llama), ("data.calibration.windows=1",))
    with pytest.raises(RecipeError, match="fewer than two calibration windows"):
        scan_recipe(recipe, folder=tmp_path)
    assert not list((tmp_path / ".quantflow" / "store").glob("*/*/manifest.json"))


def test_a_recipe_that_asks_for_a_scan_gets_the_one_of_its_run(
    scanned: tuple[Path, ScanRecord], tmp_path: Path, tiny_llama: Path
) -> None:
    folder, record = scanned
    own = load_recipe(folder / "tiny.yaml", ("sensitivity.method=fisher", "sensitivity.tokens=128"))
    (other,) = scan_recipe(own, folder=folder).records
    assert other.method == "fisher"
    assert other.tokens == 128 < record.tokens


def test_no_assignment_option_makes_a_scan_run_again(
    scanned: tuple[Path, ScanRecord], tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimates are of the codes; what is chosen by them is settled in a stage of its own."""
    folder, record = scanned

    def forbidden(*args: Any) -> None:
        raise AssertionError("it was scanned again")

    monkeypatch.setattr("quantflow.sensitivity.scan.run", forbidden)
    for overrides in (
        ("sensitivity.max_spared=0.2",),
        ("sensitivity.policy=top_k", "sensitivity.top_k=2"),
        ("sensitivity.policy=threshold", "sensitivity.threshold=0.001"),
        ("sensitivity.max_bytes=200000",),
        ("sensitivity.until=gate", "sensitivity.max_spared=0.3"),
        ("sensitivity.method=fisher",),
    ):
        own = load_recipe(folder / "tiny.yaml", overrides)
        (other,) = scan_recipe(own, folder=folder).records
        assert other.tokens == record.tokens

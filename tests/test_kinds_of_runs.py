"""Whole runs of other kinds than the usual one: a lossless export, a model that knows nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import quantflow
from quantflow.errors import SourceError
from quantflow.gate.verdict import Verdict
from quantflow.plan.make import make_plan
from tests.tiny_models import random_model, tiny_config
from tests.tiny_run import write_recipe

AWQ = "{name: int4, format: awq, bits: 4, group_size: 32}"
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the tiny recipe after a change of its text."""

    def run(model: Path, before: str = "", after: str = "", *overrides: str, **margins: float) -> Any:
        path = write_recipe(tmp_path, model, **margins)  # type: ignore[arg-type]
        path.write_text(path.read_text().replace(before, after))
        return quantflow.run(quantflow.load_recipe(path, overrides), folder=tmp_path)

    return run


def test_a_lossless_export_is_made_measured_and_gated_beside_a_quantized_artifact(
    run: Run, tiny_llama: Path, tmp_path: Path
) -> None:
    result = run(tiny_llama, "gate:", "  - {name: fp16, format: hf, dtype: float16}\ngate:")
    assert result.exit_code == 0
    awq, export = result.report.artifacts
    assert (export.name, export.format, export.verdict) == ("fp16", "hf", Verdict.PASS)
    assert (export.scheme.bits, export.scheme.dtype, export.scheme.method) == (16, "float16", None)
    margins = {c.name: c.margin for c in result.report.criteria if c.artifact == "fp16"}
    assert margins == {"perplexity": 0.001, "kl": 0.0005, "identity": 0.0}
    assert export.measurements.kl.mean < 1e-6 < awq.measurements.kl.mean
    folder = tmp_path / "artifacts" / "tiny" / "fp16"
    assert (
        load_file(folder / "model.safetensors").keys() == load_file(tiny_llama / "model.safetensors").keys()
    )
    assert "float16, not quantized" in (result.report_folder / "report.html").read_text()


def test_a_recipe_may_ask_for_a_lossless_export_alone(run: Run, tiny_llama: Path) -> None:
    result = run(tiny_llama, AWQ, "{name: bf16, format: hf, dtype: bfloat16}")
    assert result.exit_code == 0
    names = [stage["name"] for stage in result.report.provenance["stages"]]
    assert names[-3:] == ["assemble:bf16", "measure:bf16", "gate:bf16"]
    assert not [name for name in names if name.startswith("quantize")]


def test_artifacts_of_two_methods_share_one_calibration_and_are_shown_beside_rounding_to_nearest(
    run: Run, tiny_llama: Path, tmp_path: Path
) -> None:
    gptq = "  - {name: gptq, format: gptq, bits: 4, group_size: 32}"
    result = run(tiny_llama, "gate:", f"{gptq}\ngate:")
    assert result.exit_code == 0
    names = [stage["name"] for stage in result.report.provenance["stages"]]
    assert [name for name in names if "quantize" in name] == ["quantize"]
    assert "refine:gptq" in names
    assert "refine:int4" not in names
    took = result.report.provenance["quantizing"]
    assert 0.5 < took["forwards"] < 1
    assert took["calibration_tokens"] == 8 * 64
    assert 0 < took["bytes_read"] < took["weight_bytes"] + 4 * 512 * 64 * 2
    awq, own = result.report.artifacts
    assert awq.refinement is None
    assert own.refinement.kl_plain > 0
    assert own.refinement.kl_refined > 0
    for artifact in (awq, own):
        assert artifact.yardstick.kl.mean > artifact.measurements.kl.mean
    page = (result.report_folder / "report.html").read_text()
    for name in ("int4", own.name):
        assert f"{name}, rounded to nearest" in page
    assert page.count("Sequential pass") == 1
    assert "bytes_read" in page.replace(" ", "_")
    taken = own.refinement.taken
    assert f"{'taken' if taken == 'refined' else 'not taken'}: KL" in page
    config = (tmp_path / "artifacts" / "tiny" / "gptq" / "config.json").read_text()
    assert '"quant_method": "gptq"' in config


def test_planning_counts_what_a_gptq_run_does(run: Run, tiny_llama: Path, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, tiny_llama)
    path.write_text(path.read_text().replace(AWQ, "{name: gptq, format: gptq, bits: 4, group_size: 32}"))
    planned = {stage.name: stage for stage in make_plan(quantflow.load_recipe(path), folder=tmp_path).stages}
    for name in ("quantize", "refine:gptq", "yardstick:gptq"):
        assert planned[name].unknown == ""
        assert planned[name].memory is not None
        assert planned[name].disk


def test_a_model_that_guesses_is_refused_before_it_is_quantized_and_never_passes(
    run: Run, tiny_llama: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    random_model(model, tiny_config(tie_word_embeddings=True))
    wide = {"max_increase": 1e6, "max_mean": 1e6}
    result = run(model, **wide)
    (error,) = result.errors
    assert isinstance(error, SourceError)
    assert "no better than chance" in error.message
    assert result.exit_code == 2
    allowed = run(model, "", "", "model.allow_suspect=true", **wide)
    assert allowed.exit_code == 3
    assert "predicts the evaluation text no better than chance" in allowed.report.reason
    assert "baseline-near-random" in [event.code for event in allowed.report.events]
    assert "cannot read this text" in (allowed.report_folder / "report.html").read_text()

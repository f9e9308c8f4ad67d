"""A whole run with ONNX artifacts: stages, verdicts, report, what is taken from the store."""

import json
from pathlib import Path
from typing import Any

import pytest

import quantflow
from tests.tiny_run import write_recipe

INT4 = "  - {name: int4, format: awq, bits: 4, group_size: 32}"
ARTIFACTS = f"""{INT4}
  - {{name: w8, format: onnx, scheme: w8, keep: [lm_head]}}
  - {{name: w4, format: onnx, scheme: w4-block, codes_from: int4}}"""
OVERRIDES = ("runtime.onnx.threads=1", "runtime.device=cpu")


def run(folder: Path) -> dict[str, Any]:
    result = quantflow.run(quantflow.load_recipe(folder / "tiny.yaml", OVERRIDES), folder=folder)
    assert result.errors == ()
    report: dict[str, Any] = json.loads((result.report_folder / "report.json").read_text())
    return report


@pytest.mark.slow
def test_onnx_artifacts_are_made_measured_judged_and_published(tmp_path: Path, tiny_llama: Path) -> None:
    path = write_recipe(tmp_path, tiny_llama, letters=60)
    path.write_text(path.read_text().replace(INT4, ARTIFACTS))
    first = run(tmp_path)
    artifacts = {artifact["name"]: artifact for artifact in first["artifacts"]}
    assert artifacts["w8"]["measurements"]["runtime"]["name"] == "onnxruntime"
    assert artifacts["w8"]["census"]["units"]["lm_head"]["found"] == "float"
    assert artifacts["w4"]["census"]["units"]["model.layers.0.down"]["found"] == "weights-int4"
    assert artifacts["w8"]["measurements"]["kl"]["mean"] < artifacts["w4"]["measurements"]["kl"]["mean"]
    # One quantization, two runtimes: what torch says of the codes, ONNX Runtime says of them, too.
    assert artifacts["w4"]["measurements"]["kl"]["mean"] == pytest.approx(
        artifacts["int4"]["measurements"]["kl"]["mean"], rel=0.2, abs=2e-3
    )
    criteria = {(c["artifact"], c["name"]): c["verdict"] for c in first["criteria"]}
    assert criteria["w8", "census"] == "pass"
    assert criteria["w4", "census"] == "pass"
    assert (tmp_path / "artifacts" / "tiny" / "w8" / "genai_config.json").is_file()
    again = {stage["name"]: stage["reused"] for stage in run(tmp_path)["provenance"]["stages"]}
    assert {name for name, reused in again.items() if not reused} == {
        "speed:w8",
        "gate:w8",
        "speed:w4",
        "gate:w4",
    }

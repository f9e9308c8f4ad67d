"""Plants defects in a real model and lets the gate judge; `make test-planted`.

The gate and the sizes below were fixed before the first run.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import quantflow
from quantflow.data.documents import load_documents
from quantflow.data.windows import scored_documents
from quantflow.gate.pairing import pairing_problem
from quantflow.gate.stage import Asked, independent_groups, judge
from quantflow.gate.verdict import Verdict
from quantflow.measure.artifact import run as measure
from quantflow.measure.batches import scored_targets
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.measurement import load_samples
from quantflow.measure.params import MeasureParams
from quantflow.pipeline.digest import DigestCache
from quantflow.pipeline.gate_params import gate_params
from quantflow.pipeline.graph import build_graph
from quantflow.pipeline.machine import find_machine
from quantflow.pipeline.runner import stage_keys
from quantflow.pipeline.store import WORKSPACE, Store
from quantflow.report.model import ArtifactReport, Report
from tests.planted.defects import DEFECTS, HARMLESS, plant
from tests.reporting import RecordingReporter

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("QUANTFLOW_SHARED", ROOT.parent / "shared"))
MODEL = Path(os.environ.get("QUANTFLOW_PLANTED_MODEL", SHARED / "models" / "aidreams260k"))
RECIPE = {
    "version": 1,
    "name": "planted",
    "model": {"source": str(MODEL), "allow_suspect": True},
    "data": {
        "files": [str(ROOT / "calib_data" / name) for name in ("articles.jsonl", "mail/*.jsonl")],
        "calibration": {"windows": 8, "length": 64},
        "evaluation": {"length": 64},
        "split": {"calibration": 0.2, "selection": 0.2, "evaluation": 0.6},
    },
    "gate": {
        "perplexity": {"max_increase": 0.002},
        "kl": {"max_mean": 0.0001},
        "generation": {"prompts": 60, "prompt_tokens": 24, "output_tokens": 16, "min_identical": 0.9},
    },
    "runtime": {"device": "cpu", "batch_tokens": 2048},
}
OTHER_BATCH_TOKENS = 300


def main() -> int:
    """Print what became of each change, and in the last line how many were judged rightly."""
    if not (MODEL / "config.json").is_file():
        print(f"skipped: no model in {MODEL} (QUANTFLOW_PLANTED_MODEL names another)")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="planted-"))
    try:
        planted = plant(MODEL, folder / "changed")
        artifacts = [{"name": name, "import": str(path)} for name, path in planted.items()]
        path = folder / "planted.yaml"
        path.write_text(json.dumps({**RECIPE, "artifacts": artifacts}), encoding="utf-8")
        recipe = quantflow.load_recipe(path)
        result = quantflow.run(recipe, folder=folder)
        errors = {error.where: str(error) for error in result.errors}
        judged = {artifact.name: artifact for artifact in result.report.artifacts}
        caught = [_is_caught(judged[name], result.report, errors) for name in DEFECTS]
        passed = [_has_passed(judged[name], result.report) for name in HARMLESS]
        passed.append(_other_batches(recipe, folder))
    finally:
        shutil.rmtree(folder)
    print(
        f"{sum(caught)} of {len(caught)} planted defects caught by the criterion meant for them; "
        f"{sum(passed)} of {len(passed)} harmless changes pass."
    )
    return 0 if all(caught) and all(passed) else 1


def _is_caught(artifact: ArtifactReport, report: Report, errors: dict[str, str]) -> bool:
    meant = DEFECTS[artifact.name].caught_by
    own = [c for c in report.criteria if c.artifact == artifact.name]
    failed = [c.name for c in own if c.verdict is Verdict.FAIL]
    if meant in ("assemble", "measure"):
        # Refused before anything could be judged: nothing was, and the reason names the stage.
        right = artifact.verdict is Verdict.ERROR and not own and f"{meant}:{artifact.name}" in report.reason
        how = f"refused in {meant}"
    else:
        # Whatever is wrong with it, it is not the model: L1 must not be reached.
        right = meant in failed and _level(artifact) != "L1"
        how = f"fails {', '.join(dict.fromkeys(failed)) or 'nothing'}"
    print(f"{'ok ' if right else 'NOT'} {artifact.name}: {how}; meant: {meant}")
    return right


def _has_passed(artifact: ArtifactReport, report: Report) -> bool:
    reasons = [
        c.reason for c in report.criteria if c.artifact == artifact.name and c.verdict is not Verdict.PASS
    ]
    right = artifact.verdict is Verdict.PASS and _level(artifact) == "L1"
    told = " ".join([f"{artifact.verdict}, {_level(artifact)}", *reasons])
    print(f"{'ok ' if right else 'NOT'} {artifact.name}: {told}")
    return right


def _level(artifact: ArtifactReport) -> str | None:
    """The level of lossless that it reaches."""
    return None if artifact.lossless is None else artifact.lossless.level


def _other_batches(recipe: quantflow.Recipe, folder: Path) -> bool:
    """Whether an exact copy, run in batches of another size than its baseline, passes."""
    machine = find_machine("cpu")
    stages = build_graph(recipe, machine, DigestCache(folder / "digests.json"))
    keys, store = stage_keys(stages, machine), Store(folder / WORKSPACE / "store")
    inputs = {}
    for role, name in {
        "source": "source",
        "data": "data",
        "baseline": "baseline",
        "assemble": "assemble:copy",
    }.items():
        stored = store.find(name.partition(":")[0], keys[name].key)
        assert stored is not None
        inputs[role] = stored.folder
    output = folder / "other-batches"
    output.mkdir()
    measure(MeasureParams(device="cpu", batch_tokens=OTHER_BATCH_TOKENS), inputs, output, RecordingReporter())
    windows, documents = load_evaluation(inputs["data"]), load_documents(inputs["data"])
    baseline, measured = load_samples(inputs["baseline"]), load_samples(output)
    asked = Asked(
        document=scored_documents(windows),
        target=scored_targets(windows),
        clusters=independent_groups(documents),
        slices=[document.slice for document in documents],
        vocab_size=512,
    )
    assert pairing_problem(asked.document, asked.target, [baseline, measured]) is None
    copy = next(artifact for artifact in recipe.artifacts if artifact.name == "copy")
    verdict = judge(gate_params(recipe, copy), asked, baseline, measured).verdict
    print(f"{'ok ' if verdict is Verdict.PASS else 'NOT'} another-batch-size: {verdict}")
    return verdict is Verdict.PASS


if __name__ == "__main__":
    sys.exit(main())

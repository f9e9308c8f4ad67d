"""Turns the stages' outcomes into the run's report."""

import platform
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import JsonValue

from quantflow.data.documents import load_accounting, load_documents
from quantflow.drift.record import load_drift
from quantflow.errors import QuantFlowError
from quantflow.formats.assembly import Assembly, load_assembly
from quantflow.formats.onnx.census_record import Census, has_census, load_census
from quantflow.gate.criteria import GateResult
from quantflow.gate.divergence import Divergence, load_divergence
from quantflow.gate.recovery import task_recovery
from quantflow.gate.stage import independent_groups, load_gate
from quantflow.gate.tasks import pairing_problem
from quantflow.gate.verdict import Verdict, combine, exit_code
from quantflow.leakage.record import load_leakage
from quantflow.measure.generated import compare_generation
from quantflow.measure.generation_record import load_generation
from quantflow.measure.measurement import Measurement, load_measurement
from quantflow.measure.serving import load_serving
from quantflow.pipeline.asked import LEAKAGE
from quantflow.pipeline.code import code_identity
from quantflow.pipeline.devices import decide
from quantflow.pipeline.drift import DRIFT
from quantflow.pipeline.events import Event
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.runner import StageOutcome
from quantflow.pipeline.scan_stage import scores_stage
from quantflow.pipeline.store import StoredObject
from quantflow.pipeline.vouching import digest_of, not_vouched
from quantflow.quantize.outcome import load_quantize_record, load_refine_record
from quantflow.recipe.artifacts import Artifact, HfArtifact, ImportArtifact, is_quantized_here
from quantflow.recipe.onnx import BY_BLOCK, LOSSLESS, OnnxArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.scheme import scheme_of
from quantflow.recipe.spared import assigning
from quantflow.remedies.record import load_remedy_record
from quantflow.report.contexts import DivergentContext, divergent_contexts
from quantflow.report.drift_lines import drift_lines
from quantflow.report.model import (
    ArtifactReport,
    BaselineReport,
    DataReport,
    DriftReport,
    Report,
    Scheme,
)
from quantflow.report.redaction import redact
from quantflow.report.wording import load_wording
from quantflow.sensitivity.assignment import AssignmentRecord, load_assignment
from quantflow.sensitivity.record import ScanRecord, load_scan
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.record import load_tasks
from quantflow.tasks.value import task_value

Outcomes = Mapping[str, StageOutcome]


def build_report(
    recipe: Recipe,
    outcomes: Sequence[StageOutcome],
    noticed: Sequence[Event],
    run_id: str,
    provenance: Mapping[str, JsonValue],
) -> Report:
    """The report of a run, whatever became of its stages.

    Args:
        recipe: What was asked for.
        outcomes: What became of every stage.
        noticed: Events of the run as a whole.
        run_id: Name of the run.
        provenance: What it takes to do the same again.
    """
    by_name = {outcome.stage.name: outcome for outcome in outcomes}
    gates = {artifact.name: _gate(artifact.name, by_name) for artifact in recipe.artifacts}
    artifacts = tuple(
        _artifact(recipe, artifact, by_name, gates[artifact.name]) for artifact in recipe.artifacts
    )
    # A stage that nothing is judged by, such as a yardstick, is a part of what was asked for all the same.
    failed = (Verdict.ERROR for outcome in outcomes if outcome.error is not None)
    verdict = combine((*(artifact.verdict for artifact in artifacts), *failed))
    report = Report(
        run_id=run_id,
        recipe=recipe.name,
        title=recipe.report.title or recipe.name,
        language=recipe.report.language,
        published_text=recipe.report.text or "none",
        verdict=verdict,
        exit_code=exit_code(verdict),
        reason=_reason(outcomes, gates),
        criteria=tuple(criterion for gate in gates.values() if gate for criterion in gate.criteria),
        artifacts=artifacts,
        baseline=_baseline(by_name),
        data=_data(by_name),
        events=(
            *(event for outcome in outcomes for event in outcome.events),
            *noticed,
            *not_vouched(artifacts, by_name),
        ),
        provenance=provenance,
    )
    return redact(report, recipe.report.text or "full")


def provenance(
    recipe: Recipe,
    overrides: Sequence[str],
    outcomes: Sequence[StageOutcome],
    machine: Machine,
    times: Mapping[str, JsonValue],
) -> dict[str, JsonValue]:
    """Versions, hashes, machine and times of a run.

    The recipe is kept as written, with `${NAME}` in place: what the environment put there may be secret.

    Args:
        recipe: What was asked for.
        overrides: `--set` of the command line.
        outcomes: What became of every stage.
        machine: Where it ran.
        times: Start, end and duration.
    """
    libraries: dict[str, str] = {}
    for outcome in outcomes:
        libraries |= code_identity(outcome.stage.function.partition(":")[0]).libraries
    return {
        "quantflow": version("quantflow"),
        "python": platform.python_version(),
        "libraries": dict(sorted(libraries.items())),
        "machine": machine.model_dump(mode="json"),
        "computing": decide(recipe.runtime.calibration_dtype, machine).model_dump(mode="json"),
        "command": _command(recipe, overrides),
        "recipe_text": recipe.path.read_text(encoding="utf-8-sig"),
        "recipe_resolved": recipe.resolved(),
        "overrides": list(overrides),
        "stages": [
            {
                "name": outcome.stage.name,
                "key": outcome.key,
                "reused": outcome.reused,
                "seconds": outcome.stored.manifest.seconds if outcome.stored else None,
            }
            for outcome in outcomes
        ],
        **_quantizing(outcomes),
        **times,
    }


def _command(recipe: Recipe, overrides: Sequence[str]) -> str:
    """What was asked for, as it is typed in the folder that the recipe is in or above."""
    path = recipe.path
    near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    given = [part for override in overrides for part in ("--set", override)]
    return shlex.join(["quantflow", "run", str(near), *given])


def _quantizing(outcomes: Sequence[StageOutcome]) -> dict[str, JsonValue]:
    """What the calibration that all quantized artifacts share took."""
    stored = next((o.stored for o in outcomes if o.stage.name == "quantize"), None)
    if stored is None:
        return {}
    return {"quantizing": load_quantize_record(stored.folder).model_dump(mode="json", exclude={"searches"})}


def _gate(artifact: str, outcomes: Outcomes) -> GateResult | None:
    stored = outcomes[f"gate:{artifact}"].stored
    return load_gate(stored.folder) if stored else None


def _artifact(
    recipe: Recipe, artifact: Artifact, outcomes: Outcomes, gate: GateResult | None
) -> ArtifactReport:
    assembled = outcomes[f"assemble:{artifact.name}"].stored
    yardstick, refined, remedied = (
        _stored(f"{kind}:{artifact.name}", outcomes) for kind in ("yardstick", "refine", "remedy")
    )
    assembly = load_assembly(assembled.folder) if assembled else None
    judged = _stored(f"gate:{artifact.name}", outcomes)
    divergence = load_divergence(judged.folder) if judged else None
    return ArtifactReport(
        name=artifact.name,
        path=artifact_path(recipe, artifact),
        format=assembly.format if assembly else artifact.format,
        scheme=_scheme(artifact, assembly),
        kept_units=assembly.kept_units if assembly else (),
        bytes=assembly.bytes if assembly else None,
        digest=digest_of(assembly) if assembly else None,
        verdict=gate.verdict if gate else Verdict.ERROR,
        measurements=_measurements(artifact.name, outcomes),
        yardstick=load_measurement(yardstick.folder) if yardstick else None,
        refinement=load_refine_record(refined.folder) if refined else None,
        divergence=divergence.without_text() if divergence else None,
        contexts=_contexts(divergence, outcomes),
        remedies=load_remedy_record(remedied.folder) if remedied else None,
        census=_census(artifact.name, outcomes),
        sensitivity=_sensitivity(recipe, artifact, outcomes),
        assignment=_assignment(artifact.name, outcomes),
        lossless=gate.lossless if gate else None,
        saving=gate.saving if gate else None,
    )


def _sensitivity(recipe: Recipe, artifact: Artifact, outcomes: Outcomes) -> ScanRecord | None:
    """The scan's scores in the precisions that an artifact may give its units."""
    if isinstance(artifact, OnnxArtifact):
        own = _stored(scores_stage(recipe, artifact.name), outcomes)
        return load_scan(own.folder) if own else None
    scanned = _stored(scores_stage(recipe), outcomes)
    if scanned is None or not is_quantized_here(artifact) or assigning(recipe, artifact) is None:
        return None
    record, scheme = load_scan(scanned.folder), scheme_of(artifact).id
    return record.model_copy(update={"precisions": (scheme,), "scores": record.of(scheme)})


def _assignment(artifact: str, outcomes: Outcomes) -> AssignmentRecord | None:
    """The search's, else that of the policy."""
    stored = _stored(f"search:{artifact}", outcomes) or _stored(f"assign:{artifact}", outcomes)
    return load_assignment(stored.folder) if stored else None


def _measurements(artifact: str, outcomes: Outcomes) -> Measurement | None:
    """What the recipe's runtime measured, with what other stages add: KL in torch, speed and memory."""
    stored = {kind: _stored(f"{kind}:{artifact}", outcomes) for kind in ("measure", "measure-kl", "speed")}
    if stored["measure"] is None:
        return None
    measurement = load_measurement(stored["measure"].folder)
    added: dict[str, object] = {}
    if exact := stored["measure-kl"]:
        other = load_measurement(exact.folder)
        slices = {
            name: part.model_copy(update={"kl_mean": other.slices[name].kl_mean})
            for name, part in measurement.slices.items()
        }
        added |= {"kl": other.kl, "kl_runtime": other.runtime, "slices": slices}
    if timed := stored["speed"]:
        serving = load_serving(timed.folder)
        added |= {"speed": serving.speed, "memory": serving.memory}
    return measurement.model_copy(update={**added, **_asked(artifact, outcomes)})


def _asked(artifact: str, outcomes: Outcomes) -> dict[str, object]:
    """What was asked for besides: tasks and generated text, beside the baseline's."""
    added: dict[str, object] = {}
    tasks, base_tasks = _beside_baseline(f"tasks:{artifact}", "baseline", outcomes)
    if tasks is not None and base_tasks is not None:
        before, after = load_tasks(base_tasks.folder), load_tasks(tasks.folder)
        paired = {name: r for name, r in after.items() if pairing_problem(before[name], r) is None}
        added["tasks"] = {name: task_value(before[name], record) for name, record in paired.items()}
        added["recovery"] = task_recovery(before, paired)
    said, base_said = _beside_baseline(f"generation:{artifact}", "generation", outcomes)
    if said is not None and base_said is not None:
        data = outcomes["data"].stored
        assert data is not None  # prompts are of its documents
        added["generation"] = compare_generation(
            load_generation(base_said.folder),
            load_generation(said.folder),
            independent_groups(load_documents(data.folder)).tolist(),
        )
    return added


def _beside_baseline(
    stage: str, role: str, outcomes: Outcomes
) -> tuple[StoredObject | None, StoredObject | None]:
    """What a stage made of an artifact, and what it took of the baseline's, in the same runtime."""
    if stage not in outcomes:
        return None, None
    return _stored(stage, outcomes), _stored(outcomes[stage].stage.inputs[role], outcomes)


def _contexts(divergence: Divergence | None, outcomes: Outcomes) -> tuple[DivergentContext, ...]:
    source = outcomes["source"].stored
    if divergence is None or source is None:
        return ()
    return divergent_contexts(divergence.worst, load_checkpoint(source.folder).folder)


def _census(artifact: str, outcomes: Outcomes) -> Census | None:
    """What really runs of an artifact that was measured in ONNX Runtime."""
    measured = _stored(f"measure:{artifact}", outcomes)
    return load_census(measured.folder) if measured and has_census(measured.folder) else None


def _stored(stage: str, outcomes: Outcomes) -> StoredObject | None:
    """The output of a stage that not every artifact has."""
    return outcomes[stage].stored if stage in outcomes else None


def _scheme(artifact: Artifact, assembly: Assembly | None) -> Scheme:
    if isinstance(artifact, ImportArtifact):
        found = assembly.imported if assembly is not None else None
        if found is None:
            return Scheme(bits=artifact.bits)
        return Scheme(method=found.method, bits=found.bits, group_size=found.group_size, dtype=found.dtype)
    if isinstance(artifact, HfArtifact):
        return Scheme(bits=artifact.bits, dtype=artifact.dtype)
    if isinstance(artifact, OnnxArtifact):
        if artifact.scheme in LOSSLESS:
            return Scheme(bits=artifact.bits, dtype=artifact.scheme)
        by_block = artifact.scheme in BY_BLOCK
        return Scheme(
            method=artifact.scheme, bits=artifact.bits, group_size=artifact.block_size if by_block else -1
        )
    scheme = scheme_of(artifact)
    return Scheme(
        method=scheme.method,
        bits=scheme.bits,
        group_size=scheme.group_size,
        symmetric=scheme.symmetric,
        desc_act=scheme.desc_act,
    )


def artifact_path(recipe: Recipe, artifact: Artifact) -> str:
    """The folder people open, relative to the working directory; of what was imported, where it lies."""
    if isinstance(artifact, ImportArtifact):
        return artifact.path
    return f"artifacts/{recipe.name}/{artifact.name}"


def _baseline(outcomes: Outcomes) -> BaselineReport | None:
    source, measured = outcomes["source"].stored, outcomes["baseline"].stored
    if source is None:
        return None
    checkpoint = load_checkpoint(source.folder)
    return BaselineReport(
        source=checkpoint.uri,
        kind=checkpoint.kind,
        identity=checkpoint.identity,
        model_type=checkpoint.model_type,
        dtype=checkpoint.dtype,
        parameters=checkpoint.parameters,
        bytes=checkpoint.bytes,
        measurements=load_measurement(measured.folder) if measured else None,
    )


def _data(outcomes: Outcomes) -> DataReport | None:
    stored = outcomes["data"].stored
    if stored is None:
        return None
    report, drift = DataReport.of(load_accounting(stored.folder)), _stored(DRIFT, outcomes)
    leaked = _stored(LEAKAGE, outcomes)
    if leaked is not None and report.leakage is not None:
        tasks = load_leakage(leaked.folder)
        report = report.model_copy(update={"leakage": report.leakage.model_copy(update={"tasks": tasks})})
    if drift is None:
        return report
    record = load_drift(drift.folder)
    said = DriftReport(**record.model_dump(), sentences=tuple(drift_lines(record, load_wording("en"))))
    return report.model_copy(update={"drift": said})


def _reason(outcomes: Sequence[StageOutcome], gates: Mapping[str, GateResult | None]) -> str:
    errors = [f"{o.stage.name}: {one_line(o.error)}" for o in outcomes if o.error is not None]
    judged = [
        f"{name}: {gate.reason}" if len(gates) > 1 else gate.reason for name, gate in gates.items() if gate
    ]
    return " ".join([*errors, *judged])


def one_line(error: QuantFlowError) -> str:
    """An error as a sentence within a paragraph."""
    parts = [part.strip() for part in str(error).splitlines()]
    return " ".join(part if part.endswith((".", ":")) else f"{part}." for part in parts)

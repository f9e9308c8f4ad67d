"""What a recipe asks of an artifact beside its loss on text, judged from what stages have stored."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from quantflow.drift.record import load_drift
from quantflow.formats.assembly import artifact_folder
from quantflow.gate.asked import Asked
from quantflow.gate.custom import custom_criterion
from quantflow.gate.drift import drift_criterion
from quantflow.gate.generation import generation_criterion
from quantflow.gate.identity import differences, identity_criterion
from quantflow.gate.result import CriterionResult
from quantflow.gate.tasks import task_criterion
from quantflow.measure.custom import load_custom
from quantflow.measure.generated import compare_generation
from quantflow.measure.generation_record import load_generation
from quantflow.source.checkpoint import load_checkpoint
from quantflow.tasks.record import load_tasks


def asked_criteria(
    artifact: str, asked: Asked, clusters: Sequence[int], inputs: Mapping[str, Path]
) -> tuple[CriterionResult, ...]:
    """Judge it all; what was asked for and is missing is an error.

    Args:
        artifact: Name of the artifact.
        asked: Margins.
        clusters: Document → what stands for it and its near duplicates, [documents].
        inputs: Finished outputs: `tasks-baseline` and `tasks`, `generation-baseline` and `generation`,
            `custom`, `source` and `assemble`, `drift`, as far as they are asked for.
    """
    results: list[CriterionResult] = []
    if asked.identity is not None:
        folders = load_checkpoint(inputs["source"]).folder, artifact_folder(inputs["assemble"])
        results.append(identity_criterion(artifact, differences(*folders), required=asked.identity))
    if asked.tasks:
        before, after = load_tasks(inputs["tasks-baseline"]), load_tasks(inputs["tasks"])
        results += [task_criterion(artifact, m, before.get(m.task), after.get(m.task)) for m in asked.tasks]
    if asked.generation is not None:
        value = compare_generation(
            load_generation(inputs["generation-baseline"]), load_generation(inputs["generation"]), clusters
        )
        judged = generation_criterion(artifact, asked.generation, value)
        results += [judged] if judged is not None else []
    if asked.custom:
        scores = load_custom(inputs["custom"])
        results += [custom_criterion(artifact, m, scores.get(m.name), clusters) for m in asked.custom]
    if asked.drift is not None:
        results.append(drift_criterion(artifact, asked.drift, load_drift(inputs["drift"])))
    return tuple(results)

"""The criteria against the artifact in service: what replaces it may be worse by a margin at most."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.gate.decide import error
from quantflow.gate.pairing import pairing_problem
from quantflow.gate.params import GateParams
from quantflow.gate.perplexity import PERPLEXITY, perplexity_criterion
from quantflow.gate.result import CriterionResult
from quantflow.gate.tasks import task_criterion
from quantflow.measure.measurement import Samples, load_samples
from quantflow.tasks.record import load_tasks

NAME = "against"


def against_criteria(
    params: GateParams,
    document: NDArray[np.int32],
    target: NDArray[np.integer],
    clusters: NDArray[np.int32],
    inputs: Mapping[str, Path],
) -> tuple[CriterionResult, ...]:
    """Judge an artifact against the one in service, by the margins that hold against the baseline.

    Args:
        params: Name and margins of the artifact.
        document: Document of every position that had to be scored, [positions].
        target: The token that came at each of them, [positions].
        clusters: Document → what stands for it and its near duplicates, [documents].
        inputs: Finished outputs: `measure` and `against`, `tasks` and `tasks-against`; none where nothing is
            in service.
    """
    if "against" not in inputs:
        return ()
    sampled = [load_samples(inputs[role]) for role in ("against", "measure")]
    results = [_perplexity(params, document, target, clusters, sampled)]
    if params.asked.tasks:
        before, after = load_tasks(inputs["tasks-against"]), load_tasks(inputs["tasks"])
        results += [
            task_criterion(params.artifact, m, before.get(m.task), after.get(m.task))
            for m in params.asked.tasks
        ]
    return tuple(
        result.model_copy(
            update={"name": NAME, "reason": f"Against the artifact in service: {result.reason}"}
        )
        for result in results
    )


def _perplexity(
    params: GateParams,
    document: NDArray[np.int32],
    target: NDArray[np.integer],
    clusters: NDArray[np.int32],
    sampled: list[Samples],
) -> CriterionResult:
    problem = pairing_problem(document, target, sampled)
    if problem is not None:
        return error(params.artifact, PERPLEXITY, params.max_increase, problem)
    service, measured = (replace(samples, document=clusters[samples.document]) for samples in sampled)
    judged = perplexity_criterion(params.artifact, service, measured, params.max_increase)
    return judged.model_copy(update={"required": params.perplexity_required})

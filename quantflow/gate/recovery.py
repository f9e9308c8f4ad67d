"""How much of the baseline's scores an artifact keeps over all tasks, in one figure with its interval."""

import math
from collections.abc import Mapping

import numpy as np

from quantflow.gate.proportions import TaskScores, pooled_recovery
from quantflow.gate.scores import group_numbers
from quantflow.tasks.record import TaskRecord
from quantflow.tasks.value import RecoveryValue


def task_recovery(
    baseline: Mapping[str, TaskRecord], measured: Mapping[str, TaskRecord]
) -> RecoveryValue | None:
    """Pool the tasks of whose metric more is better; None where there is nothing to tell by.

    Args:
        baseline: The lossless model's scores.
        measured: The artifact's of the same items.
    """
    scores = {
        name: TaskScores(
            np.array([item.value for item in baseline[name].items]),
            np.array([item.value for item in own.items]),
            group_numbers([item.cluster for item in own.items]),
        )
        for name, own in measured.items()
        if own.higher_is_better
    }
    found = pooled_recovery(scores)
    if found is None:
        return None
    return RecoveryValue(
        value=found.value,
        ci_low=found.ci_low if math.isfinite(found.ci_low) else None,
        ci_high=found.ci_high if math.isfinite(found.ci_high) else None,
        tasks=found.tasks,
        n=found.n,
    )

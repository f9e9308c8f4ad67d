"""Artifacts of several runs side by side; differences with an interval where their samples match."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from quantflow.data.documents import load_documents
from quantflow.gate.stage import independent_groups
from quantflow.gate.statistics import RatioEstimate, ratio_estimate
from quantflow.measure.measurement import Samples, load_samples
from quantflow.pipeline.store import Store
from quantflow.report.model import ArtifactReport, Report


class ComparedArtifact(BaseModel):
    """One artifact of one run.

    Attributes:
        run_id: The run.
        recipe: Its recipe.
        artifact: The artifact's name.
        format: File format; the following are its size, verdict and measurements.
        changes: Criterion's metric (and slice) → its change, as the gate held it against the margin.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    recipe: str
    artifact: str
    format: str
    bytes: int | None
    verdict: str
    perplexity: float | None
    kl_mean: float | None
    top1_agreement: float | None
    changes: Mapping[str, float]


class PairedDifference(BaseModel):
    """How much one artifact differs from another at the same positions.

    Attributes:
        first: Index of the artifact that is subtracted.
        second: Index of the other.
        metric: `nll` or `kl`, nats per token.
        difference: second − first; positive where the second is worse.
        ci_low: Lower end of its 90 % interval, clustered by document.
        ci_high: Upper end.
        documents: Documents it comes from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: int
    second: int
    metric: str
    difference: float
    ci_low: float
    ci_high: float
    documents: int


class Comparison(BaseModel):
    """Artifacts side by side.

    Attributes:
        artifacts: In the order of the runs given.
        paired: Differences of those measured at the same positions.
        unpaired: Why others are not paired, in plain words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifacts: tuple[ComparedArtifact, ...]
    paired: tuple[PairedDifference, ...]
    unpaired: tuple[str, ...]


def compare(reports: Sequence[Report], workspace: Path) -> Comparison:
    """Put the artifacts of runs side by side.

    Args:
        reports: Two or more, or one with several artifacts.
        workspace: The workspace, in whose store their samples may still be.
    """
    entries = [(report, artifact) for report in reports for artifact in report.artifacts]
    store = Store(workspace / "store")
    samples = [_samples(report, artifact, store) for report, artifact in entries]
    paired: list[PairedDifference] = []
    unpaired: list[str] = []
    for first, second in combinations(range(len(entries)), 2):
        why, differences = _paired(first, second, samples)
        paired += differences
        if why:
            a, b = (f"{r.run_id} {artifact.name}" for r, artifact in (entries[first], entries[second]))
            unpaired.append(f"{a} and {b}: {why}")
    return Comparison(
        artifacts=tuple(_compared(*entry) for entry in entries),
        paired=tuple(paired),
        unpaired=tuple(unpaired),
    )


_Found = tuple[str, Path, Samples]
"""Key of the data's stage, its output, and an artifact's samples."""


def _samples(report: Report, artifact: ArtifactReport, store: Store) -> _Found | None:
    stages: Any = report.provenance.get("stages", ())
    keys = {stage["name"]: stage["key"] for stage in stages}
    folders = {}
    for role, name in (("data", "data"), ("measure", f"measure:{artifact.name}")):
        found = store.find(name.partition(":")[0], keys[name]) if keys.get(name) else None
        if found is None:
            return None
        folders[role] = found.folder
    return keys["data"], folders["data"], load_samples(folders["measure"])


def _paired(
    first: int, second: int, samples: Sequence[_Found | None]
) -> tuple[str, tuple[PairedDifference, ...]]:
    ours, theirs = samples[first], samples[second]
    if ours is None or theirs is None:
        return "the samples of one are not in the store any more", ()
    if ours[0] != theirs[0] or not np.array_equal(ours[2].document, theirs[2].document):
        return "they were measured on other documents", ()
    clusters = independent_groups(load_documents(ours[1]))[ours[2].document]
    values = {"nll": (ours[2].nll, theirs[2].nll), "kl": (ours[2].kl, theirs[2].kl)}
    return "", tuple(
        _difference(first, second, metric, ratio_estimate(clusters, b - a))
        for metric, (a, b) in values.items()
        if a is not None and b is not None and a.size
    )


def _difference(first: int, second: int, metric: str, estimate: RatioEstimate) -> PairedDifference:
    return PairedDifference(
        first=first,
        second=second,
        metric=metric,
        difference=estimate.value,
        ci_low=estimate.ci_low,
        ci_high=estimate.ci_high,
        documents=estimate.n_clusters,
    )


def _compared(report: Report, artifact: ArtifactReport) -> ComparedArtifact:
    measured = artifact.measurements
    kl = measured.kl if measured else None
    return ComparedArtifact(
        run_id=report.run_id,
        recipe=report.recipe,
        artifact=artifact.name,
        format=artifact.format,
        bytes=artifact.bytes,
        verdict=artifact.verdict.value,
        perplexity=measured.perplexity.value if measured else None,
        kl_mean=kl.mean if kl else None,
        top1_agreement=kl.top1_agreement if kl else None,
        changes={
            c.metric if c.slice == "all" else f"{c.metric}, {c.slice}": c.delta
            for c in report.criteria
            if c.artifact == artifact.name and c.delta is not None
        },
    )

"""The gate stage: an artifact's samples beside the baseline's, judged by every criterion."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import Document, load_documents
from quantflow.data.windows import EVALUATION_FILE, load_windows, scored_documents
from quantflow.formats.onnx.census_record import Census, has_census, load_census
from quantflow.gate.bound import kl_bound_criterion
from quantflow.gate.census import census_criterion
from quantflow.gate.criteria import (
    CriterionResult,
    GateResult,
    baseline_criterion,
    kl_criterion,
    perplexity_criterion,
    unjudged,
)
from quantflow.gate.params import GateParams
from quantflow.gate.serving import serving_criteria
from quantflow.gate.verdict import Verdict, combine
from quantflow.inspection.record import load_inspection
from quantflow.measure.measurement import Samples, load_samples
from quantflow.measure.serving import Serving, load_serving
from quantflow.pipeline.events import Reporter

GATE_FILE = "gate.json"


def run(params: GateParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Judge one artifact and write gate.json.

    Args:
        params: The artifact's name and margins.
        inputs: Finished outputs of `inspect`, `data`, `baseline` and `measure`; of `kl` where KL was measured
            in another runtime, and of `speed` where serving is judged.
        output: Folder to write to.
        reporter: Shows progress.
    """
    with reporter.track("judging criteria", 1) as advance:
        windows = load_windows(inputs["data"] / EVALUATION_FILE)
        documents = load_documents(inputs["data"])
        result = judge(
            params,
            expected=scored_documents(windows),
            baseline=load_samples(inputs["baseline"]),
            measured=load_samples(inputs["measure"]),
            clusters=independent_groups(documents),
            vocab_size=load_inspection(inputs["inspect"]).vocab_size,
            kl_measured=load_samples(inputs["kl"]) if "kl" in inputs else None,
            serving=load_serving(inputs["speed"]) if "speed" in inputs else None,
            census=load_census(inputs["measure"]) if has_census(inputs["measure"]) else None,
        )
        text = json.dumps(result.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
        (output / GATE_FILE).write_text(text + "\n", encoding="utf-8")
        advance(1)


def load_gate(stage_output: Path) -> GateResult:
    """Read what the gate stage wrote."""
    return GateResult.model_validate_json((stage_output / GATE_FILE).read_text(encoding="utf-8"))


def judge(
    params: GateParams,
    expected: NDArray[np.int32],
    baseline: Samples,
    measured: Samples,
    clusters: NDArray[np.int32],
    vocab_size: int,
    kl_measured: Samples | None = None,
    serving: Serving | None = None,
    census: Census | None = None,
) -> GateResult:
    """Judge an artifact's samples against the baseline's.

    Args:
        params: The artifact's name and margins.
        expected: Document of every position that had to be scored, [positions], in order.
        baseline: Samples of the lossless model.
        measured: Samples of the artifact.
        clusters: Document → what stands for it and its near duplicates, [documents]: copies of a form letter
            are one piece of evidence, however many there are.
        vocab_size: Tokens that the model can choose from.
        kl_measured: Samples of the artifact to take KL from, where `measured` has none.
        serving: Speed and memory, where they are judged.
        census: What really runs, of an artifact measured in ONNX Runtime.
    """
    sampled = [baseline, measured, *([kl_measured] if kl_measured is not None else [])]
    problem = _pairing_problem(expected, sampled)
    if problem is None:
        baseline, measured, *others = (replace(s, document=clusters[s.document]) for s in sampled)
        for_kl = others[0] if others else measured
    if problem is not None:
        criteria = unjudged(params.artifact, problem, params.max_increase, params.max_mean_kl)
    else:
        criteria = (
            perplexity_criterion(params.artifact, baseline, measured, params.max_increase),
            _kl(params, for_kl),
        )
        guessing = baseline_criterion(params.artifact, baseline, vocab_size)
        if guessing is not None:
            criteria = (guessing, *criteria)
    if serving is not None:
        criteria += serving_criteria(params.artifact, serving, params.speed, params.memory)
    if census is not None:
        criteria += (census_criterion(params.artifact, census, required=params.census_required),)
    verdict, reason = summarise(criteria)
    return GateResult(artifact=params.artifact, criteria=criteria, verdict=verdict, reason=reason)


def _kl(params: GateParams, measured: Samples) -> CriterionResult:
    only_bound = measured.kl is None and measured.kl_at_least is not None
    return (kl_bound_criterion if only_bound else kl_criterion)(params.artifact, measured, params.max_mean_kl)


def independent_groups(documents: Sequence[Document]) -> NDArray[np.int32]:
    """For each document the first of its near duplicates, itself where it has none, [documents]."""
    return np.array([i if d.near is None else d.near for i, d in enumerate(documents)], dtype=np.int32)


def summarise(criteria: tuple[CriterionResult, ...]) -> tuple[Verdict, str]:
    """The verdict of several criteria and the reason for it, in plain words."""
    required = [criterion for criterion in criteria if criterion.required]
    verdict = combine(criterion.verdict for criterion in required)
    if not required:
        return verdict, "No required criterion was judged."
    if verdict is Verdict.PASS:
        return verdict, f"All {len(required)} required criteria pass."
    deciding = dict.fromkeys(c.reason for c in required if c.verdict is verdict)
    return verdict, " ".join(deciding)


def _pairing_problem(expected: NDArray[np.int32], sampled: Sequence[Samples]) -> str | None:
    """Why the samples, the baseline's first, cannot be paired by position, or None where they can."""
    for number, samples in enumerate(sampled):
        whose = "artifact" if number else "baseline"
        lengths = {samples.document.size, samples.nll.size}
        lengths |= {kl.size for kl in (samples.kl, samples.kl_at_least) if kl is not None}
        if len(lengths) > 1:
            return f"The {whose}'s samples have several lengths: {', '.join(map(str, sorted(lengths)))}."
        if samples.document.size != expected.size:
            return (
                f"The {whose} was scored at {samples.document.size} positions where the evaluation data "
                f"has {expected.size}, so the pairs do not match."
            )
        differing = np.flatnonzero(samples.document != expected)
        if differing.size:
            return (
                f"The {whose} was scored on other documents than the evaluation data holds "
                f"(first at position {differing[0]}), so the pairs do not match."
            )
    return None

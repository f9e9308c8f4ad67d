"""The gate stage: an artifact's samples beside the baseline's, judged by every criterion."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import Document, load_documents
from quantflow.data.windows import EVALUATION_FILE, load_windows, scored_documents
from quantflow.gate.criteria import (
    CriterionResult,
    GateResult,
    baseline_criterion,
    kl_criterion,
    perplexity_criterion,
    unjudged,
)
from quantflow.gate.params import GateParams
from quantflow.gate.verdict import Verdict, combine
from quantflow.inspection.record import load_inspection
from quantflow.measure.measurement import Samples, load_samples
from quantflow.pipeline.events import Reporter

GATE_FILE = "gate.json"


def run(params: GateParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Judge one artifact and write gate.json.

    Args:
        params: The artifact's name and margins.
        inputs: Finished outputs of `inspect`, `data`, `baseline` and `measure`.
        output: Folder to write to.
        reporter: Shows progress.
    """
    with reporter.track("judging criteria", 1) as advance:
        windows = load_windows(inputs["data"] / EVALUATION_FILE)
        result = judge(
            params,
            expected=scored_documents(windows),
            baseline=load_samples(inputs["baseline"]),
            measured=load_samples(inputs["measure"]),
            vocab_size=load_inspection(inputs["inspect"]).vocab_size,
            groups=near_groups(load_documents(inputs["data"])),
        )
        text = json.dumps(result.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
        (output / GATE_FILE).write_text(text + "\n", encoding="utf-8")
        advance(1)


def load_gate(stage_output: Path) -> GateResult:
    """Read what the gate stage wrote."""
    return GateResult.model_validate_json((stage_output / GATE_FILE).read_text(encoding="utf-8"))


def near_groups(documents: Sequence[Document]) -> NDArray[np.int32]:
    """For each document the first of its near duplicates, itself where it has none, [documents]."""
    firsts = [i if document.near is None else document.near for i, document in enumerate(documents)]
    return np.array(firsts, dtype=np.int32)


def judge(
    params: GateParams,
    expected: NDArray[np.int32],
    baseline: Samples,
    measured: Samples,
    vocab_size: int,
    groups: NDArray[np.int32] | None = None,
) -> GateResult:
    """Judge an artifact's samples against the baseline's.

    Args:
        params: The artifact's name and margins.
        expected: Document of every position that had to be scored, [positions], in order.
        baseline: Samples of the lossless model.
        measured: Samples of the artifact.
        vocab_size: Tokens that the model can choose from.
        groups: For each document the first of those that say nearly the same, [documents]: they are one
            sample, as the windows of one document are. None where there are no such.
    """
    problem = _pairing_problem(expected, baseline, measured)
    if problem is not None:
        criteria = unjudged(params.artifact, problem, params.max_increase, params.max_mean_kl)
    else:
        if groups is not None:
            baseline, measured = (replace(s, document=groups[s.document]) for s in (baseline, measured))
        criteria = (
            perplexity_criterion(params.artifact, baseline, measured, params.max_increase),
            kl_criterion(params.artifact, measured, params.max_mean_kl),
        )
        guessing = baseline_criterion(params.artifact, baseline, vocab_size)
        if guessing is not None:
            criteria = (guessing, *criteria)
    verdict, reason = summarise(criteria)
    return GateResult(artifact=params.artifact, criteria=criteria, verdict=verdict, reason=reason)


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


def _pairing_problem(expected: NDArray[np.int32], baseline: Samples, measured: Samples) -> str | None:
    """Why the samples cannot be paired position by position, or None where they can."""
    for whose, samples in (("baseline", baseline), ("artifact", measured)):
        lengths = {samples.document.size, samples.nll.size}
        if samples.kl is not None:
            lengths.add(samples.kl.size)
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

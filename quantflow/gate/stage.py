"""The gate stage: an artifact's samples beside the baseline's, judged by every criterion."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import Document, load_documents
from quantflow.data.windows import EVALUATION_FILE, Windows, load_windows, scored_documents, some_windows
from quantflow.formats.assembly import artifact_folder, load_assembly
from quantflow.formats.onnx.census_record import has_census, load_census
from quantflow.gate.adaptive import Looks, SequentialMargins, judge_looks
from quantflow.gate.against import against_criteria
from quantflow.gate.asked_criteria import asked_criteria
from quantflow.gate.baseline import baseline_criterion
from quantflow.gate.bound import kl_bound_criterion
from quantflow.gate.census import census_criterion
from quantflow.gate.decide import error
from quantflow.gate.divergence import find_divergence, save_divergence
from quantflow.gate.fidelity import fidelity_criterion
from quantflow.gate.holm import corrected, several_failures
from quantflow.gate.import_margins import with_margins_of_import
from quantflow.gate.kl import MEAN, P99, TOP1, kl_criterion, kl_p99_criterion, top1_criterion
from quantflow.gate.lossless import find_level, identical_outputs, level_criterion
from quantflow.gate.pairing import pairing_problem
from quantflow.gate.params import GateParams
from quantflow.gate.perplexity import PERPLEXITY, perplexity_criterion
from quantflow.gate.result import CriterionResult, GateResult
from quantflow.gate.serving import serving_criteria
from quantflow.gate.slices import part_of, slice_criteria
from quantflow.gate.tensors import same_tensors
from quantflow.gate.verdict import Verdict, combine
from quantflow.inspection.record import load_inspection
from quantflow.measure.batches import scored_targets
from quantflow.measure.fidelity import load_fidelity
from quantflow.measure.generated import GenerationValue, compare_generation
from quantflow.measure.generation_record import load_generation
from quantflow.measure.looks import PlannedLooks, planned_looks
from quantflow.measure.measurement import Samples, load_samples
from quantflow.measure.noise_floor import NoiseFloor, load_noise
from quantflow.measure.serving import load_serving
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint

GATE_FILE = "gate.json"


@dataclass(frozen=True)
class Asked:
    """What had to be scored, and how it hangs together.

    Attributes:
        document: Document of every position, in order, [positions].
        target: The token that came at each of them, [positions].
        clusters: Document → what stands for it and its near duplicates, [documents]: copies of a form letter
            are one piece of evidence, however many there are.
        slices: Slice of each document, [documents].
        vocab_size: Tokens that the model can choose from.
        known: Slices of the data, whether one of the documents that are judged is of them or not.
    """

    document: NDArray[np.int32]
    target: NDArray[np.integer]
    clusters: NDArray[np.int32]
    slices: Sequence[str]
    vocab_size: int
    known: Sequence[str] = ()


def run(params: GateParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Judge one artifact and write gate.json.

    Args:
        params: The artifact's name and margins.
        inputs: Finished outputs of `inspect`, `data`, `baseline` and `measure`; of `kl` and `baseline-kl`
            where KL was measured in another runtime, of `noise` where the baseline was run twice, of `graph`
            where it is a graph, of `speed` where serving is judged, of `assemble` where margins hang on what
            was imported or, with `source`, tensors can be compared, and those that `asked_criteria` and
            `against_criteria` name.
        output: Folder to write to.
        reporter: Shows progress.
    """
    if params.defaults:
        params = with_margins_of_import(params, load_assembly(inputs["assemble"]).imported, reporter)
    with reporter.track("judging criteria", 1) as advance:
        windows = load_windows(inputs["data"] / EVALUATION_FILE)
        documents = load_documents(inputs["data"])
        clusters = independent_groups(documents)
        outputs = None
        if "generation" in inputs:
            outputs = compare_generation(
                load_generation(inputs["generation-baseline"]),
                load_generation(inputs["generation"]),
                clusters.tolist(),
            )
        baseline, measured = load_samples(inputs["baseline"]), load_samples(inputs["measure"])
        looks = None
        if params.look_seed is not None:
            planned = planned_looks(windows, documents, params.look_seed)
            windows, at, looks = _come_in(windows, planned, measured.nll.size)
            baseline = part_of(baseline, at)
        asked = Asked(
            document=scored_documents(windows),
            target=scored_targets(windows),
            clusters=clusters,
            slices=[document.slice for document in documents],
            vocab_size=load_inspection(inputs["inspect"]).vocab_size,
            known=[document.slice for document in documents],
        )
        result = judge(
            params,
            asked,
            baseline=baseline,
            measured=measured,
            kl_measured=load_samples(inputs["kl"]) if "kl" in inputs else None,
            noise=load_noise(inputs["noise"]) if "noise" in inputs else None,
            outputs=outputs,
            looks=looks,
            tensors_same="source" in inputs
            and same_tensors(load_checkpoint(inputs["source"]).folder, artifact_folder(inputs["assemble"])),
            others=(
                *_served(params, inputs),
                *_graph(params, inputs),
                *_census(params, inputs),
                *asked_criteria(params.artifact, params.asked, clusters.tolist(), inputs),
                *against_criteria(params, asked.document, asked.target, asked.clusters, inputs),
            ),
        )
        if result.lossless is not None:  # the samples are of the same positions
            if "kl" in inputs:
                baseline, measured = load_samples(inputs["baseline-kl"]), load_samples(inputs["kl"])
            save_divergence(output, find_divergence(baseline, measured, windows, documents))
        text = json.dumps(result.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
        (output / GATE_FILE).write_text(text + "\n", encoding="utf-8")
        advance(1)


def _come_in(
    windows: Windows, planned: PlannedLooks, measured: int
) -> tuple[Windows, NDArray[np.int64], Looks]:
    """The windows that were measured in the order in which they came in, where they are, and the looks.

    Args:
        windows: All evaluation windows.
        planned: Which come in when.
        measured: Scored positions that were measured; of a number that no look ends at, all are expected.
    """
    ends = np.cumsum([int(windows.scored_counts[chosen].sum()) for chosen in planned.windows]).tolist()
    taken = ends.index(measured) + 1 if measured in ends else len(ends)
    some, at = some_windows(windows, planned.until(taken))
    return some, at, Looks(planned.sizes, tuple(ends[:taken]))


def _served(params: GateParams, inputs: Mapping[str, Path]) -> tuple[CriterionResult, ...]:
    if params.speed is None and params.memory is None:
        return ()
    return serving_criteria(params.artifact, load_serving(inputs["speed"]), params.speed, params.memory)


def _graph(params: GateParams, inputs: Mapping[str, Path]) -> tuple[CriterionResult, ...]:
    """Whether the lossless graph is the model, of an artifact that was measured beside it."""
    if "graph" not in inputs:
        return ()
    return (fidelity_criterion(params.artifact, load_fidelity(inputs["graph"])),)


def _census(params: GateParams, inputs: Mapping[str, Path]) -> tuple[CriterionResult, ...]:
    """What really runs, of an artifact that was measured in ONNX Runtime."""
    if not has_census(inputs["measure"]):
        return ()
    census = load_census(inputs["measure"])
    return (census_criterion(params.artifact, census, required=params.census_required),)


def load_gate(stage_output: Path) -> GateResult:
    """Read what the gate stage wrote."""
    return GateResult.model_validate_json((stage_output / GATE_FILE).read_text(encoding="utf-8"))


def judge(
    params: GateParams,
    asked: Asked,
    baseline: Samples,
    measured: Samples,
    kl_measured: Samples | None = None,
    others: Sequence[CriterionResult] = (),
    noise: NoiseFloor | None = None,
    outputs: GenerationValue | None = None,
    looks: Looks | None = None,
    *,
    tensors_same: bool = False,
) -> GateResult:
    """Judge an artifact's samples against the baseline's.

    Args:
        params: The artifact's name and margins.
        asked: What had to be scored.
        baseline: Samples of the lossless model.
        measured: Samples of the artifact.
        kl_measured: Samples of the artifact to take KL from, where `measured` has none.
        others: Results of criteria that are judged by other evidence than these samples.
        noise: What the baseline says of itself, run another way; None where it was not measured.
        outputs: Both models' greedy outputs; None where none were made.
        looks: When samples came in, in their order; None where they were measured in one go.
        tensors_same: Whether the artifact's tensors are known to be the baseline's.
    """
    sampled = [baseline, measured, *([kl_measured] if kl_measured is not None else [])]
    problem = pairing_problem(asked.document, asked.target, sampled)
    if problem is not None:
        criteria = _unjudged(params, problem)
    else:
        slice_of = np.asarray(asked.slices, dtype=np.str_)[asked.document]
        grouped = [replace(samples, document=asked.clusters[samples.document]) for samples in sampled]
        before, after, for_kl = grouped[0], grouped[1], grouped[-1]
        guessing = baseline_criterion(params.artifact, before, asked.vocab_size)
        criteria = (
            *([guessing] if guessing is not None else []),
            *(
                (
                    *_perplexity(params, before, after, slice_of, asked.known),
                    *_kl(params, for_kl, slice_of, asked.known),
                )
                if looks is None
                else _sequential(params, before, after, looks)
            ),
        )
    criteria = (*criteria, *others)
    lossless = None
    if problem is None:
        lossless = find_level(
            summarise(criteria)[0],
            before,
            _with_kl(after, for_kl),
            noise,
            *identical_outputs(outputs),
            all_measured=looks is None or not looks.saving.share,
            tensors_same=tensors_same,
        )
        if params.require is not None:
            criteria = (*criteria, level_criterion(params.artifact, lossless, params.require))
    criteria = tuple(_above_noise(criterion, noise) for criterion in corrected(criteria))
    verdict, reason = summarise(criteria)
    saving = None if looks is None or problem is not None else looks.saving
    return GateResult(
        artifact=params.artifact,
        criteria=criteria,
        verdict=verdict,
        reason=reason if saving is None else f"{reason} {saving.sentence()}",
        lossless=lossless,
        saving=saving,
    )


def _with_kl(measured: Samples, for_kl: Samples) -> Samples:
    """Samples whose logits are compared: those of the runtime that the exact KL is from."""
    return measured if measured.kl is not None else replace(measured, kl=for_kl.kl)


def _above_noise(criterion: CriterionResult, noise: NoiseFloor | None) -> CriterionResult:
    floor = None if noise is None else noise.of_metric(criterion.metric)
    return criterion if floor is None else criterion.model_copy(update={"noise_floor": floor})


def _perplexity(
    params: GateParams,
    before: Samples,
    after: Samples,
    slice_of: NDArray[np.str_],
    known: Sequence[str],
) -> tuple[CriterionResult, ...]:
    def judged(baseline: Samples, measured: Samples, margin: float) -> CriterionResult:
        return perplexity_criterion(params.artifact, baseline, measured, margin)

    whole = judged(before, after, params.max_increase)
    return (
        whole.model_copy(update={"required": params.perplexity_required}),
        *slice_criteria(params.perplexity_slices, slice_of, before, after, judged, known),
    )


def _sequential(
    params: GateParams, before: Samples, after: Samples, looks: Looks
) -> tuple[CriterionResult, ...]:
    margins = SequentialMargins(
        artifact=params.artifact, max_increase=params.max_increase, max_mean_kl=params.max_mean_kl
    )
    perplexity, kl = judge_looks(margins, before, after, looks)
    return (
        perplexity.model_copy(update={"required": params.perplexity_required}),
        kl.model_copy(update={"required": params.kl_required}),
    )


def _kl(
    params: GateParams, measured: Samples, slice_of: NDArray[np.str_], known: Sequence[str]
) -> tuple[CriterionResult, ...]:
    name, only_bound = params.artifact, measured.kl is None and measured.kl_at_least is not None

    def judged(baseline: Samples, measured: Samples, margin: float) -> CriterionResult:
        return (kl_bound_criterion if only_bound else kl_criterion)(name, measured, margin)

    whole = [judged(measured, measured, params.max_mean_kl)]
    if params.max_p99 is not None:
        whole.append(kl_p99_criterion(name, measured, params.max_p99))
    if params.min_top1_agreement is not None:
        whole.append(top1_criterion(name, measured, params.min_top1_agreement))
    return (
        *(result.model_copy(update={"required": params.kl_required}) for result in whole),
        *slice_criteria(params.kl_slices, slice_of, measured, measured, judged, known),
    )


def _unjudged(params: GateParams, reason: str) -> tuple[CriterionResult, ...]:
    """Every criterion on samples as an error, where they cannot be compared at all."""
    agreement = None if params.min_top1_agreement is None else 1 - params.min_top1_agreement
    margins = (
        (PERPLEXITY, params.max_increase),
        (MEAN, params.max_mean_kl),
        (P99, params.max_p99),
        (TOP1, agreement),
    )
    return tuple(
        error(params.artifact, criterion, margin, reason)
        for criterion, margin in margins
        if margin is not None
    )


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
        missed = sum(c.verdict is not Verdict.PASS for c in criteria if not c.required)
        advice = f" {missed} of those that are not required do not pass." if missed else ""
        return verdict, f"All {len(required)} required criteria pass.{advice}"
    deciding = dict.fromkeys(c.reason for c in required if c.verdict is verdict)
    several = several_failures(required) if verdict is Verdict.FAIL else ""
    return verdict, " ".join([*deciding, *([several] if several else [])])

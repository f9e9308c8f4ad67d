"""What a report says: the content of `report.json`, in the order a reader wants it."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, JsonValue

from quantflow.data.documents import Accounting, SplitName
from quantflow.drift.record import DriftRecord
from quantflow.formats.onnx.census_record import Census
from quantflow.gate.divergence import Divergence
from quantflow.gate.result import CriterionResult, Lossless
from quantflow.gate.sequential import Saving
from quantflow.gate.verdict import Verdict
from quantflow.leakage.record import TaskLeakage
from quantflow.measure.measurement import Measurement
from quantflow.pipeline.events import Event
from quantflow.quantize.outcome import RefineRecord
from quantflow.remedies.record import RemedyRecord
from quantflow.report.contexts import DivergentContext
from quantflow.report.decision import Decision
from quantflow.report.text import TextLevel
from quantflow.report.wording import Language
from quantflow.sensitivity.assignment import AssignmentRecord
from quantflow.sensitivity.record import ScanRecord


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Scheme(_Part):
    """How an artifact's weights are stored.

    Attributes:
        method: Quantization method, e.g. `awq`; None where nothing is quantized.
        bits: Bits per weight.
        group_size: Input channels that share one scale and zero point, -1 for all of a layer's; None where
            nothing is quantized.
        symmetric: Whether zero is in the middle of the grid; None where nothing is quantized.
        desc_act: Whether columns were taken by descending activation.
        dtype: Data type of an artifact that is not quantized; None for one that is.
    """

    method: str | None = None
    bits: int
    group_size: int | None = None
    symmetric: bool | None = None
    desc_act: bool = False
    dtype: str | None = None


class ArtifactReport(_Part):
    """One artifact.

    Attributes:
        name: As in the recipe.
        path: The folder people open, `artifacts/<recipe>/<name>`.
        format: File format, e.g. `awq`.
        scheme: How its quantized weights are stored.
        kept_units: Units of the blocks that stay in the model's own type, e.g. `model.layers.0.down`.
        bytes: Size of its files together; None where it was not made.
        digest: SHA-256 of its quantflow.json, which holds those of all its other files; likewise.
        verdict: The gate's verdict, the worst of its criteria's.
        measurements: Measured of what was read back from disk; None where it was not.
        yardstick: Measured of plain rounding to nearest at the same bits, group size and symmetry; None where
            it was not, or the artifact is just that.
        refinement: Whether GPTQ's sequential pass was any better; None where there was none.
        divergence: Where its distributions diverge, without text of the data; None where it was not judged.
        contexts: The texts of `divergence.worst`, in its order; empty where they are not told.
        remedies: What makes INT8 inputs accurate: whole models as measured, and what each unit got; None
            where inputs are not INT8.
        census: What every unit of an ONNX artifact really runs as; None for others.
        sensitivity: What each unit costs, in the artifact's own precisions; None where nothing was scanned.
        assignment: Which units are spared and why; None where none were to be chosen.
        lossless: The level of lossless that it reaches; None where it was not judged.
        saving: What stopping early saved; None where documents were measured in one go.
    """

    name: str
    path: str
    format: str
    scheme: Scheme
    kept_units: tuple[str, ...] = ()
    bytes: int | None
    digest: str | None = None
    verdict: Verdict
    measurements: Measurement | None
    yardstick: Measurement | None = None
    refinement: RefineRecord | None = None
    divergence: Divergence | None = None
    contexts: tuple[DivergentContext, ...] = ()
    remedies: RemedyRecord | None = None
    census: Census | None = None
    sensitivity: ScanRecord | None = None
    assignment: AssignmentRecord | None = None
    lossless: Lossless | None = None
    saving: Saving | None = None


class BaselineReport(_Part):
    """The lossless model that artifacts are compared with.

    Attributes:
        source: Where it came from, as resolved.
        kind: `folder`, `gguf`, `hub` or `wheel`.
        identity: Content hash of its files.
        model_type: Architecture, as in its config.
        dtype: Data type of its weights on disk.
        parameters: Number of parameters; tied ones count once.
        bytes: Size of its files together.
        measurements: Measured on the evaluation documents; None where it was not.
    """

    source: str
    kind: str
    identity: str
    model_type: str
    dtype: str
    parameters: int
    bytes: int
    measurements: Measurement | None


class DriftReport(DriftRecord):
    """Calibration text beside production's.

    Attributes:
        sentences: The finding and what to do, in English.
    """

    sentences: tuple[str, ...]


class LeakageReport(_Part):
    """What is judged on and was calibrated on, too.

    Attributes:
        evaluation_documents: Evaluation documents with windows.
        evaluation_overlapping: Those of them with a passage that calibration or selection text has word for
            word. Near duplicates are in one split, so that none is on both sides.
        evaluation_share: Share of evaluation tokens in such passages.
        tasks: Task → its items that calibration text has.
    """

    evaluation_documents: int
    evaluation_overlapping: int
    evaluation_share: float
    tasks: Mapping[str, TaskLeakage] = {}


class DataReport(_Part):
    """What became of the business text.

    Attributes:
        accounting: Every document and token.
        slices: Slice → split → documents used.
        leakage: What is judged on and was calibrated on, too; None where that was not counted.
        drift: Calibration text beside a sample of production's; None where the recipe names none.
    """

    accounting: Accounting
    slices: Mapping[str, Mapping[SplitName, int]]
    leakage: LeakageReport | None = None
    drift: DriftReport | None = None

    @classmethod
    def of(cls, accounting: Accounting) -> Self:
        """Report an accounting and, from it, how slices are spread over the splits."""
        names = sorted({name for split in accounting.splits.values() for name in split.slices})
        slices = {
            name: {
                split: counts.slices[name].documents_used if name in counts.slices else 0
                for split, counts in accounting.splits.items()
            }
            for name in names
        }
        return cls(accounting=accounting, slices=slices, leakage=_leakage(accounting))


def _leakage(accounting: Accounting) -> LeakageReport | None:
    """That of the evaluation text."""
    evaluation = accounting.splits.get("evaluation")
    if evaluation is None or evaluation.documents_overlapping is None:
        return None
    return LeakageReport(
        evaluation_documents=evaluation.total.documents_used,
        evaluation_overlapping=evaluation.documents_overlapping,
        evaluation_share=evaluation.overlap or 0.0,
    )


class TrendPoint(_Part):
    """An artifact in an earlier run of the recipe.

    Attributes:
        run_id: The run.
        started: ISO 8601, UTC.
        artifact: The artifact's name.
        verdict: The gate's.
        perplexity_increase: Relative, a fraction.
        kl_mean: Mean KL, nats per token.
    """

    run_id: str
    started: str
    artifact: str
    verdict: Verdict
    perplexity_increase: float | None
    kl_mean: float | None


class Report(_Part):
    """A run's verdict and the evidence for it.

    Attributes:
        schema_version: Version of this format; a key that changes its meaning makes a new one.
        run_id: The run's own name, also the report's folder.
        recipe: Name of the recipe.
        title: Title for people: the recipe's `report.title`, else its name.
        language: What report.html is written in; report.json is in English.
        text: What it holds of texts of models and data.
        published_text: What a copy of it that is published may hold of them.
        verdict: The worst of the artifacts' verdicts; error, too, where any stage failed.
        exit_code: What the command exits with: 0 pass, 1 fail, 2 error, 3 inconclusive.
        reason: Why this verdict, in plain words.
        criteria: Every criterion of every artifact.
        artifacts: What was made.
        baseline: What it was made from; None in a run that ended before.
        data: What it was judged on; None in a run that ended before.
        events: What changed the result, or may have, without being asked for.
        provenance: Versions, hashes, machine, times: what it takes to do the same again.
        decisions: What people decided about these very bytes.
        trend: The last runs of the recipe before this one, the oldest first.
    """

    schema_version: Literal[1] = 1
    run_id: str
    recipe: str
    title: str
    language: Language = "en"
    text: TextLevel = "full"
    published_text: TextLevel = "none"
    verdict: Verdict
    exit_code: int
    reason: str
    criteria: tuple[CriterionResult, ...]
    artifacts: tuple[ArtifactReport, ...]
    baseline: BaselineReport | None
    data: DataReport | None
    events: tuple[Event, ...]
    provenance: Mapping[str, JsonValue]
    decisions: tuple[Decision, ...] = ()
    trend: tuple[TrendPoint, ...] = ()

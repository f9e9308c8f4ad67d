"""The measure stage that stops once every criterion is decided."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import Document, load_documents
from quantflow.data.windows import some_windows
from quantflow.formats.assembly import artifact_folder
from quantflow.gate.adaptive import Looks, all_decided, judge_looks
from quantflow.measure.adaptive_params import AdaptiveParams
from quantflow.measure.beside import Among, Beside, samples_beside
from quantflow.measure.evaluation import load_evaluation
from quantflow.measure.looks import planned_looks
from quantflow.measure.measurement import RuntimeInfo, Samples, load_samples, save_measurement
from quantflow.measure.summary import summarize
from quantflow.pipeline.events import Reporter
from quantflow.pipeline.part import PartReporter
from quantflow.source.checkpoint import load_checkpoint


def run(params: AdaptiveParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Measure an artifact as in `quantflow.measure.artifact`, documents in random order, look by look.

    After each look perplexity and mean KL are judged by the code that the gate judges them by; measuring ends
    when both are decided. Samples are stored in the order in which they came in.

    Args:
        params: Device and size of batches, the baseline's; the order of documents and the margins.
        inputs: Finished outputs of `source`, `data`, `baseline` and `assemble`.
        output: Folder for measurement.json and samples.safetensors.
        reporter: Receives progress, and keeps it.

    Raises:
        ArtifactError: The artifact is damaged or its logits are not finite.
        DataError: There is nothing to score.
    """
    windows, documents = load_evaluation(inputs["data"]), load_documents(inputs["data"])
    looks = planned_looks(windows, documents, params.look_seed)
    baseline = load_samples(inputs["baseline"])
    source, folder = load_checkpoint(inputs["source"]).folder, artifact_folder(inputs["assemble"])
    before: list[Samples] = []
    found: list[Samples] = []
    ends: list[int] = []
    runtime: RuntimeInfo | None = None
    for number, chosen in enumerate(looks.windows):
        part, at = some_windows(windows, chosen)
        beside = Beside(
            source=source,
            baseline=inputs["baseline"],
            windows=part,
            device=params.device,
            batch_tokens=params.batch_tokens,
            among=Among(at, baseline.nll.size),
        )
        what = f"Running the artifact, look {number + 1} of {len(looks.sizes)} at most"
        samples, runtime = samples_beside(beside, folder, PartReporter(reporter, f"look-{number}"), what)
        found.append(samples)
        before.append(Samples(baseline.document[at], baseline.nll[at], target=samples.target))
        ends.append((ends[-1] if ends else 0) + at.size)
        own, after = (_by_group(_joined(of), documents) for of in (before, found))
        taken = Looks(looks.sizes, tuple(ends))
        if all_decided(judge_looks(params.margins, own, after, taken)):
            break
    assert runtime is not None  # there is a look: there is something to score
    measured = _joined(found)
    measurement = summarize(measured, [document.slice for document in documents], runtime)
    if taken.saving.share:  # what is measured on some documents is shown beside the baseline on the same
        beside_it = float(np.exp(_joined(before).nll.mean()))
        perplexity = measurement.perplexity.model_copy(update={"baseline": beside_it})
        measurement = measurement.model_copy(update={"perplexity": perplexity, "slices": {}})
    save_measurement(output, measurement, measured)


def _joined(parts: Sequence[Samples]) -> Samples:
    names = [field.name for field in fields(Samples) if getattr(parts[0], field.name) is not None]
    return Samples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _by_group(samples: Samples, documents: Sequence[Document]) -> Samples:
    """The same with near duplicates as one document."""
    first: NDArray[np.int32] = np.array(
        [at if document.near is None else document.near for at, document in enumerate(documents)],
        dtype=np.int32,
    )
    return replace(samples, document=first[samples.document])

"""Holds a search's candidates to the gate's own criteria and margins, on the selection documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quantflow.data.documents import load_documents
from quantflow.data.windows import Windows, scored_documents
from quantflow.gate.params import GateParams
from quantflow.gate.stage import Asked, independent_groups, judge
from quantflow.inspection.record import load_inspection
from quantflow.measure.batches import scored_targets
from quantflow.measure.measurement import Samples, load_samples
from quantflow.sensitivity.assignment import RoundCriterion
from quantflow.sensitivity.search import with_room


@dataclass(frozen=True)
class Judge:
    """The margins and what candidates are compared with.

    Attributes:
        gate: The gate's margins.
        asked: What has to be scored: the selection documents.
        baseline: The lossless model's samples on them.
    """

    gate: GateParams
    asked: Asked
    baseline: Samples

    @classmethod
    def of(cls, gate: GateParams, inputs: Mapping[str, Path], windows: Windows) -> "Judge":
        """From the finished outputs of `data`, `inspect` and, on the selection documents, `baseline`."""
        documents = load_documents(inputs["data"])
        asked = Asked(
            document=scored_documents(windows),
            target=scored_targets(windows),
            clusters=independent_groups(documents),
            slices=[document.slice for document in documents],
            vocab_size=load_inspection(inputs["inspect"]).vocab_size,
        )
        return cls(gate, asked, load_samples(inputs["baseline"]))

    def criteria(self, samples: Samples) -> tuple[RoundCriterion, ...]:
        """Every criterion that a candidate has to meet, with room."""
        found = judge(self.gate, self.asked, self.baseline, samples)
        return tuple(with_room(criterion) for criterion in found.criteria if criterion.required)

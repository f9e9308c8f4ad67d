"""Holds a search's candidates to the gate's own criteria and margins, on the selection documents."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.documents import load_documents
from quantflow.gate.criteria import kl_criterion, perplexity_criterion
from quantflow.gate.stage import independent_groups
from quantflow.measure.measurement import Samples, load_samples
from quantflow.sensitivity.assignment import RoundCriterion
from quantflow.sensitivity.choosing import SearchParams
from quantflow.sensitivity.search import with_room


@dataclass(frozen=True)
class Judge:
    """The margins and what candidates are compared with.

    Attributes:
        params: The artifact's name and margins.
        baseline: The lossless model's samples on the selection documents.
        clusters: Document → what stands for it and its near duplicates, [documents].
    """

    params: SearchParams
    baseline: Samples
    clusters: NDArray[np.int32]

    @classmethod
    def of(cls, params: SearchParams, inputs: Mapping[str, Path]) -> "Judge":
        """From the finished outputs of `data` and, on the selection documents, `baseline`."""
        clusters = independent_groups(load_documents(inputs["data"]))
        return cls(params, load_samples(inputs["baseline"]), clusters)

    def criteria(self, samples: Samples) -> tuple[RoundCriterion, ...]:
        """Every criterion of a candidate, with room."""
        name = self.params.choosing.assemble.name
        before, after = self._clustered(self.baseline), self._clustered(samples)
        return (
            with_room(perplexity_criterion(name, before, after, self.params.max_increase)),
            with_room(kl_criterion(name, after, self.params.max_mean_kl)),
        )

    def _clustered(self, samples: Samples) -> Samples:
        return replace(samples, document=self.clusters[samples.document])

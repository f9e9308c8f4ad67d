"""One evaluator for the artifacts of all tools: QuantFlow's own, in float32, on weights read from disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from quantflow.data.windows import Windows, scored_documents
from quantflow.errors import ArtifactError, SourceError
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.scoring import Rows, score_against, score_alone, scored_hidden
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader, WeightReader

from .printing import Printing

BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Judged:
    """How an artifact does on one text.

    Attributes:
        kl: Mean KL(baseline ‖ artifact), nats per token.
        perplexity: Over all scored positions.
    """

    kl: float
    perplexity: float


class Judge:
    """The lossless model's hidden states on every text, and what is measured against them.

    Args:
        source: The lossless checkpoint.
        texts: Windows to judge by, by name of the text.
        folder: Where progress is kept, which nothing is taken up from.
    """

    def __init__(self, source: Path, texts: Mapping[str, Windows], folder: Path) -> None:
        """Run the lossless model over the texts."""
        self._source, self._texts, self._folder = source, texts, folder
        self._pieces = 0
        self._known: dict[str, Mapping[str, Judged]] = {}
        self._baseline = StreamedDecoder(source, SafetensorsReader(source))
        self._hidden = {
            name: self._run(self._baseline, windows, f"baseline, {name}") for name, windows in texts.items()
        }

    def baseline(self) -> dict[str, float]:
        """Perplexity of the lossless model on every text."""
        found = {}
        for name, windows in self._texts.items():
            hidden = self._hidden[name]
            samples = score_alone(
                self._baseline,
                _rows(hidden),
                scored_targets(windows),
                scored_documents(windows),
                SourceError,
                self._reporter(),
            )
            found[name] = float(np.exp(samples.nll.mean()))
        return found

    def judge(self, reader: WeightReader, digest: str) -> Mapping[str, Judged]:
        """Measure a model of the same architecture by its weights, on every text.

        Args:
            reader: Its weights.
            digest: Of the file that holds them: equal ones are measured once.
        """
        if digest not in self._known:
            self._known[digest] = self._measure(reader)
        return self._known[digest]

    def _measure(self, reader: WeightReader) -> dict[str, Judged]:
        artifact = StreamedDecoder(self._source, reader)
        found = {}
        for name, windows in self._texts.items():
            baseline, hidden = self._hidden[name], self._run(artifact, windows, f"artifact, {name}")
            samples = score_against(
                self._baseline,
                _rows(baseline),
                artifact,
                _rows(hidden),
                scored_targets(windows),
                scored_documents(windows),
                ArtifactError,
                self._reporter(),
            )
            assert samples.kl is not None
            found[name] = Judged(float(samples.kl.mean()), float(np.exp(samples.nll.mean())))
        return found

    def _run(self, decoder: StreamedDecoder, windows: Windows, what: str) -> Tensor:
        return scored_hidden(decoder, make_batches(windows, BATCH_TOKENS), self._reporter(), what)

    def _reporter(self) -> Printing:
        """One for each piece of work: what one has kept, another would go on from."""
        self._pieces += 1
        return Printing(self._folder / str(self._pieces))


def _rows(hidden: Tensor) -> Rows:
    return lambda begin, end: hidden[begin:end]

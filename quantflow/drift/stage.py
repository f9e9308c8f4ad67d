"""The drift stage: calibration text beside a sample of what the model reads in production."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantflow.data.check import check_vocabulary
from quantflow.data.encode import Encoder
from quantflow.data.windows import Windows, make_windows, scored_documents
from quantflow.drift.distance import TokenCounts, count_tokens, token_difference
from quantflow.drift.params import DriftParams
from quantflow.drift.ranges import run_texts
from quantflow.drift.record import DriftRecord, TextSide, save_drift
from quantflow.drift.reference import (
    Text,
    as_text,
    calibration_text,
    main_script,
    not_calibrated,
    reference_text,
    shares,
)
from quantflow.drift.size import READ_DOCUMENTS, READ_TOKENS
from quantflow.errors import DataError, SourceError
from quantflow.gate.statistics import ratio_estimate
from quantflow.measure.batches import scored_targets
from quantflow.measure.scoring import score_alone
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter
from quantflow.source.checkpoint import load_checkpoint


def run(params: DriftParams, inputs: Mapping[str, Path], output: Path, reporter: Reporter) -> None:
    """Compare calibration documents with production's: tokens, length, language, slices, what layers get.

    Args:
        params: Production's files.
        inputs: Finished outputs of `source` and `data`; of `quantize` where that holds calibrated ranges.
        output: Folder for drift.json.
        reporter: Receives progress, and an event where the two differ.

    Raises:
        DataError: Production's files cannot be used, or hold no document of two tokens.
        SourceError: The model is damaged, or its tokenizer is another model's.
    """
    folder = load_checkpoint(inputs["source"]).folder
    encoder = Encoder(folder)
    calibration = calibration_text(inputs["data"])
    documents = not_calibrated(reference_text(params, encoder, reporter), calibration, reporter)
    check_vocabulary(folder, documents)
    reference = as_text(documents)
    counted = count_tokens(calibration.tokens, reference.tokens, calibration.group, reference.group)
    read = [_beginnings(calibration), _beginnings(reference)]
    decoder = StreamedDecoder(folder, SafetensorsReader(folder), params.device)
    parts = (_part(read[0], 0), _part(read[0], 1), read[1])
    hidden, activations = run_texts(decoder, parts, params.batch_tokens, inputs.get("quantize"), reporter)
    targets = np.concatenate([scored_targets(part) for part in parts])
    of_document = np.concatenate([scored_documents(part) for part in parts])
    samples = score_alone(
        decoder, lambda begin, end: hidden[begin:end], targets, of_document, SourceError, reporter
    )
    first = sum(int(part.scored_counts.sum()) for part in parts[:2])
    nll = samples.nll[:first], samples.nll[first:]
    group = _groups(calibration, of_document[:first]), _groups(reference, of_document[first:])
    sides = [
        _side(text, encoder, windows, losses, groups)
        for text, windows, losses, groups in zip((calibration, reference), read, nll, group, strict=True)
    ]
    known = set(calibration.slices)
    record = DriftRecord(
        tokens=token_difference(counted),
        calibration=sides[0],
        reference=sides[1],
        activations=activations,
        unseen_slices=sum(name not in known for name in reference.slices) / len(reference.slices),
        unseen_tokens=_unseen(counted),
    )
    save_drift(output, record)
    if record.tokens.is_found:
        reporter.event(
            "production-differs",
            f"Production text differs from calibration text by {record.tokens.js:.3f} bits (Jensen-Shannon, "
            f"of their tokens), where chance gives {record.tokens.floor:.3f}: what is calibrated and judged "
            "on is not what the model reads in production.",
            js=round(record.tokens.js, 6),
            floor=round(record.tokens.floor, 6),
        )


def _beginnings(text: Text) -> Windows:
    """The beginnings of the first documents in which something can be scored; `document` is the place."""
    chosen = [i for i, tokens in enumerate(text.tokens) if len(tokens) > 1][:READ_DOCUMENTS]
    if not chosen:
        raise DataError(
            "no document of it has two tokens, so that nothing can be predicted",
            where="data.reference",
            hint="Give longer texts.",
        )
    return make_windows([text.tokens[i][:READ_TOKENS] for i in chosen], chosen)


def _part(windows: Windows, half: int) -> Windows:
    """Every other window."""
    chosen = range(half, len(windows), 2)
    pieces = list(windows)
    return make_windows([pieces[i] for i in chosen], windows.document[list(chosen)].tolist())


def _groups(text: Text, document: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.asarray(text.group, dtype=np.int32)[document]


def _side(
    text: Text, encoder: Encoder, read: Windows, nll: NDArray[np.float64], group: NDArray[np.int32]
) -> TextSide:
    lengths = [len(tokens) for tokens in text.tokens]
    low, median, high = np.quantile(lengths, [0.1, 0.5, 0.9])
    loss = ratio_estimate(group, nll)
    return TextSide(
        documents=len(lengths),
        groups=len(set(text.group)),
        tokens=sum(lengths),
        length_p10=float(low),
        length_median=float(median),
        length_p90=float(high),
        scripts=shares([main_script(one) for one in encoder.texts(text.tokens)]),
        slices=shares(text.slices),
        read_documents=len(read),
        read_tokens=int(nll.size),
        perplexity=_perplexity(loss.value),
        perplexity_low=_exp(loss.ci_low),
        perplexity_high=_exp(loss.ci_high),
    )


def _perplexity(nll: float) -> float:
    found = _exp(nll)
    if found is None:
        raise SourceError(
            f"the model's loss on it is {nll:.4g} nats per token, which is no perplexity",
            where="data.reference",
            hint="Its weights are damaged, or the text is not what the model was made for.",
        )
    return found


def _exp(value: float) -> float | None:
    with np.errstate(over="ignore"):
        found = float(np.exp(value))
    return found if math.isfinite(found) and found > 0 else None


def _unseen(counted: TokenCounts) -> float:
    """Share of production's tokens that calibration has none of."""
    sums = [
        np.asarray(part.sum(axis=0)).ravel()
        for part in (counted.counts[: counted.calibration], counted.counts[counted.calibration :])
    ]
    return float(sums[1][sums[0] == 0].sum() / sums[1].sum())

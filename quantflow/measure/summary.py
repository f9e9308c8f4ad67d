"""From per-position samples to the figures of a measurement."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from quantflow.measure.measurement import (
    KlValue,
    Measurement,
    PerplexityValue,
    RuntimeInfo,
    Samples,
    SliceValue,
)


def summarize(samples: Samples, slices: Sequence[str], runtime: RuntimeInfo) -> Measurement:
    """Sum samples up over all documents and by slice.

    Args:
        samples: The values at every scored position; at least one.
        slices: Slice of each document, by its index in documents.json.
        runtime: How the model was run.
    """
    return Measurement(
        runtime=runtime,
        perplexity=_perplexity(samples),
        kl=_kl(samples),
        slices=_by_slice(samples, slices),
    )


def _perplexity(samples: Samples) -> PerplexityValue:
    nll = float(samples.nll.mean())
    return PerplexityValue(
        value=float(np.exp(nll)),
        nll=nll,
        tokens=samples.nll.size,
        documents=int(np.unique(samples.document).size),
    )


def _kl(samples: Samples) -> KlValue | None:
    kl = _kl_samples(samples)
    if kl is None or samples.top1 is None:
        return None
    median, p90, p95, p99, p999 = np.quantile(kl, [0.5, 0.9, 0.95, 0.99, 0.999])
    return KlValue(
        mean=float(kl.mean()),
        median=float(median),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99),
        p999=float(p999),
        max=float(kl.max()),
        top1_agreement=float(samples.top1.mean()),
        at_least=samples.kl is None,
    )


def _kl_samples(samples: Samples) -> NDArray[np.float64] | None:
    return samples.kl if samples.kl is not None else samples.kl_at_least


def _by_slice(samples: Samples, slices: Sequence[str]) -> Mapping[str, SliceValue]:
    slice_of_position = np.asarray(slices, dtype=np.str_)[samples.document]
    values = {}
    kl = _kl_samples(samples)
    for name in np.unique(slice_of_position):  # sorted
        inside = slice_of_position == name
        nll = samples.nll[inside]
        values[str(name)] = SliceValue(
            perplexity=float(np.exp(nll.mean())),
            kl_mean=None if kl is None else float(kl[inside].mean()),
            tokens=nll.size,
            documents=int(np.unique(samples.document[inside]).size),
        )
    return values

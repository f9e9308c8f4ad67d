"""Figures are what their samples say."""

import math

import numpy as np
import pytest

from quantflow.measure.measurement import RuntimeInfo, Samples
from quantflow.measure.summary import summarize

RUNTIME = RuntimeInfo(name="torch", version="0", device="cpu", dtype="float32", options={})


def samples() -> Samples:
    """A thousand positions: 900 of document 0, 100 of document 2; document 1 has none."""
    position = np.arange(1000)
    return Samples(
        document=np.where(position < 900, 0, 2).astype(np.int32),
        nll=np.where(position < 900, 1.0, 3.0),
        kl=position / 1000,
        top1=position % 4 != 0,
    )


def test_perplexity_weighs_every_token_alike() -> None:
    perplexity = summarize(samples(), ["chat", "chat", "news"], RUNTIME).perplexity
    assert perplexity.nll == pytest.approx(1.2)
    assert perplexity.value == pytest.approx(math.exp(1.2))
    assert (perplexity.tokens, perplexity.documents) == (1000, 2)


def test_kl_is_told_with_its_tail() -> None:
    kl = summarize(samples(), ["chat", "chat", "news"], RUNTIME).kl
    assert kl is not None
    assert kl.mean == pytest.approx(0.4995)
    assert (kl.median, kl.p90, kl.p95, kl.p99, kl.p999, kl.max) == pytest.approx(
        (0.4995, 0.8991, 0.94905, 0.98901, 0.998001, 0.999)
    )
    assert kl.top1_agreement == 0.75


def test_slices_are_told_apart_and_empty_ones_left_out() -> None:
    slices = summarize(samples(), ["chat", "empty", "news"], RUNTIME).slices
    assert list(slices) == ["chat", "news"]
    assert slices["news"].perplexity == pytest.approx(math.exp(3))
    assert slices["news"].kl_mean == pytest.approx(0.9495)
    assert (slices["chat"].tokens, slices["chat"].documents) == (900, 1)


def test_a_baseline_has_no_kl() -> None:
    alone = Samples(samples().document, samples().nll)
    measurement = summarize(alone, ["chat", "chat", "chat"], RUNTIME)
    assert measurement.kl is None
    assert measurement.slices["chat"].kl_mean is None

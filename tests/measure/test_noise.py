"""The baseline against itself: what batches alone change."""

from pathlib import Path

import numpy as np
import pytest

from quantflow.measure import baseline, noise
from quantflow.measure.measurement import Samples, load_samples
from quantflow.measure.noise_floor import load_noise, noise_floor
from quantflow.measure.params import BaselineParams, NoiseParams
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter

PARAMS = NoiseParams(device="cpu", batch_tokens=128, windows=4)


def test_the_model_beside_itself_in_other_batches_is_nearly_the_same(
    tmp_path: Path, tiny_llama: Path
) -> None:
    windows = evaluation_windows()
    inputs = {
        "source": source_output(tmp_path / "source", tiny_llama),
        "data": data_output(tmp_path / "data", windows),
        "baseline": tmp_path / "baseline",
    }
    output = tmp_path / "noise"
    for folder in (inputs["baseline"], output):
        folder.mkdir()
    params = BaselineParams(device="cpu", batch_tokens=128)
    baseline.run(params, inputs, inputs["baseline"], RecordingReporter())
    noise.run(PARAMS, inputs, output, RecordingReporter())
    floor = load_noise(output)
    chosen = noise.spread_windows(windows, 4)
    assert floor.tokens == windows.scored_counts[chosen].sum()
    assert 0 <= floor.kl_mean <= floor.kl_max < 1e-5
    assert floor.nll_max < 1e-4
    assert floor.top1_differs == 0
    assert load_samples(inputs["baseline"]).target is not None


def test_windows_are_spread_over_all_that_have_something_to_score() -> None:
    windows = evaluation_windows((40, 1, 64, 64, 2, 33, 12))
    assert noise.spread_windows(windows, 3).tolist() == [0, 3, 6]
    assert noise.spread_windows(windows, 99).tolist() == [0, 2, 3, 4, 5, 6]


def test_a_floor_counts_what_differs() -> None:
    document = np.zeros(100, dtype=np.int32)
    nll = np.full(100, 2.0)
    kl = np.r_[np.full(99, 1e-6), -1e-9]
    top1 = np.r_[np.ones(98, dtype=np.bool_), False, False]
    floor = noise_floor("so", Samples(document, nll), Samples(document, nll - 0.001, kl, top1))
    assert floor.perplexity == pytest.approx(np.expm1(0.001))
    assert floor.top1_differs == pytest.approx(0.02)
    assert floor.kl_max == 1e-6
    assert [floor.of_metric(m) for m in ("kl_mean", "speedup_throughput")] == [floor.kl_mean, None]


def test_a_floor_of_other_positions_is_refused() -> None:
    document, nll = np.zeros(9, dtype=np.int32), np.ones(9)
    with pytest.raises(ValueError, match="same positions"):
        noise_floor("so", Samples(document, nll), Samples(document, nll))

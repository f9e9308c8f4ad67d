"""One judge for all: the lossless model is beyond reproach, others are not, and none leaves traces behind."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers.compare import compare, table
from benchmarks.peers.judge import Judge
from benchmarks.peers.measure import Row
from benchmarks.peers.processes import Taken
from quantflow.data.windows import Windows, make_windows
from quantflow.model.weights import SafetensorsReader
from tests.tiny_models import VOCABULARY, random_model, tiny_config


def windows(seed: int) -> Windows:
    tokens = np.random.default_rng(seed).integers(0, VOCABULARY, (3, 32), dtype=np.int32)
    return make_windows(list(tokens), range(3))


@pytest.fixture
def texts() -> dict[str, Windows]:
    return {"in_domain": windows(1), "out_of_domain": windows(2)}


def test_every_model_is_judged_by_itself(tmp_path: Path, texts: dict[str, Windows]) -> None:
    config = tiny_config(num_hidden_layers=1)
    lossless = random_model(tmp_path / "lossless", config, dtype=torch.float16)
    other = random_model(tmp_path / "other", config, dtype=torch.float16, seed=1)
    judge = Judge(lossless, texts, tmp_path / "judging")
    baseline = judge.baseline()
    same = judge.judge(SafetensorsReader(lossless), "digest of the lossless")
    changed = judge.judge(SafetensorsReader(other), "digest of the other")
    for text in texts:
        assert same[text].kl == pytest.approx(0, abs=1e-6)
        assert same[text].perplexity == pytest.approx(baseline[text], rel=1e-4)
        assert changed[text].kl > 0.1
    assert same["in_domain"].perplexity != same["out_of_domain"].perplexity
    row = Row("quantflow", "awq", other, Taken(1.0, 2.0, 3), changed)
    assert compare([row], baseline)["awq"]["kl"] == changed["out_of_domain"].kl
    assert "quantflow awq" in table([row], baseline)


def test_equal_weights_are_judged_once(tmp_path: Path, texts: dict[str, Windows]) -> None:
    lossless = random_model(tmp_path / "lossless", tiny_config(num_hidden_layers=1), dtype=torch.float16)
    judge = Judge(lossless, texts, tmp_path / "judging")
    first = judge.judge(SafetensorsReader(lossless), "digest")
    assert judge.judge(SafetensorsReader(lossless), "digest") is first

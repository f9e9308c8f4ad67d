"""Tensors that are the baseline's, bit by bit."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from quantflow.gate.lossless import find_level
from quantflow.gate.tensors import same_tensors
from quantflow.gate.verdict import Verdict
from tests.gate.test_lossless import COPY, LOSSY, NOISE

Tensors = dict[str, NDArray[np.float32]]


def model(folder: Path, shards: list[Tensors], **config: object) -> Path:
    folder.mkdir()
    for number, tensors in enumerate(shards):
        save_file(tensors, folder / f"model-{number}.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4, "rope_theta": 1e4} | config))
    return folder


def weights(change: float = 0.0) -> Tensors:
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    table[2, 3] += change
    return {"embed": table, "norm": np.ones(4, dtype=np.float32)}


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return model(tmp_path / "baseline", [weights()], transformers_version="5.17.0")


def test_the_same_tensors_are_the_same_however_they_are_put_into_files(
    baseline: Path, tmp_path: Path
) -> None:
    whole = weights()
    parts = [{"norm": whole["norm"]}, {"embed": whole["embed"]}]
    assert same_tensors(baseline, model(tmp_path / "sharded", parts, transformers_version="5.18.0"))


@pytest.mark.parametrize(
    ("tensors", "config"),
    [
        ([weights(change=1e-6)], {}),
        ([weights()], {"rope_theta": 1e6}),
        ([{"embed": weights()["embed"]}], {}),
        ([{**weights(), "norm": np.ones((1, 4), dtype=np.float32)}], {}),
        ([weights(), {"norm": np.ones(4, dtype=np.float32)}], {}),
        ([], {}),
    ],
    ids=["a bit", "a setting", "one less", "another shape", "one twice", "none"],
)
def test_what_differs_is_seen(
    baseline: Path, tmp_path: Path, tensors: list[Tensors], config: dict[str, object]
) -> None:
    assert not same_tensors(baseline, model(tmp_path / "other", tensors, **config))


def test_a_damaged_file_is_not_the_same(baseline: Path, tmp_path: Path) -> None:
    other = model(tmp_path / "other", [weights()])
    file = other / "model-0.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    assert not same_tensors(baseline, other)
    file.write_bytes(b"nothing")
    assert not same_tensors(baseline, other)


def test_equal_tensors_are_lossless_where_logits_cannot_tell() -> None:
    found = find_level(Verdict.PASS, *COPY, None, tensors_same=True)  # the runtime's noise is not known
    assert found.level == "L1" and "bit by bit" in found.sentence
    assert find_level(Verdict.PASS, *COPY, None).level == "L3"


def test_logits_that_differ_are_believed_before_tensors_that_do_not() -> None:
    found = find_level(Verdict.PASS, *LOSSY, NOISE, tensors_same=True)
    assert found.level == "L3"
    assert "something around them differs" in found.checks[0].reason


def test_logits_that_differ_on_the_documents_measured_are_believed_where_measuring_stopped_early() -> None:
    found = find_level(Verdict.PASS, *LOSSY, NOISE, all_measured=False, tensors_same=True)
    assert found.level == "L3"
    assert find_level(Verdict.PASS, *COPY, NOISE, all_measured=False, tensors_same=True).level == "L1"


def test_equal_tensors_do_not_save_what_misses_its_criteria() -> None:
    assert find_level(Verdict.FAIL, *COPY, NOISE, tensors_same=True).level is None

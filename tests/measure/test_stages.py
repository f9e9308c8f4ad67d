"""Baseline and artifact are measured as plain transformers would, position by position."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoModelForCausalLM

from quantflow.data.windows import Windows
from quantflow.errors import ArtifactError, DataError, SourceError, StoreError
from quantflow.formats.read import open_artifact
from quantflow.measure.artifact import run as run_artifact
from quantflow.measure.baseline import run as run_baseline
from quantflow.measure.hidden import HIDDEN_FILE
from quantflow.measure.measurement import load_measurement, load_samples
from quantflow.measure.params import BaselineParams, MeasureParams
from quantflow.measure.scoring import score_against
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from tests.formats.assembling import assembled, rounded_blocks
from tests.measure.inputs import data_output, evaluation_windows, source_output
from tests.reporting import RecordingReporter

WINDOWS = evaluation_windows()
BATCH_TOKENS = 128
TOLERANCE = 1e-5


def measured_baseline(root: Path, model: Path, batch_tokens: int = BATCH_TOKENS) -> dict[str, Path]:
    """Run the baseline stage; the inputs that measuring an artifact would have."""
    root.mkdir(exist_ok=True)
    inputs = {
        "source": source_output(root / "source", model),
        "data": data_output(root / "data", WINDOWS),
        "baseline": root / "baseline",
    }
    inputs["baseline"].mkdir()
    params = BaselineParams(device="cpu", batch_tokens=batch_tokens)
    run_baseline(params, inputs, inputs["baseline"], RecordingReporter())
    return inputs


def measured_artifact(root: Path, inputs: Mapping[str, Path]) -> Path:
    output = root / "measure"
    output.mkdir()
    params = MeasureParams(device="cpu", batch_tokens=BATCH_TOKENS)
    run_artifact(params, inputs, output, RecordingReporter())
    return output


@pytest.fixture(scope="module")
def inputs(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Baseline of the trained tiny Llama, and an artifact of it; read only."""
    root = tmp_path_factory.mktemp("measure")
    artifact = assembled(root / "assembly", tiny_llama, rounded_blocks(tiny_llama), "bfloat16")
    return measured_baseline(root, tiny_llama) | {"assemble": artifact.folder.parent}


@pytest.fixture(scope="module")
def measured(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact's measurement; read only."""
    return measured_artifact(tmp_path_factory.mktemp("measured"), inputs)


def plain_model(folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> Any:
    loader: Any = AutoModelForCausalLM.from_pretrained
    model = loader(folder, dtype=torch.float32).eval()
    if weights is not None:
        model.load_state_dict(weights, strict=False)
    return model


@torch.no_grad()
def plain_logits(model: Any, windows: Windows = WINDOWS) -> torch.Tensor:
    """Logits at every scored position, from one full forward a window."""
    pieces = [model(torch.from_numpy(window).long().unsqueeze(0)).logits[0, :-1] for window in windows]
    return torch.cat(pieces)


def targets() -> torch.Tensor:
    return torch.cat([torch.from_numpy(window[1:]).long() for window in WINDOWS])


def plain_nll(logits: torch.Tensor) -> NDArray[np.float32]:
    return functional.cross_entropy(logits, targets(), reduction="none").numpy()


def dequantized_model(source: Path, artifact: Path) -> Any:
    reader = open_artifact(artifact)
    names = plain_model(source).state_dict().keys() - {"lm_head.weight"}
    return plain_model(source, {name: reader.read(name).float() for name in names})


def test_baseline_perplexity_is_that_of_plain_transformers(inputs: dict[str, Path], tiny_llama: Path) -> None:
    expected = plain_nll(plain_logits(plain_model(tiny_llama)))
    np.testing.assert_allclose(load_samples(inputs["baseline"]).nll, expected, atol=TOLERANCE)
    perplexity = load_measurement(inputs["baseline"]).perplexity
    assert perplexity.value == pytest.approx(float(np.exp(expected.mean())), rel=TOLERANCE)
    assert (perplexity.tokens, perplexity.documents) == (len(expected), 3)


def test_an_artifact_s_kl_and_perplexity_are_those_of_plain_transformers_with_its_weights(
    inputs: dict[str, Path], measured: Path, tiny_llama: Path
) -> None:
    p = plain_logits(plain_model(tiny_llama))
    q = plain_logits(dequantized_model(tiny_llama, inputs["assemble"] / "artifact"))
    kl = functional.kl_div(q.log_softmax(-1), p.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    samples, measurement = load_samples(measured), load_measurement(measured)
    assert samples.kl is not None
    assert samples.top1 is not None
    np.testing.assert_allclose(samples.kl, kl.numpy(), atol=TOLERANCE)
    np.testing.assert_allclose(samples.nll, plain_nll(q), atol=TOLERANCE)
    np.testing.assert_array_equal(samples.top1, (p.argmax(-1) == q.argmax(-1)).numpy())
    assert measurement.kl is not None
    assert measurement.kl.mean == pytest.approx(float(kl.mean()), abs=TOLERANCE)
    assert measurement.kl.mean > 100 * TOLERANCE  # there is something to measure
    assert measurement.slices.keys() == {"chat", "articles"}


def test_positions_of_baseline_and_artifact_are_paired(inputs: dict[str, Path], measured: Path) -> None:
    np.testing.assert_array_equal(load_samples(inputs["baseline"]).document, load_samples(measured).document)


def test_the_baseline_against_itself_diverges_by_nothing(inputs: dict[str, Path], tiny_llama: Path) -> None:
    hidden = load_file(inputs["baseline"] / HIDDEN_FILE)["hidden"]
    ours, theirs = (StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama)) for _ in range(2))
    samples = score_against(
        ours,
        lambda begin, end: hidden[begin:end],
        theirs,
        lambda begin, end: hidden[begin:end],
        targets().numpy(),
        load_samples(inputs["baseline"]).document,
        ArtifactError,
        RecordingReporter(),
    )
    assert samples.kl is not None
    assert samples.top1 is not None
    assert np.abs(samples.kl).max() <= 1e-6
    assert samples.top1.all()


def test_padding_and_company_in_a_batch_change_nothing(
    inputs: dict[str, Path], tiny_llama: Path, tmp_path: Path
) -> None:
    alone = measured_baseline(tmp_path / "alone", tiny_llama, batch_tokens=1)
    np.testing.assert_allclose(
        load_samples(alone["baseline"]).nll, load_samples(inputs["baseline"]).nll, atol=TOLERANCE
    )


def test_logits_are_made_in_chunks_without_changing_a_figure(
    inputs: dict[str, Path], measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.measure.scoring.LOGITS_BYTES", 400 * 4 * 10)  # ten positions
    again = load_samples(measured_artifact(tmp_path, inputs))
    before = load_samples(measured)
    assert again.kl is not None
    assert before.kl is not None
    np.testing.assert_allclose(again.kl, before.kl, atol=TOLERANCE)
    np.testing.assert_allclose(again.nll, before.nll, atol=TOLERANCE)


def test_equal_inputs_give_equal_bytes(
    inputs: dict[str, Path], measured: Path, tmp_path: Path, tiny_llama: Path
) -> None:
    again = measured_baseline(tmp_path / "again", tiny_llama)["baseline"]
    assert contents(again) == contents(inputs["baseline"])
    assert contents(measured_artifact(tmp_path, inputs)) == contents(measured)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_measurement_says_how_it_was_run(inputs: dict[str, Path]) -> None:
    runtime = load_measurement(inputs["baseline"]).runtime
    assert (runtime.name, runtime.version, runtime.device) == ("torch", torch.__version__, "cpu")
    assert runtime.dtype == "float32"
    assert runtime.options["attention"] == "sdpa"


def spoiled(folder: Path, copy: Path) -> Path:
    """A copy whose final norm holds something that is no number."""
    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"][3] = torch.nan
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    return copy


def test_a_baseline_whose_logits_are_no_numbers_is_an_error_and_not_a_figure(
    tiny_llama: Path, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match="not finite"):
        measured_baseline(tmp_path, spoiled(tiny_llama, tmp_path / "model"))
    assert not (tmp_path / "baseline" / "measurement.json").exists()


def test_an_artifact_whose_logits_are_no_numbers_is_an_error_and_not_a_figure(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    spoiled(inputs["assemble"] / "artifact", tmp_path / "artifact")
    with pytest.raises(ArtifactError, match="not finite"):
        measured_artifact(tmp_path, inputs | {"assemble": tmp_path})
    assert not (tmp_path / "measure" / "measurement.json").exists()


def test_an_artifact_of_another_vocabulary_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(inputs["assemble"] / "artifact", tmp_path / "artifact"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    with pytest.raises(ArtifactError, match="a vocabulary of 300, the baseline of 400"):
        measured_artifact(tmp_path, inputs | {"assemble": tmp_path})


def test_hidden_states_that_do_not_fit_the_data_are_a_damaged_store(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    baseline = Path(shutil.copytree(inputs["baseline"], tmp_path / "baseline"))
    hidden = load_file(baseline / HIDDEN_FILE)["hidden"]
    save_file({"hidden": hidden[:-1].clone()}, baseline / HIDDEN_FILE)
    with pytest.raises(StoreError, match="hidden states have the shape"):
        measured_artifact(tmp_path, inputs | {"baseline": baseline})


def test_nothing_to_score_is_an_error_of_the_data(tiny_llama: Path, tmp_path: Path) -> None:
    inputs = {
        "source": source_output(tmp_path / "source", tiny_llama),
        "data": data_output(tmp_path / "data", evaluation_windows([1, 1], [0, 1])),
    }
    params = BaselineParams(device="cpu", batch_tokens=64)
    with pytest.raises(DataError, match="no token to score"):
        run_baseline(params, inputs, tmp_path, RecordingReporter())

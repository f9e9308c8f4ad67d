"""What transformers, GPTQModel and ONNX Runtime GenAI make of our artifacts, beside what we make of them.

The first run makes the programs' environments, which takes minutes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quantflow.formats.read import open_artifact
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from tests.interop.artifacts import NAMES, answers

pytestmark = pytest.mark.interop

# A peer rounds in other places than we do when both compute in 16 bits.
ROUNDING_FACTOR = 2.0
# In float32 both sum the same numbers in another order.
FLOAT32_NATS = 1e-3
REFUSED_BY_GENAI = {
    "tiny-awq-mixed": "'NoneType' object has no attribute 'shape'",
    "tiny-gptq-mixed": "'NoneType' object has no attribute 'shape'",
    "smollm2-awq-mixed": "'NoneType' object has no attribute 'shape'",
    "smollm2-gptq-mixed": "'NoneType' object has no attribute 'shape'",
    "tiny-gptq-3": "3-bit quantization is not currently supported",
}
"""What onnxruntime-genai 0.18's builder does not take, with its words: a test fails when it begins to."""


REFUSED_BY_GPTQMODEL = dict.fromkeys(
    ("tiny-gptq-asym", "tiny-gptq-8-asym"),
    "sym=False model with format=FORMAT.GPTQ is only supported if produced by gptqmodel",
)
"""What GPTQModel 7.6 does not take, with its words; AutoGPTQ and ONNX Runtime GenAI read these as we do."""


@pytest.fixture(scope="module")
def said_by_gptqmodel(
    artifacts: Mapping[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    jobs = {
        name: artifact | {"loader": "transformers" if "awq" in name else "gptqmodel"}
        for name, artifact in artifacts.items()
    }
    return answers("in_gptqmodel.py", "interop-gptqmodel", jobs, tmp_path_factory.mktemp("gptqmodel"))


@pytest.fixture(scope="module")
def said_by_genai(artifacts: Mapping[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("genai")
    return answers("in_genai.py", "interop-onnxruntime-genai", dict(artifacts), folder)


def logits(folder: str, ids: list[int], dtype: str = "float32", *, lossless: bool = False) -> Tensor:
    """Our torch runtime's logits of one text, float32 `[tokens, vocabulary]`."""
    path = Path(folder)
    reader = SafetensorsReader(path) if lossless else open_artifact(path)
    decoder = StreamedDecoder(path, reader, dtype=getattr(torch, dtype))
    return decoder.plain_logits(torch.tensor([ids]))[0].float()


def targets(logits: Tensor, ids: list[int]) -> Tensor:
    """Log-probabilities of the tokens that came, `[tokens - 1]`, nats."""
    return logits[: len(ids) - 1].log_softmax(-1).gather(-1, torch.tensor(ids)[1:, None]).squeeze(-1)


def require_agreement(artifact: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """A peer is as near to us as its data type allows, and nearer to us than the lossless model is."""
    assert "error" not in said, said["error"]
    assert len(said["greedy"]) == len(artifact["ids"])
    rows = zip(artifact["ids"], said["targets"], said["greedy"], strict=True)
    theirs, noise, loss = [], [], []
    for ids, their_targets, greedy in rows:
        whole = ids + greedy
        exact = logits(artifact["folder"], whole)
        rounded = exact if said["dtype"] == "float32" else logits(artifact["folder"], whole, said["dtype"])
        lossless = logits(artifact["source"], ids, lossless=True)
        theirs.append((torch.tensor(their_targets) - targets(exact, ids)).abs())
        noise.append((targets(rounded, ids) - targets(exact, ids)).abs())
        loss.append((targets(lossless, ids) - targets(exact, ids)).abs())
        choices = exact[len(ids) - 1 : -1]
        behind = choices.amax(-1) - choices.gather(-1, torch.tensor(greedy)[:, None]).squeeze(-1)
        # Two logits can each be off by as much as that.
        assert (
            float(behind.max()) <= 2 * ROUNDING_FACTOR * float((rounded - exact).abs().max()) + FLOAT32_NATS
        )
    limit = ROUNDING_FACTOR * float(torch.cat(noise).mean()) + FLOAT32_NATS
    assert float(torch.cat(theirs).mean()) <= limit
    assert float(torch.cat(loss).mean()) > 3 * limit or "-8" in artifact["folder"]


def artifact_of(artifacts: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in artifacts:
        pytest.skip("the quickstart's wheel cannot be had")
    return artifacts[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED_BY_GPTQMODEL])
def test_transformers_reads_awq_and_gptqmodel_reads_gptq_as_we_do(
    name: str, artifacts: Mapping[str, dict[str, Any]], said_by_gptqmodel: Any
) -> None:
    require_agreement(artifact_of(artifacts, name), said_by_gptqmodel[name])


@pytest.mark.parametrize("name", REFUSED_BY_GPTQMODEL)
def test_what_gptqmodel_does_not_take_is_known(
    name: str, artifacts: Mapping[str, dict[str, Any]], said_by_gptqmodel: Any
) -> None:
    artifact_of(artifacts, name)
    assert REFUSED_BY_GPTQMODEL[name] in said_by_gptqmodel[name].get("error", "it takes it now")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED_BY_GENAI])
def test_genai_builds_and_runs_what_we_write_as_we_do(
    name: str, artifacts: Mapping[str, dict[str, Any]], said_by_genai: Any
) -> None:
    require_agreement(artifact_of(artifacts, name), said_by_genai[name])


@pytest.mark.parametrize("name", REFUSED_BY_GENAI)
def test_what_genai_does_not_take_is_known(
    name: str, artifacts: Mapping[str, dict[str, Any]], said_by_genai: Any
) -> None:
    artifact_of(artifacts, name)
    assert REFUSED_BY_GENAI[name] in said_by_genai[name].get("error", "it takes it now")

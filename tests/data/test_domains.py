"""Public text of five trades, as it is published: dialogues, contracts, abstracts, reports, Chinese chats.

Skipped where the folder with them is not there: `../shared/data/domains` beside the repository, or in
QUANTFLOW_SHARED.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from quantflow.data.documents import SPLITS, load_accounting, load_documents
from quantflow.data.params import FieldParams, ReadParams
from quantflow.data.stage import run
from quantflow.data.windows import load_windows
from quantflow.source.checkpoint import Checkpoint, save_checkpoint
from tests.data.reading import make_params
from tests.data.recording import Recorder
from tests.tiny_models import VOCABULARY, tiny_tokenizer

SHARED = Path(os.environ.get("QUANTFLOW_SHARED", Path(__file__).parents[3] / "shared"))
DOMAINS = SHARED / "data" / "domains"

pytestmark = pytest.mark.skipif(not DOMAINS.is_dir(), reason="the shared domain data is not here")

# What a recipe would say of each set, and how many documents its publishers put in.
SETS: dict[str, tuple[str, ReadParams, int]] = {
    "service-dialogue": (
        "*.json",
        ReadParams(
            fields=FieldParams(
                text=(),
                messages="turns",
                role="speaker",
                content="utterance",
                slice="services",
                id="dialogue_id",
            ),
            roles={"USER": "user", "SYSTEM": "assistant"},
        ),
        384,
    ),
    "legal": ("*.txt", ReadParams(), 36),
    "medical": (
        "*.json",
        ReadParams(fields=FieldParams(text=("QUESTION", "CONTEXTS", "LONG_ANSWER"), messages="")),
        1000,
    ),
    "finance": (
        "*.json",
        ReadParams(fields=FieldParams(text=("paragraphs[].text",), messages="", id="table.uid")),
        278,
    ),
    "chinese-dialogue": (
        "*.zip",
        ReadParams(fields=FieldParams(text=()), roles={"usr": "user", "sys": "assistant"}),
        500,
    ),
}


@pytest.fixture(scope="session")
def bytes_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a source stage whose tokenizer can write any text."""
    output = tmp_path_factory.mktemp("bytes")
    folder = output / "checkpoint"
    tiny_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": VOCABULARY}))
    nothing: dict[str, Any] = {"identity": "0" * 64, "kind": "folder", "uri": "tiny", "dtype": "float32"}
    nothing |= {"model_type": "llama", "parameters": 0, "bytes": 0, "files": {}}
    save_checkpoint(output, Checkpoint(folder=folder, **nothing))
    return output


@pytest.mark.parametrize("name", SETS)
def test_a_published_set_goes_through_with_every_document_and_token_accounted_for(
    tmp_path: Path, bytes_source: Path, name: str
) -> None:
    pattern, reading, count = SETS[name]
    files = sorted(path for path in (DOMAINS / name).glob(pattern) if path.name != "LICENSE.txt")
    given = make_params(
        *files,
        reading=reading,
        calibration_windows=32,
        calibration_length=128,
        evaluation_windows=64,
        evaluation_length=128,
    )
    recorder = Recorder()
    run(given, {"source": bytes_source}, tmp_path, recorder)
    accounting, documents = load_accounting(tmp_path), load_documents(tmp_path)
    assert accounting.reading.documents == count
    assert accounting.reading.documents == (
        accounting.total.documents_read + accounting.reading.documents_undrawn
    )
    assert len(documents) == accounting.total.documents_read - accounting.total.documents_duplicate
    assert accounting.splits["calibration"].windows == 32
    assert {document.split for document in documents} == set(SPLITS)
    total = accounting.total
    fates = ("duplicate", "used", "incomplete", "undrawn", "too_short")
    assert total.tokens_read == sum(getattr(total, f"tokens_{fate}") for fate in fates)
    for split in SPLITS:
        assert len(load_windows(tmp_path / f"{split}.safetensors")) == accounting.splits[split].windows > 0
    unexpected = {"documents-skipped", "encoding-detected", "chat-template-leaves-out-text"}
    assert not unexpected & set(recorder.events)

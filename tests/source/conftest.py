"""A tiny model and tokenizer that sources of every kind are made from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from quantflow.source import hub_download
from tests.source.hub_server import Hub, serving
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer


@pytest.fixture(scope="session")
def float16_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with tied embeddings and random float16 weights, and its tokenizer; read only."""
    folder = tmp_path_factory.mktemp("source") / "tiny-float16"
    random_model(folder, tiny_config(tie_word_embeddings=True), dtype=torch.float16)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(float16_folder: Path) -> Any:
    """That model, in float32."""
    return AutoModelForCausalLM.from_pretrained(float16_folder, dtype=torch.float32)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Its tokenizer."""
    return tiny_tokenizer()


@pytest.fixture
def files(float16_folder: Path) -> dict[str, bytes]:
    """What the repository holds."""
    files = {path.name: path.read_bytes() for path in sorted(float16_folder.iterdir())}
    return files | {"README.md": b"A note.", "pytorch_model.bin": b"pickle"}


@pytest.fixture
def hub(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process asks, with an empty cache at `cache`."""
    with serving(Hub(files)) as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(hub_download, "LONGEST_PAUSE", 0.01)
        yield server

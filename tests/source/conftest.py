"""A tiny model and tokenizer that sources of every kind are made from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

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

"""Fixtures for all parts."""

from pathlib import Path

import pytest

from tests.reporting import RecordingReporter


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a briefly trained Llama in bfloat16 with its tokenizer; read only, shared by all tests."""
    from tests.tiny_models import trained_llama

    return trained_llama(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def reporter() -> RecordingReporter:
    """Remembers events and progress."""
    return RecordingReporter()

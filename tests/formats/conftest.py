"""An artifact that tests of reading and of writing look at."""

from pathlib import Path

import pytest

from tests.formats.assembling import Assembled, assembled, rounded_blocks


@pytest.fixture(scope="session")
def artifact(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Assembled:
    """Of the trained tiny Llama; read only."""
    return assembled(tmp_path_factory.mktemp("artifact"), tiny_llama, rounded_blocks(tiny_llama), "bfloat16")

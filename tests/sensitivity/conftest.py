"""What tests of assigning share: made once, read only."""

from pathlib import Path

import pytest

from tests.sensitivity.ground import stage_outputs


@pytest.fixture(scope="session")
def outputs(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Outputs of `source`, `data`, `codes` and `baseline`, of the tiny model rounded to three bits."""
    return stage_outputs(tmp_path_factory.mktemp("assigning"), tiny_llama)

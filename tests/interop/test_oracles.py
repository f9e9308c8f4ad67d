"""The weights we read out of artifacts are those that the tools which the layouts come from read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from quantflow.formats.codes_reader import CodesReader
from quantflow.formats.read import open_artifact
from tests.interop.artifacts import NAMES, answers

pytestmark = pytest.mark.interop

TINY = [name for name in NAMES if name.startswith("tiny-")]


@pytest.fixture(scope="module")
def read_by_oracles(artifacts: Mapping[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    jobs = {name: artifacts[name] for name in TINY}
    return answers("in_oracles.py", "interop-oracles", jobs, tmp_path_factory.mktemp("oracles"))


@pytest.mark.parametrize("name", TINY)
def test_autoawq_and_autogptq_read_the_weights_that_we_read(
    name: str, artifacts: Mapping[str, dict[str, Any]], read_by_oracles: Any
) -> None:
    ours, theirs = open_artifact(Path(artifacts[name]["folder"])), load_file(read_by_oracles[name]["weights"])
    assert isinstance(ours, CodesReader)
    assert theirs.keys() == ours.quantized
    for linear, weight in theirs.items():
        # AutoAWQ multiplies in float16, which rounds once; AutoGPTQ in float32.
        assert torch.equal(ours.read(f"{linear}.weight").to(weight.dtype), weight), linear

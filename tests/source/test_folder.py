"""What a folder's own files say is checked against each other and told where it is odd."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from quantflow.errors import QuantFlowError, RecipeError, SourceError
from quantflow.model.families import FAMILIES
from quantflow.model.weights import INDEX_FILE, SINGLE_FILE
from quantflow.source.folder import inspect_folder
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config, tiny_tokenizer

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def folder(float16_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(float16_folder, tmp_path / "model"))


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / SINGLE_FILE)
    change(weights)
    save_file(weights, folder / SINGLE_FILE, metadata={"format": "pt"})


def cut_into_shards(folder: Path) -> dict[str, Any]:
    """Two shards in the place of one file; returns the index."""
    weights = load_file(folder / SINGLE_FILE)
    names = sorted(weights)
    held = {SHARDS[0]: names[::2], SHARDS[1]: names[1::2]}
    for shard, inside in held.items():
        save_file({name: weights[name] for name in inside}, folder / shard, metadata={"format": "pt"})
    (folder / SINGLE_FILE).unlink()
    index = {"metadata": {}, "weight_map": {name: shard for shard, inside in held.items() for name in inside}}
    (folder / INDEX_FILE).write_text(json.dumps(index))
    return index


def test_a_sound_folder_says_nothing(folder: Path, reporter: RecordingReporter) -> None:
    whole = inspect_folder(folder, reporter)
    cut_into_shards(folder)
    assert inspect_folder(folder, reporter) == whole
    assert reporter.events == []


def test_weights_of_several_data_types_are_told_with_their_shares(
    folder: Path, reporter: RecordingReporter
) -> None:
    change_weights(folder, lambda w: w.update({n: t.float() for n, t in w.items() if t.dim() == 1}))
    assert inspect_folder(folder, reporter).dtype == "float16"
    (event,) = reporter.events
    assert event.code == "mixed-dtypes"
    assert event.detail["parameters"] == {"float16": 136_192, "float32": 448}


def test_another_data_type_than_config_says_is_told(folder: Path, reporter: RecordingReporter) -> None:
    change_config(folder, dtype="bfloat16")
    inspect_folder(folder, reporter)
    assert reporter.codes() == ["dtype-differs-from-config"]


def test_two_sets_of_weights_are_refused_because_programs_differ_in_which_they_take(
    folder: Path, reporter: RecordingReporter
) -> None:
    shutil.copy(folder / SINGLE_FILE, folder / "kept")
    cut_into_shards(folder)
    (folder / "kept").rename(folder / SINGLE_FILE)
    with pytest.raises(SourceError, match="two sets of weights"):
        inspect_folder(folder, reporter)


def test_shards_without_their_index_are_refused_rather_than_counted(
    folder: Path, reporter: RecordingReporter
) -> None:
    cut_into_shards(folder)
    (folder / INDEX_FILE).unlink()
    with pytest.raises(SourceError, match=rf"has 2 shards, such as {SHARDS[0]}, but no {INDEX_FILE}"):
        inspect_folder(folder, reporter)


def test_a_missing_shard_is_named(folder: Path, reporter: RecordingReporter) -> None:
    cut_into_shards(folder)
    (folder / SHARDS[1]).unlink()
    with pytest.raises(SourceError, match=SHARDS[1]):
        inspect_folder(folder, reporter)


def test_what_the_index_leaves_out_is_told(folder: Path, reporter: RecordingReporter) -> None:
    index = cut_into_shards(folder)
    save_file({"old": torch.ones(1)}, folder / "model-00009-of-00009.safetensors")
    del index["weight_map"]["model.norm.weight"]
    (folder / INDEX_FILE).write_text(json.dumps(index))
    inspect_folder(folder, reporter)
    assert [(event.code, list(event.detail.values())) for event in reporter.events] == [
        ("tensors-not-in-index", [["model.norm.weight"]]),
        ("shards-not-in-index", [["model-00009-of-00009.safetensors"]]),
    ]


def test_a_shard_under_an_unusual_name_would_escape_the_model_s_identity(
    folder: Path, reporter: RecordingReporter
) -> None:
    index = cut_into_shards(folder)
    (folder / SHARDS[0]).rename(folder / "first.safetensors")
    text = json.dumps(index).replace(SHARDS[0], "first.safetensors")
    (folder / INDEX_FILE).write_text(text)
    with pytest.raises(SourceError, match="no usual name of a shard"):
        inspect_folder(folder, reporter)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "nul\0", "x" * 300, "/etc/passwd"])
def test_an_index_that_names_what_is_no_file_beside_it_is_refused(
    name: str, folder: Path, reporter: RecordingReporter
) -> None:
    index = cut_into_shards(folder)
    index["weight_map"]["model.norm.weight"] = name
    (folder / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(SourceError):
        inspect_folder(folder, reporter)


def test_code_that_the_model_brings_is_never_run(folder: Path, reporter: RecordingReporter) -> None:
    (folder / "modeling_evil.py").write_text("raise SystemExit('run!')")
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})
    inspect_folder(folder, reporter)
    assert reporter.codes() == ["own-code-ignored"]
    change_config(folder, model_type="evil")
    with pytest.raises(RecipeError, match="come with code of their own") as caught:
        inspect_folder(folder, reporter)
    assert all(family in caught.value.hint for family in FAMILIES)


@pytest.fixture
def unlisted(tmp_path: Path) -> Path:
    folder = random_model(tmp_path / "falcon", tiny_config("falcon"))
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_an_architecture_that_is_not_listed_is_told(unlisted: Path, reporter: RecordingReporter) -> None:
    assert inspect_folder(unlisted, reporter).model_type == "falcon"
    (event,) = reporter.events
    assert event.code == "unlisted-architecture"
    assert event.detail["blocks"] == "transformer.h"
    assert "self_attention.query_key_value" in event.detail["units"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"num_hidden_layers": 10**9}, SourceError, "has 1000000000 blocks, the weights hold 3"),
        ({"model_type": "mixtral", "num_local_experts": 8}, RecipeError, "mixture of experts"),
        ({"model_type": "t5", "is_encoder_decoder": True}, RecipeError, "encoder-decoder"),
        ({"model_type": "bart"}, RecipeError, "encoder-decoder"),
        ({"model_type": "mixtral"}, RecipeError, "mixture of experts"),
        ({"model_type": "vit"}, RecipeError, "no causal language model of type 'vit'"),
        ({"model_type": "blip"}, RecipeError, "more than text"),
        ({"model_type": "nobodys"}, SourceError, "does not take this config.json"),
    ],
)
def test_what_cannot_be_looked_at_or_used_is_refused_before_anything_is_built(
    changes: dict[str, Any],
    error: type[QuantFlowError],
    complaint: str,
    unlisted: Path,
    reporter: RecordingReporter,
) -> None:
    change_config(unlisted, **changes)
    with pytest.raises(error, match=complaint):
        inspect_folder(unlisted, reporter)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_hidden_layers": 4}, "has 4 blocks, the weights hold 3"),
        ({"num_hidden_layers": 2_000_000_000}, "has 2000000000 blocks"),
        ({"num_hidden_layers": 0}, "has 0 blocks"),
        ({"hidden_size": 128}, r"embed_tokens.weight \[400, 128\], its file \[400, 64\]"),
        ({"vocab_size": 10**12}, "embed_tokens.weight"),
        ({"intermediate_size": 10**15}, "gate_proj.weight"),
        ({"head_dim": 10**13}, "q_proj.weight"),
        ({"num_attention_heads": -4}, "attention heads|does not take"),
        ({"num_attention_heads": 0}, "attention heads|does not take"),
        ({"hidden_size": "wide"}, "does not take this config"),
        ({"rope_parameters": 7}, "does not take this config"),
        ({"model_type": "mistral", "sliding_window": "x"}, "does not take this config"),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_anything_is_built(
    changes: dict[str, Any], complaint: str, folder: Path, reporter: RecordingReporter
) -> None:
    change_config(folder, **changes)
    with pytest.raises(SourceError, match=complaint) as caught:
        inspect_folder(folder, reporter)
    assert "config.json" in caught.value.where


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = ["num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "head_dim", "architectures"]
KEYS += ["intermediate_size", "model_type", "auto_map", "rope_parameters", "dtype", "quantization_config"]


@given(changes=st.dictionaries(st.sampled_from(KEYS), json_values, min_size=1, max_size=2))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_config_is_answered_in_our_words(
    changes: dict[str, Any], folder: Path, reporter: RecordingReporter, float16_folder: Path
) -> None:
    shutil.copy(float16_folder / "config.json", folder / "config.json")
    change_config(folder, **changes)
    try:
        facts = inspect_folder(folder, reporter)
    except QuantFlowError:
        return
    assert facts.parameters == 136_640

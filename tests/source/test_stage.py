"""Whatever the recipe names becomes one checkpoint with an identity, or an error that says what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from quantflow.errors import QuantFlowError, RecipeError, SourceError
from quantflow.pipeline.digest import file_digest
from quantflow.source.checkpoint import Checkpoint, identity_of, load_checkpoint
from quantflow.source.identify import external_files, source_params
from quantflow.source.stage import run
from quantflow.source.uri import SourceRef, parse
from tests.reporting import RecordingReporter
from tests.source.gguf_files import write_gguf


def parse_folder(folder: Path) -> SourceRef:
    return parse(str(folder), Path("/"))


def checkpoint_of(source: Path, output: Path, reporter: RecordingReporter) -> Checkpoint:
    output.mkdir()
    run(source_params(parse_folder(source), None, file_digest), {}, output, reporter)
    return load_checkpoint(output)


def test_a_local_folder_is_referred_to_and_not_copied(
    float16_folder: Path, model: Any, tmp_path: Path, reporter: RecordingReporter
) -> None:
    checkpoint = checkpoint_of(float16_folder, tmp_path / "out", reporter)
    assert checkpoint.folder == float16_folder
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["source.json"]
    assert (checkpoint.kind, checkpoint.dtype, checkpoint.model_type) == ("folder", "float16", "llama")
    assert checkpoint.parameters == model.num_parameters()
    assert checkpoint.bytes == sum(
        path.stat().st_size for path in external_files(parse_folder(float16_folder))
    )
    assert checkpoint.files["model.safetensors"] == file_digest(float16_folder / "model.safetensors")
    assert checkpoint.identity == identity_of(checkpoint.files)
    assert reporter.events == []


def test_a_folder_that_was_hashed_already_is_not_read_again(
    float16_folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    checkpoint_of(float16_folder, tmp_path / "out", reporter)
    assert "Hashing the checkpoint" not in reporter.progress


def test_a_gguf_file_becomes_a_checkpoint_in_the_output(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    checkpoint = checkpoint_of(path, tmp_path / "out", reporter)
    assert checkpoint.folder == tmp_path / "out" / "checkpoint"
    assert (checkpoint.kind, checkpoint.dtype) == ("gguf", "float16")
    assert checkpoint.parameters == model.num_parameters()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(checkpoint.files)
    assert checkpoint.identity == identity_of(checkpoint.files)


def test_a_finished_output_can_be_moved(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    before = checkpoint_of(path, tmp_path / "out", reporter)
    (tmp_path / "out").rename(tmp_path / "store")
    after = load_checkpoint(tmp_path / "store")
    assert after.folder == tmp_path / "store" / "checkpoint"
    assert after.identity == before.identity


def test_other_files_of_a_folder_are_no_part_of_its_identity(float16_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(float16_folder, tmp_path / "model"))
    before = source_params(parse_folder(folder), None, file_digest).identity
    (folder / "README.md").write_text("A note.")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    assert source_params(parse_folder(folder), None, file_digest).identity == before
    (folder / "tokenizer.json").write_text("{}")
    assert source_params(parse_folder(folder), None, file_digest).identity != before


def test_a_revision_is_for_the_hub_only(float16_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\.revision is for models of the hub only"):
        source_params(parse_folder(float16_folder), "main", file_digest)


def test_a_folder_that_went_away_is_named(
    float16_folder: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    folder = Path(shutil.copytree(float16_folder, tmp_path / "model"))
    checkpoint_of(folder, tmp_path / "out", reporter)
    shutil.rmtree(folder)
    with pytest.raises(SourceError, match="no longer there") as caught:
        load_checkpoint(tmp_path / "out")
    assert caught.value.where == str(folder)


def change_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def remove(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def write(name: str, content: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(content)

    return change


def pickle_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def lose_a_shard(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    shards = {f"model-0000{n}-of-00002.safetensors": names[n - 1 :: 2] for n in (1, 2)}
    index = {"weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file({name: weights[name] for name in names[::2]}, folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors").unlink()


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("spoil", "error", "complaint"),
    [
        (
            change_config(quantization_config={"quant_method": "gptq"}),
            RecipeError,
            "quantized already (gptq)",
        ),
        (change_config(model_type="mamba"), RecipeError, "'mamba' are not supported"),
        (
            change_config(architectures=["LlamaForSequenceClassification"]),
            RecipeError,
            "no causal language model but LlamaForSequenceClassification",
        ),
        (remove("config.json"), SourceError, "no config.json"),
        (write("config.json", "{"), SourceError, "config.json cannot be read"),
        (write("config.json", "[]"), SourceError, "not a JSON object"),
        (write("config.json", "{}"), SourceError, "no model_type"),
        (remove("tokenizer.json"), SourceError, "no tokenizer"),
        (remove("model.safetensors"), SourceError, "neither model.safetensors nor"),
        (pickle_weights, SourceError, "pickled (pytorch_model.bin)"),
        (lose_a_shard, SourceError, "model-00002-of-00002.safetensors"),
        (cut_weights, SourceError, "model.safetensors"),
    ],
)
def test_a_folder_that_cannot_be_a_lossless_baseline_is_refused_in_plain_words(
    spoil: Callable[[Path], None],
    error: type[QuantFlowError],
    complaint: str,
    float16_folder: Path,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    folder = Path(shutil.copytree(float16_folder, tmp_path / "model"))
    spoil(folder)
    with pytest.raises(error) as caught:
        checkpoint_of(folder, tmp_path / "out", reporter)
    assert complaint in str(caught.value)
    assert not (tmp_path / "out" / "source.json").exists()

"""A GGUF file becomes a plain checkpoint that says what it is and where it differs."""

import copy
import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from quantflow.errors import RecipeError, SourceError
from quantflow.source.gguf import convert_gguf
from tests.reporting import RecordingReporter
from tests.source.gguf_files import write_gguf

TEXT = "Hello, this is about order NL-100025: the filters don't fit.\n  Thank you!"


def logits(folder: Path) -> torch.Tensor:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return logits_of(model)


@torch.no_grad()
def logits_of(model: Any) -> torch.Tensor:
    result: torch.Tensor = model(torch.arange(40).reshape(2, 20)).logits
    return result


def stored(folder: Path) -> dict[str, torch.Tensor]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize(
    ("storage", "dtype"),
    [(Type.F32, torch.float32), (Type.F16, torch.float16), (Type.BF16, torch.bfloat16)],
)
def test_a_file_of_plain_numbers_keeps_its_type_and_gives_the_original_logits(
    storage: Type,
    dtype: torch.dtype,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    original = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.copy_(parameter.to(dtype))  # what a file of this type is made from
    path = write_gguf(tmp_path / "tiny.gguf", original, tokenizer, matrices=storage)
    convert_gguf(path, tmp_path / "out", reporter)
    assert {tensor.dtype for tensor in stored(tmp_path / "out").values()} == {dtype}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == str(dtype).split(".")[1]
    assert torch.equal(logits(tmp_path / "out"), logits_of(original))
    assert not {"gguf-dequantized", "gguf-rounded"} & set(reporter.codes())


@pytest.mark.parametrize("storage", [Type.Q8_0, Type.Q4_1])
def test_a_quantized_file_is_dequantized_to_float16_and_says_so(
    storage: Type,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, matrices=storage)
    convert_gguf(path, tmp_path / "out", reporter)
    loader: Any = AutoModelForCausalLM.from_pretrained
    direct = loader(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32).state_dict()
    for name, tensor in stored(tmp_path / "out").items():
        assert torch.equal(tensor, direct[name].half()), name
    event = next(event for event in reporter.events if event.code == "gguf-dequantized")
    assert "not the model that it was made from" in event.message
    layers = model.config.num_hidden_layers
    assert event.detail == {"types": {"F32": 2 * layers + 1, storage.name: 7 * layers + 1}}


def test_tied_embeddings_stay_tied(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    convert_gguf(path, tmp_path / "out", reporter)
    assert "lm_head.weight" not in stored(tmp_path / "out")
    reloaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert reloaded.lm_head.weight is reloaded.model.embed_tokens.weight


def test_the_config_forgets_that_it_was_gguf(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, matrices=Type.Q8_0)
    convert_gguf(path, tmp_path / "out", reporter)
    text = (tmp_path / "out" / "config.json").read_text()
    assert "gguf" not in text
    assert "quant" not in text
    assert str(tmp_path) not in text + (tmp_path / "out" / "tokenizer_config.json").read_text()


def test_tokens_and_chat_template_are_those_of_the_original_tokenizer(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    convert_gguf(path, tmp_path / "out", reporter)
    reloaded: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert reloaded(TEXT).input_ids == tokenizer(TEXT).input_ids
    assert reloaded.decode(reloaded(TEXT).input_ids) == TEXT
    messages = [{"role": "user", "content": TEXT}]
    rendered = reloaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == f"<|im_start|>user\n{TEXT}<|im_end|>\n<|im_start|>assistant\n"


def test_the_tokenizer_s_special_tokens_are_mended_by_the_file_s_metadata(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer)
    loader: Any = AutoTokenizer.from_pretrained
    broken = loader(tmp_path, gguf_file="tiny.gguf")
    assert broken.eos_token == "<|im_start|>"  # what makes the repair necessary
    convert_gguf(path, tmp_path / "out", reporter)
    reloaded = loader(tmp_path / "out")
    assert (reloaded.eos_token, reloaded.pad_token) == ("<|im_end|>", "<|im_end|>")
    assert reloaded.clean_up_tokenization_spaces is False
    assert {"gguf-tokenizer-eos", "gguf-tokenizer-padding", "gguf-tokenizer-clean-up"} <= set(
        reporter.codes()
    )


@pytest.mark.parametrize("adds_bos", [True, False])
def test_the_beginning_of_text_token_is_added_exactly_if_the_file_says_so(
    adds_bos: bool,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    extra = {"tokenizer.ggml.add_bos_token": adds_bos}
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, extra=extra)
    convert_gguf(path, tmp_path / "out", reporter)
    reloaded: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (reloaded(TEXT).input_ids[0] == reloaded.bos_token_id) is adds_bos
    assert ("gguf-tokenizer-adds-bos" in reporter.codes()) is adds_bos


@pytest.mark.parametrize(("rule", "adds_bos"), [("llama-bpe", True), ("smollm", False)])
def test_where_the_file_does_not_say_the_beginning_of_text_token_is_added_as_llama_cpp_does(
    rule: str,
    adds_bos: bool,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, split_rule=rule)
    convert_gguf(path, tmp_path / "out", reporter)
    reloaded: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (reloaded(TEXT).input_ids[0] == reloaded.bos_token_id) is adds_bos
    assert ("gguf-tokenizer-adds-bos" in reporter.codes()) is adds_bos


@pytest.mark.parametrize("role", ["bos", "eos", "unknown", "padding"])
def test_a_special_token_that_the_vocabulary_does_not_have_is_damage(
    role: str,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    extra = {f"tokenizer.ggml.{role}_token_id": 400}
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, extra=extra)
    with pytest.raises(SourceError, match=rf"says 400 for {role}_token_id, its tensors hold 400 tokens"):
        convert_gguf(path, tmp_path / "out", reporter)


def test_equal_files_give_equal_bytes(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    outputs = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        path = write_gguf(tmp_path / place / "tiny.gguf", model, tokenizer, matrices=Type.Q8_0)
        convert_gguf(path, tmp_path / place / "out", reporter)
        outputs.append({p.name: p.read_bytes() for p in (tmp_path / place / "out").iterdir()})
    assert outputs[0] == outputs[1]


def test_float32_norms_that_float16_does_not_have_are_rounded_with_an_event(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    norm = torch.full((model.config.hidden_size,), 1 + 2.0**-20)
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, overrides={"output_norm.weight": norm})
    convert_gguf(path, tmp_path / "out", reporter)
    event = next(event for event in reporter.events if event.code == "gguf-rounded")
    assert event.detail == {"tensors": ["output_norm.weight"]}


def test_a_value_beyond_float16_is_an_error_that_names_its_tensor(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    embedding = model.model.embed_tokens.weight.detach().clone()
    embedding[7, 7] = 70_000.0
    path = write_gguf(
        tmp_path / "tiny.gguf",
        model,
        tokenizer,
        matrices=Type.Q8_0,
        overrides={"token_embd.weight": embedding},
    )
    with pytest.raises(SourceError, match=r"model\.embed_tokens\.weight.*beyond 65,504"):
        convert_gguf(path, tmp_path / "out", reporter)


def test_a_file_that_lacks_a_tensor_is_refused_rather_than_filled_with_noise(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, overrides={"blk.1.ffn_up.weight": None})
    with pytest.raises(SourceError, match=r"1 missing keys, such as model\.layers\.1\.mlp\.up_proj\.weight"):
        convert_gguf(path, tmp_path / "out", reporter)


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, "scales its rotary"),
        ({"split.count": 3}, "one part of a GGUF model"),
        ({"llama.logit_scale": 0.125}, r"computes with logit_scale 0\.125"),
        ({"llama.attention.scale": 1.0}, r"computes with attention\.scale 1\.0,"),
    ],
)
def test_what_the_conversion_would_lose_is_refused(
    extra: dict[str, Any],
    complaint: str,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    reporter: RecordingReporter,
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, extra=extra)
    with pytest.raises(SourceError, match=complaint) as caught:
        convert_gguf(path, tmp_path / "out", reporter)
    assert caught.value.hint


def test_a_tensor_that_the_conversion_passes_by_is_refused(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    biases: dict[str, torch.Tensor | None] = {f"blk.0.attn_{part}.bias": torch.ones(64) for part in "qo"}
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, overrides=biases)
    with pytest.raises(SourceError, match=r"2 tensors of the file are lost .* such as blk\.0\.attn_o\.bias"):
        convert_gguf(path, tmp_path / "out", reporter)


def test_factors_that_change_nothing_are_no_reason_to_refuse(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    extra = {"llama.logit_scale": 1.0, "llama.attention.scale": 0.0}
    convert_gguf(write_gguf(tmp_path / "a.gguf", model, tokenizer, extra=extra), tmp_path / "out", reporter)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_split_rule_that_the_conversion_does_not_know_is_told(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, split_rule="llama-bpe")
    convert_gguf(path, tmp_path / "out", reporter)
    event = next(event for event in reporter.events if event.code == "gguf-tokenizer-splits-otherwise")
    assert event.detail == {"rule": "llama-bpe"}


@pytest.mark.parametrize(("architecture", "error"), [("unheard-of", SourceError), ("gpt2", RecipeError)])
def test_an_architecture_that_is_not_supported_is_named(
    architecture: str, error: type[Exception], tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_vocab_size(10)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(error, match=architecture):
        convert_gguf(path, tmp_path / "out", reporter)


def test_the_libraries_are_left_as_they_were_found(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, reporter: RecordingReporter
) -> None:
    before = (gguf.GGUFReader, gguf.get_tensor_name_map)
    convert_gguf(write_gguf(tmp_path / "tiny.gguf", model, tokenizer), tmp_path / "out", reporter)
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before

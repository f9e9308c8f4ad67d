"""A streamed decoder computes what transformers computes, with one block in memory."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from quantflow.errors import RecipeError, SourceError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import FAMILIES
from quantflow.model.forward import final_hidden
from quantflow.model.weights import SafetensorsReader
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY, random_model, tiny_config

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama-tied": {"kind": "llama", "tie_word_embeddings": True},
    "llama-untied": {"kind": "llama", "tie_word_embeddings": False},
    "llama-no-gqa-biased": {
        "kind": "llama",
        "num_key_value_heads": 4,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama-scaled-rope": {"kind": "llama", "rope_parameters": LLAMA3_ROPE},
    "mistral": {"kind": "mistral"},
    "mistral-sliding": {"kind": "mistral", "sliding_window": 5},
    "qwen2": {"kind": "qwen2"},
    "qwen2-some-blocks-sliding": {
        "kind": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
    },
}


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp(request.param)
    yield random_model(folder, tiny_config(**VARIANTS[request.param]))


def reference_model(folder: Path) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def token_batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(VOCABULARY, shape, generator=generator) for shape in ((2, 17), (3, 9), (1, 40))]


def parameters(decoder: StreamedDecoder) -> dict[str, torch.nn.Parameter]:
    return dict(decoder._model.named_parameters(remove_duplicate=False))


def streamed_logits(decoder: StreamedDecoder, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    hidden = final_hidden(decoder, batches, RecordingReporter(), "forward")
    with decoder.loaded_head():
        return [decoder.logits(states) for states in hidden]


@torch.no_grad()
def test_streamed_logits_are_those_of_transformers(variant: Path) -> None:
    reference = reference_model(variant)
    decoder = StreamedDecoder(variant, SafetensorsReader(variant))
    for ids, logits in zip(token_batches(), streamed_logits(decoder, token_batches()), strict=True):
        expected = reference(ids).logits
        assert expected.std() > 0.1
        assert torch.allclose(logits, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_right_padding_leaves_what_comes_before_it_alone(variant: Path) -> None:
    decoder = StreamedDecoder(variant, SafetensorsReader(variant))
    ids = token_batches()[0]
    padded = torch.cat([ids, torch.zeros(2, 6, dtype=ids.dtype)], dim=1)
    plain, with_padding = streamed_logits(decoder, [ids, padded])
    assert torch.allclose(with_padding[:, : ids.shape[1]], plain, rtol=0, atol=1e-5)


def test_buffers_are_real_and_equal_to_those_of_transformers(variant: Path) -> None:
    decoder = StreamedDecoder(variant, SafetensorsReader(variant))
    expected = dict(reference_model(variant).named_buffers())
    buffers = dict(decoder._model.named_buffers())
    assert "model.rotary_emb.inv_freq" in buffers
    assert buffers.keys() == expected.keys()
    assert all(torch.equal(buffer, expected[name]) for name, buffer in buffers.items())


def test_only_the_block_in_use_has_its_weights_in_memory(tiny_llama: Path) -> None:
    decoder = StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))
    assert all(parameter.is_meta for parameter in parameters(decoder).values())
    with decoder.loaded_block(1) as block:
        assert not any(parameter.is_meta for parameter in block.parameters())
        loaded = {name for name, parameter in parameters(decoder).items() if not parameter.is_meta}
        assert {".".join(name.split(".")[:3]) for name in loaded} == {"model.layers.1"}
    decoder.logits(decoder.final(decoder.embed(torch.tensor([[1, 2, 3]]))[0]))
    assert all(parameter.is_meta for parameter in parameters(decoder).values())


def test_weights_are_freed_when_the_caller_fails(tiny_llama: Path) -> None:
    decoder = StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))
    with pytest.raises(KeyboardInterrupt), decoder.loaded_block(0):
        raise KeyboardInterrupt
    assert all(parameter.is_meta for parameter in parameters(decoder).values())


class CountingReader(SafetensorsReader):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads: list[str] = []

    def read(self, name: str) -> torch.Tensor:
        self.reads.append(name)
        return super().read(name)


def test_a_forward_over_many_batches_reads_each_block_once(tiny_llama: Path) -> None:
    reader = CountingReader(tiny_llama)
    reporter = RecordingReporter()
    final_hidden(StreamedDecoder(tiny_llama, reader), token_batches(), reporter, "forward")
    blocks = [name for name in reader.reads if name.startswith("model.layers.")]
    assert sorted(blocks) == sorted(name for name in reader.names() if name.startswith("model.layers."))
    assert "model.embed_tokens.weight" not in reader.reads  # of which rows are read
    assert reporter.progress == {"forward": (9, 9)}


def test_embedding_and_head_are_read_once_while_kept(tiny_llama: Path) -> None:
    reader = CountingReader(tiny_llama)
    decoder = StreamedDecoder(tiny_llama, reader)
    with decoder.loaded_head():
        for _ in range(3):
            decoder.logits(torch.ones(2, decoder.hidden_size))
    assert reader.reads == ["model.embed_tokens.weight"]


def test_logits_keep_the_leading_shape_and_do_not_depend_on_the_chunk(tiny_llama: Path) -> None:
    decoder = StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))
    final = torch.randn(2, 5, decoder.hidden_size, generator=torch.Generator().manual_seed(0))
    logits = decoder.logits(final)
    assert logits.shape == (2, 5, decoder.vocab_size)
    assert torch.allclose(decoder.logits(final[1, 2]), logits[1, 2], atol=1e-5)


def test_blocks_are_called_without_a_cache(tiny_llama: Path) -> None:
    decoder = StreamedDecoder(tiny_llama, SafetensorsReader(tiny_llama))
    _, calls = decoder.embed(torch.tensor([[1, 2, 3]]))
    assert len(calls) == decoder.num_blocks
    for call in calls:
        assert "position_embeddings" in call.kwargs
        assert not {"past_key_values", "use_cache"} & call.kwargs.keys()


def test_computing_in_bfloat16_is_close_to_float32_and_not_it(tiny_llama: Path) -> None:
    reader = SafetensorsReader(tiny_llama)
    (full,) = streamed_logits(StreamedDecoder(tiny_llama, reader), token_batches()[:1])
    decoder = StreamedDecoder(tiny_llama, reader, dtype=torch.bfloat16)
    (half,) = streamed_logits(decoder, token_batches()[:1])
    assert half.dtype == torch.bfloat16
    assert 0 < (half.float() - full).abs().mean() < 0.05 * full.std()


def copied_with(folder: Path, target: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Path:
    target.mkdir()
    shutil.copyfile(folder / "config.json", target / "config.json")
    settings = json.loads((folder / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps(settings))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


@torch.no_grad()
def test_a_head_of_its_own_in_a_checkpoint_said_to_be_tied_is_used_as_transformers_does(
    tiny_llama: Path, tmp_path: Path
) -> None:
    tensors = load_file(tiny_llama / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].flip(0).contiguous()
    folder = copied_with(tiny_llama, tmp_path / "both", tensors, {})
    ids = token_batches()[0]
    (logits,) = streamed_logits(StreamedDecoder(folder, SafetensorsReader(folder)), [ids])
    assert torch.allclose(logits, reference_model(folder)(ids).logits, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_tied_checkpoint_that_holds_only_the_head_is_read(tiny_llama: Path, tmp_path: Path) -> None:
    tensors = load_file(tiny_llama / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    folder = copied_with(tiny_llama, tmp_path / "head", tensors, {})
    ids = token_batches()[0]
    (logits,) = streamed_logits(StreamedDecoder(folder, SafetensorsReader(folder)), [ids])
    assert torch.allclose(logits, reference_model(tiny_llama)(ids).logits, rtol=0, atol=1e-5)


def test_a_weight_missing_from_the_checkpoint_is_named(tiny_llama: Path, tmp_path: Path) -> None:
    tensors = load_file(tiny_llama / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    folder = copied_with(tiny_llama, tmp_path / "missing", tensors, {})
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    with pytest.raises(SourceError, match=r"model\.layers\.2\.mlp\.up_proj\.weight"), decoder.loaded_block(2):
        pass


def test_a_weight_of_another_shape_than_the_config_says_is_named(tiny_llama: Path, tmp_path: Path) -> None:
    tensors = load_file(tiny_llama / "model.safetensors")
    folder = copied_with(tiny_llama, tmp_path / "shape", tensors, {"intermediate_size": 256})
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    with pytest.raises(SourceError, match=r"layers\.0\.mlp\.\w+\.weight has shape"), decoder.loaded_block(0):
        pass


def test_an_unsupported_architecture_is_refused_with_those_supported(
    tiny_llama: Path, tmp_path: Path
) -> None:
    folder = copied_with(tiny_llama, tmp_path / "gpt2", {"x": torch.ones(1)}, {"model_type": "gpt2"})
    with pytest.raises(RecipeError, match="'gpt2'") as refused:
        StreamedDecoder(folder, SafetensorsReader(folder))
    assert all(model_type in refused.value.hint for model_type in FAMILIES)


def test_a_config_that_cannot_be_read_is_the_source_s_fault(tiny_llama: Path, tmp_path: Path) -> None:
    folder = copied_with(tiny_llama, tmp_path / "broken", {"x": torch.ones(1)}, {})
    (folder / "config.json").write_text("{")
    with pytest.raises(SourceError, match=r"config\.json"):
        StreamedDecoder(folder, SafetensorsReader(folder))


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_embedding_by_rows_is_embedding_by_the_whole_table(tmp_path: Path, kind: str) -> None:
    folder = random_model(tmp_path, tiny_config(kind))
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    ids = torch.tensor([[7, 399, 7, 0], [3, 4, 5, 398]])
    by_rows, calls = decoder.embed(ids)
    with decoder.loaded_embedding():
        whole, same_calls = decoder.embed(ids)
    assert torch.equal(by_rows, whole)
    assert len(calls) == len(same_calls)
    assert all(parameter.is_meta for parameter in decoder._model.parameters())


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = random_model(tmp_path, tiny_config())
    decoder = StreamedDecoder(folder, SafetensorsReader(folder))
    with pytest.raises(SourceError, match="has 400 rows, not 401"):
        decoder.embed(torch.tensor([[1, 400]]))

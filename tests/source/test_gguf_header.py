"""A GGUF header is read without its tensors, and a damaged one never gets further."""

import struct
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from quantflow.errors import SourceError
from quantflow.source.gguf_header import read_header
from tests.source.gguf_files import write_gguf


@pytest.fixture(scope="module")
def sound(model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model, tokenizer, matrices=Type.Q8_0)


def test_metadata_and_tensor_table_are_read(sound: Path, model: Any) -> None:
    header = read_header(sound)
    assert header.architecture == "llama"
    assert header.metadata["llama.block_count"] == model.config.num_hidden_layers
    assert header.metadata["tokenizer.ggml.tokens"] == model.config.vocab_size
    assert (header.token_id("eos"), header.token_id("padding")) == (2, None)
    assert header.tensors["token_embd.weight"].type == "Q8_0"
    assert sum(tensor.parameters for tensor in header.tensors.values()) == model.num_parameters()
    assert header.is_quantized


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_short_anywhere_is_noticed(share: float, sound: Path) -> None:
    whole = sound.read_bytes()
    cut = sound.with_name("cut.gguf")
    cut.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(SourceError, match=r"cut short|not a GGUF file"):
        read_header(cut)


@pytest.mark.parametrize(
    ("position", "field", "complaint"),
    [
        (0, b"GGML", "not a GGUF file"),
        (4, struct.pack("<I", 1), "GGUF version 1 is not supported"),
        (4, struct.pack(">I", 3), "GGUF version 50331648 is not supported"),  # big-endian
        (8, struct.pack("<Q", 2**60), "cut short"),
        (16, struct.pack("<Q", 2**60), "cut short|damaged"),
        (24, struct.pack("<Q", 2**62), "cut short"),
    ],
)
def test_a_header_that_lies_is_refused_without_being_believed(
    position: int, field: bytes, complaint: str, sound: Path, tmp_path: Path
) -> None:
    damaged = bytearray(sound.read_bytes())
    damaged[position : position + len(field)] = field
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged)
    with pytest.raises(SourceError, match=complaint) as caught:
        read_header(path)
    assert caught.value.hint


@given(noise=st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_noise_behind_the_magic_is_an_error_of_the_file_and_no_crash(
    noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + noise)
    with pytest.raises(SourceError):
        read_header(path)

"""A GGUF header is read without its tensors, and a damaged one never gets further."""

import contextlib
import struct
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from quantflow.errors import QuantFlowError, SourceError
from quantflow.source.gguf import convert_gguf
from quantflow.source.gguf_consistency import check_header
from quantflow.source.gguf_header import read_header
from tests.reporting import RecordingReporter
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


def header_bytes(path: Path) -> int:
    """Where the tensors' data begins."""
    return min(tensor.begin for tensor in read_header(path).tensors.values())


mutations = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.one_of(
            st.binary(min_size=1, max_size=9),
            st.integers(0, 2**64 - 1).map(lambda number: struct.pack("<Q", number)),
            st.sampled_from([2**31, 2**32 - 1, 0, 7]).map(lambda number: struct.pack("<I", number)),
        ),
    ),
    min_size=1,
    max_size=4,
)


def mutated(path: Path, sound: Path, changes: list[tuple[float, bytes]], end: int) -> Path:
    content = bytearray(sound.read_bytes())
    for share, patch in changes:
        begin = int(share * end)
        content[begin : begin + len(patch)] = patch
    path.write_bytes(content)
    return path


@given(changes=mutations)
@settings(max_examples=400, deadline=None)
def test_any_change_of_a_header_is_an_error_of_ours_or_another_sound_header(
    changes: list[tuple[float, bytes]], sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    mutated(path, sound, changes, header_bytes(sound))
    try:
        header = read_header(path)
        check_header(header, path)
    except SourceError:
        return
    assert sum(tensor.bytes for tensor in header.tensors.values()) <= path.stat().st_size


@given(changes=mutations)
@settings(max_examples=12, deadline=None)
def test_a_changed_file_is_converted_or_refused_in_our_words(
    changes: list[tuple[float, bytes]], sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    path = mutated(folder / "mutated.gguf", sound, changes, header_bytes(sound))
    with contextlib.suppress(QuantFlowError):
        convert_gguf(path, folder / "out", RecordingReporter())


def patched(sound: Path, path: Path, key: str, field: bytes) -> Path:
    """Overwrite a metadata value behind its key and type."""
    content = bytearray(sound.read_bytes())
    begin = content.index(struct.pack("<Q", len(key)) + key.encode()) + 8 + len(key) + 4
    content[begin : begin + len(field)] = field
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 2**31),
        ("llama.embedding_length", 2**31),
        ("llama.feed_forward_length", 2**31),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", 2**31),
        ("llama.rope.dimension_count", 2**31),
    ],
)
def test_sizes_that_the_tensors_do_not_have_are_refused_before_a_model_is_built(
    key: str, value: int, sound: Path, tmp_path: Path, reporter: RecordingReporter
) -> None:
    path = patched(sound, tmp_path / "lie.gguf", key, struct.pack("<I", value))
    with pytest.raises(SourceError, match=key.removeprefix("llama.")):
        convert_gguf(path, tmp_path / "out", reporter)


def test_a_string_of_gigabytes_is_not_read(sound: Path, tmp_path: Path) -> None:
    # A sparse file: its size allows the string, and reading it would take the memory.
    path = patched(sound, tmp_path / "lie.gguf", "general.name", struct.pack("<Q", 3 << 30))
    with path.open("r+b") as file:
        file.truncate(4 << 30)
    with pytest.raises(SourceError, match="a string of 3221225472 bytes"):
        read_header(path)


def test_metadata_of_another_type_than_is_usual_is_not_believed(
    model: Any, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    extra = {"tokenizer.ggml.padding_token_id": "seven", "split.count": "three"}
    header = read_header(write_gguf(tmp_path / "odd.gguf", model, tokenizer, extra=extra))
    assert header.token_id("padding") is None
    assert header.size("split.count") is None

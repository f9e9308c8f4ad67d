"""Safetensors files: exchanged with the reference library, refused where a header lies."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from quantflow.errors import ArtifactError, SourceError
from quantflow.model.safetensors_file import DTYPES, SafetensorsFile, TensorSpec, write_safetensors


def sample_tensors() -> dict[str, torch.Tensor]:
    numbers = torch.arange(24)
    return {f"of.{name}": (numbers % 2 if name == "BOOL" else numbers).to(DTYPES[name]) for name in DTYPES}


def specs_of(tensors: dict[str, torch.Tensor]) -> list[TensorSpec]:
    return [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]


def raw_file(path: Path, header: Any, data: bytes) -> Path:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def entry(begin: int, end: int, shape: list[Any], dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_every_dtype_the_reference_library_writes_is_read_bit_for_bit(tmp_path: Path) -> None:
    tensors = {name: tensor.reshape(2, 3, 4) for name, tensor in sample_tensors().items()}
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 4)
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.metadata == {"format": "pt"}
    assert file.specs.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert file.specs[name] == TensorSpec(name, tensor.dtype, tuple(tensor.shape))
        assert file.read(name).dtype == tensor.dtype
        assert torch.equal(file.read(name), tensor)


def test_a_written_file_is_read_by_the_reference_library(tmp_path: Path) -> None:
    tensors = sample_tensors() | {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 4)}
    path = tmp_path / "x.safetensors"
    write_safetensors(path, specs_of(tensors), tensors.items(), {"format": "pt"})
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_written_tensors_lie_at_multiples_of_their_element_s_size(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(3, dtype=torch.int8), "b": torch.ones(3), "c": torch.ones(5).half()}
    path = tmp_path / "x.safetensors"
    write_safetensors(path, specs_of(tensors), tensors.items(), {})
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    for name, tensor in tensors.items():
        assert (8 + length + header[name]["data_offsets"][0]) % tensor.element_size() == 0


def test_bytes_do_not_depend_on_the_order_tensors_come_in(tmp_path: Path) -> None:
    tensors = sample_tensors()
    write_safetensors(tmp_path / "a", specs_of(tensors), tensors.items(), {"k": "v", "a": "b"})
    backwards = dict(reversed(tensors.items()))
    write_safetensors(tmp_path / "b", specs_of(backwards), tensors.items(), {"a": "b", "k": "v"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_read_tensor_shares_no_memory_with_another(tmp_path: Path) -> None:
    save_file({"x": torch.ones(4)}, tmp_path / "x.safetensors")
    file = SafetensorsFile(tmp_path / "x.safetensors")
    file.read("x").zero_()
    assert torch.equal(file.read("x"), torch.ones(4))


def test_nothing_appears_when_writing_fails(tmp_path: Path) -> None:
    specs = [TensorSpec("x", torch.float32, (2,)), TensorSpec("y", torch.float32, (2,))]
    with pytest.raises(ValueError, match="never given: y"):
        write_safetensors(tmp_path / "f", specs, [("x", torch.ones(2))], {})
    with pytest.raises(ValueError, match="planned as"):
        write_safetensors(tmp_path / "f", specs, [("x", torch.ones(3))], {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"x": entry(0, 8, [8])}, b"1234", "cut short"),
        ({"x": entry(0, 8, [9])}, b"12345678", r"shape \[9\]"),
        ({"x": entry(0, 8, [10**12, 10**12])}, b"12345678", "in 8 bytes"),
        ({"x": entry(0, 8, [-8])}, b"12345678", "no sizes"),
        ({"x": entry(0, 8, [True])}, b"12345678", "no sizes"),
        ({"x": entry(8, 0, [8])}, b"12345678", "no sizes"),
        ({"x": entry(0, 8, [8], "F8_E4M3")}, b"12345678", "F8_E4M3"),
        ({"x": entry(0, 5, [5]), "y": entry(4, 8, [4])}, b"12345678", "y: overlaps"),
        ({"x": entry(0, 4, [4]), "y": entry(5, 8, [3])}, b"12345678", "y: leaves a hole"),
        ({"x": entry(0, 4, [4])}, b"12345678", "describes 4 bytes"),
        ({"x": {"dtype": "U8", "shape": [8]}}, b"12345678", "not described"),
        ([], b"", "not a JSON object"),
        (b"{nonsense", b"", "not JSON"),
        (b"[" * 100_000, b"", "not JSON"),
        (b'{"x": 1, "x": 2}', b"", "twice"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    path = raw_file(tmp_path / "x.safetensors", header, data)
    with pytest.raises(SourceError, match=message) as refused:
        SafetensorsFile(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("length", [100_000_001, 2**63, 50])
def test_a_header_longer_than_the_file_or_the_format_allows_is_not_allocated(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(SourceError, match="header"):
        SafetensorsFile(path)


def test_errors_are_of_the_class_that_fits_what_the_file_is(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        SafetensorsFile(tmp_path / "absent", ArtifactError)
    (tmp_path / "short").write_bytes(b"123")
    with pytest.raises(ArtifactError, match="shorter"):
        SafetensorsFile(tmp_path / "short", ArtifactError)


def test_a_file_cut_short_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    save_file({"x": torch.ones(1000)}, tmp_path / "x.safetensors")
    file = SafetensorsFile(tmp_path / "x.safetensors")
    with (tmp_path / "x.safetensors").open("r+b") as handle:
        handle.truncate(2000)
    with pytest.raises(SourceError, match="x: cannot be read: the file ends early"):
        file.read("x")


@given(damage=st.binary(min_size=1, max_size=40), place=st.integers(0, 200))
def test_any_damage_to_a_header_is_an_error_of_ours_or_another_sound_header(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes, place: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "x.safetensors"
    save_file({"a.weight": torch.ones(2, 3), "b": torch.ones(5, dtype=torch.int8)}, path)
    content = bytearray(path.read_bytes())
    content[place : place + len(damage)] = damage
    path.write_bytes(content)
    try:
        file = SafetensorsFile(path)
    except SourceError:
        return
    for name, spec in file.specs.items():
        assert file.read(name).shape == spec.shape


sizes = st.integers(-(2**70), 2**70) | st.integers(0, 64) | st.floats() | st.booleans() | st.none()
odd_entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, "F8_E4M3", "", "f32"]) | st.integers(),
        "shape": st.lists(sizes, max_size=5) | st.text(max_size=3),
        "data_offsets": st.lists(sizes, max_size=3) | st.none(),
    }
) | st.dictionaries(st.text(max_size=5), sizes, max_size=4)


@given(
    entries=st.dictionaries(st.text(max_size=6), odd_entries, max_size=4),
    data=st.binary(max_size=64),
    claimed=st.none() | st.integers(0, 2**64 - 1),
)
def test_any_header_is_an_error_of_ours_or_describes_what_is_there(
    entries: dict[str, Any], data: bytes, claimed: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.safetensors"
    sound = {"a.weight": entry(0, len(data), [len(data)])}
    raw_file(path, sound | entries, data)
    if claimed is not None:
        path.write_bytes(claimed.to_bytes(8, "little") + path.read_bytes()[8:])
    try:
        file = SafetensorsFile(path)
    except SourceError:
        return
    assert sum(spec.bytes for spec in file.specs.values()) == len(data)
    for name, spec in file.specs.items():
        assert file.read(name).shape == spec.shape


def test_rows_are_read_without_the_rest(tmp_path: Path) -> None:
    table = torch.arange(24, dtype=torch.float16).reshape(6, 4)
    save_file({"table": table, "other": torch.ones(3)}, tmp_path / "model.safetensors")
    file = SafetensorsFile(tmp_path / "model.safetensors")
    assert torch.equal(file.read_rows("table", 2, 5), table[2:5])
    assert file.read_rows("table", 6, 6).shape == (0, 4)
    with pytest.raises(SourceError, match="has 6 rows, not 7"):
        file.read_rows("table", 5, 7)


def test_a_tensor_may_be_written_in_flat_pieces(tmp_path: Path) -> None:
    table = torch.arange(24.0).reshape(6, 4)
    spec, path = TensorSpec("table", torch.float32, (6, 4)), tmp_path / "x"
    write_safetensors(path, [spec], [("table", table)], {})
    whole = path.read_bytes()
    write_safetensors(path, [spec], [("table", table.reshape(-1)[at : at + 10]) for at in (0, 10, 20)], {})
    assert path.read_bytes() == whole
    for wrong in (table.reshape(-1)[:20], torch.arange(25.0)):
        with pytest.raises(ValueError, match="table"):
            write_safetensors(path, [spec], [("table", wrong)], {})

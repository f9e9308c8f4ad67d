"""Damaged and foreign artifacts are refused, and the tensor at fault is named."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quantflow.errors import ArtifactError
from quantflow.formats.read import open_artifact
from tests.formats.assembling import Assembled

LINEAR = "model.layers.1.mlp.up_proj"
Tensors = dict[str, torch.Tensor]


def changed(
    artifact: Assembled, folder: Path, change: Callable[[Tensors], object] = len, **settings: Any
) -> Path:
    config = json.loads((artifact.folder / "config.json").read_text())
    config["quantization_config"] |= settings
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(artifact.folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_an_artifact_that_is_only_copied_is_still_read(artifact: Assembled, tmp_path: Path) -> None:
    name = f"{LINEAR}.weight"
    copy = open_artifact(changed(artifact, tmp_path))
    assert torch.equal(copy.read(name), open_artifact(artifact.folder).read(name))


@pytest.mark.parametrize("part", ["qweight", "qzeros", "scales"])
def test_a_missing_part_of_a_linear_is_named(artifact: Assembled, tmp_path: Path, part: str) -> None:
    folder = changed(artifact, tmp_path, lambda tensors: tensors.pop(f"{LINEAR}.{part}"))
    with pytest.raises(ArtifactError, match=f"{LINEAR}.{part}"):
        open_artifact(folder)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("qzeros", lambda t: t[:-1].contiguous()),
        ("qzeros", lambda t: t[:, :-1].contiguous()),
        ("qzeros", lambda t: t.to(torch.int64)),
        ("scales", lambda t: t[:, :-8].contiguous()),
        ("scales", lambda t: t.float()),
        ("qweight", lambda t: t[:-1].contiguous()),
        ("qweight", lambda t: t.reshape(-1)),
        ("qweight", lambda t: t[:0]),
        ("scales", lambda t: t[:, :0]),
    ],
)
def test_a_part_of_another_shape_or_dtype_is_named(
    artifact: Assembled, tmp_path: Path, part: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    name = f"{LINEAR}.{part}"
    folder = changed(artifact, tmp_path, lambda tensors: tensors.update({name: change(tensors[name])}))
    with pytest.raises(ArtifactError) as refused:
        open_artifact(folder)
    assert name in refused.value.where


def test_another_group_size_than_was_written_is_noticed(artifact: Assembled, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"model\.layers\.0\..*qzeros.*groups of 64"):
        open_artifact(changed(artifact, tmp_path, group_size=64))


@pytest.mark.parametrize(
    "settings",
    [
        {"group_size": -1},
        {"group_size": "32"},
        {"bits": 8},
        {"version": "gemv"},
        {"zero_point": False},
        {"quant_method": "bitsandbytes"},
        {"quant_method": ["awq"]},
        {"modules_to_not_convert": 5},
        {"modules_to_not_convert": "lm_head"},
        {"modules_to_not_convert": [None]},
        {"modules_to_not_convert": [""]},
    ],
)
def test_settings_of_another_layout_are_refused(
    artifact: Assembled, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactError, match=next(iter(settings))):
        open_artifact(changed(artifact, tmp_path, **settings))


def test_a_file_cut_short_is_noticed(artifact: Assembled, tmp_path: Path) -> None:
    folder = changed(artifact, tmp_path)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate((folder / "model.safetensors").stat().st_size - 100)
    with pytest.raises(ArtifactError, match="cut short") as refused:
        open_artifact(folder)
    assert "model." in refused.value.where.partition("model.safetensors: ")[2]


def test_a_scale_that_is_not_finite_is_never_computed_with(artifact: Assembled, tmp_path: Path) -> None:
    folder = changed(artifact, tmp_path, lambda tensors: tensors[f"{LINEAR}.scales"].fill_(float("inf")))
    with pytest.raises(ArtifactError, match=f"{LINEAR}.scales: holds NaN or infinite"):
        open_artifact(folder).read(f"{LINEAR}.weight")


def test_a_linear_stored_twice_is_refused(artifact: Assembled, tmp_path: Path) -> None:
    folder = changed(artifact, tmp_path, lambda tensors: tensors.update({f"{LINEAR}.weight": torch.ones(1)}))
    with pytest.raises(ArtifactError, match=f"{LINEAR}: is stored both"):
        open_artifact(folder)


def test_a_linear_that_a_runtime_would_not_convert_is_refused(artifact: Assembled, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"modules_to_not_convert"):
        open_artifact(changed(artifact, tmp_path, modules_to_not_convert=["layers.1.mlp"]))


def test_a_tensor_that_is_not_there_is_named(artifact: Assembled) -> None:
    with pytest.raises(ArtifactError, match=r"model\.layers\.7\.mlp\.up_proj\.weight"):
        open_artifact(artifact.folder).read("model.layers.7.mlp.up_proj.weight")


def test_codes_whose_settings_are_lost_are_not_taken_for_plain_weights(
    artifact: Assembled, tmp_path: Path
) -> None:
    config = json.loads((artifact.folder / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((artifact.folder / "model.safetensors").read_bytes())
    with pytest.raises(ArtifactError, match=r"holds codes .*quantization_config"):
        open_artifact(tmp_path)


def test_a_folder_that_is_no_artifact_says_so(artifact: Assembled, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="quantization_config"):
        open_artifact(tmp_path)
    with pytest.raises(ArtifactError, match="quantization_config"):
        open_artifact(tmp_path / "absent")


def test_parameters_and_record_are_read_without_torch() -> None:
    code = (
        "import sys, quantflow.formats.params, quantflow.formats.assembly; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

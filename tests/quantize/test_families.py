"""Every listed family through AWQ, onto disk and back: codes, and the scales around them, are the model's."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quantflow.formats.read import open_artifact
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import FAMILIES, Family
from quantflow.model.forward import final_hidden
from quantflow.model.weights import SafetensorsReader, WeightReader
from quantflow.quantize.codes import BlockCodes, dequantize, load_block
from tests.formats.assembling import assembled
from tests.quantize.test_stage import quantize
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY, random_model, tiny_config

IDS = torch.randint(VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(3))
LOUD = [3, 20, 41]
BLOCKS = 2


@dataclass(frozen=True)
class Quantized:
    """A source, its codes and its artifact."""

    source: Path
    blocks: tuple[BlockCodes, ...]
    artifact: Path
    family: Family


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Quantized:
    """Of a random model with channels that are loud after every norm and before `o` and `down`."""
    kind, folder = str(request.param), tmp_path_factory.mktemp(str(request.param))
    source = random_model(
        folder / "model", tiny_config(kind, num_hidden_layers=BLOCKS, num_key_value_heads=4)
    )
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith("layernorm.weight"):
            tensor[LOUD] *= 5
        elif name.endswith(("v_proj.weight", "up_proj.weight", "qkv_proj.weight")):
            tensor[[-row for row in LOUD]] *= 5
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    output = quantize(source, folder)
    blocks = tuple(load_block(path) for path in sorted(output.glob("codes/*/*.safetensors")))
    assert len(blocks) == BLOCKS
    artifact = assembled(folder / "assembled", source, blocks, "float32").folder
    return Quantized(source, blocks, artifact, FAMILIES[kind])


class Unfolded(SafetensorsReader):
    """The source with the quantized weights in its own terms: every scale taken back out."""

    def __init__(self, quantized: Quantized) -> None:
        super().__init__(quantized.source)
        self.family = quantized.family
        self.blocks = quantized.blocks

    def read(self, name: str) -> Tensor:
        if not name.startswith(self.family.blocks):
            return super().read(name)
        block = self.blocks[int(name.split(".")[2])]
        linear = name.removesuffix(".weight")
        if linear not in block.linears:
            return super().read(name)
        weight = dequantize(block.linears[linear])
        if name in block.folds:
            weight = weight * block.folds[name].unsqueeze(1)
        prefix, inside = ".".join(name.split(".")[:3]), ".".join(linear.split(".")[3:])
        for fold in self.family.folds:
            scale = block.folds.get(f"{prefix}.{fold.into}.weight")
            if inside in self.family.units[fold.unit] and scale is not None:
                weight = weight / scale[-weight.shape[1] :]
        return weight


@torch.no_grad()
def logits(folder: Path, reader: WeightReader) -> Tensor:
    decoder = StreamedDecoder(folder, reader)
    (hidden,) = final_hidden(decoder, [IDS], RecordingReporter(), "forward")
    return decoder.logits(hidden)


def test_every_fold_is_used_and_scales(quantized: Quantized) -> None:
    family = quantized.family
    for index, block in enumerate(quantized.blocks):
        prefix = family.block_name(index)
        assert block.folds.keys() == {f"{prefix}.{fold.into}.weight" for fold in family.folds}
        for name, scale in block.folds.items():
            assert scale.max() > 1.3 * scale.min(), name


def test_codes_with_all_scales_taken_out_are_near_the_weights(quantized: Quantized) -> None:
    unfolded, source = Unfolded(quantized), SafetensorsReader(quantized.source)
    names = [f"{name}.weight" for block in quantized.blocks for name in block.linears]
    assert len(names) == BLOCKS * len(quantized.family.linears)
    for name in names:
        found, weight = unfolded.read(name), source.read(name)
        assert (found - weight).norm() < 0.2 * weight.norm(), name


def test_the_artifact_computes_what_its_codes_say_of_the_source(quantized: Quantized) -> None:
    expected = logits(quantized.source, Unfolded(quantized))
    found = logits(quantized.artifact, open_artifact(quantized.artifact))
    assert expected.std() > 0.1
    # What is left is the rounding of norms, embedding and head to float16.
    assert (found - expected).abs().mean() < 0.005 * expected.abs().mean()

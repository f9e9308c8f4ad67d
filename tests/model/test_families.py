"""Every listed family: units hold every linear, it streams as transformers runs it, its folds are true."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from quantflow.model.decoder import StreamedDecoder
from quantflow.model.families import FAMILIES, Family, Fold
from quantflow.model.forward import final_hidden
from quantflow.model.weights import SafetensorsReader
from quantflow.quantize.folds import divisor
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY, random_model, tiny_config

# A setting for each way in which blocks of a family differ from one another or from Llama's; multi-head
# attention where values are to be folded, grouped queries where they are not.
WINDOWS = {"sliding_window": 5}
MULTI_HEAD = {"num_key_value_heads": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"mlp_bias": True, "attention_bias": True, **MULTI_HEAD},
    "mistral": WINDOWS,
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1, **WINDOWS, **MULTI_HEAD},
    "qwen3": {"head_dim": 32, "use_sliding_window": True, "max_window_layers": 1, **WINDOWS},
    "gemma2": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, **WINDOWS, **MULTI_HEAD},
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], **WINDOWS},
    "phi3": {"partial_rotary_factor": 0.5, **WINDOWS, **MULTI_HEAD},
    "granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.3,
        "logits_scaling": 2.0,
    },
    "olmo2": MULTI_HEAD,
    "smollm3": {"no_rope_layer_interval": 2, "use_sliding_window": True, **WINDOWS},
}
GROUPED = {"num_key_value_heads": 2}
IDS = torch.randint(VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp(kind), tiny_config(kind, **VARIANTS[kind]))


def opened(folder: Path) -> StreamedDecoder:
    return StreamedDecoder(folder, SafetensorsReader(folder))


def logits(decoder: StreamedDecoder) -> Tensor:
    (hidden,) = final_hidden(decoder, [IDS], RecordingReporter(), "forward")
    return decoder.logits(hidden)


def close(found: Tensor, expected: Tensor, part: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=part * float(expected.abs().max()))


def test_there_is_a_variant_of_every_family() -> None:
    assert VARIANTS.keys() == FAMILIES.keys()


def test_every_linear_of_a_block_is_in_one_unit_and_folds_name_what_there_is(folder: Path) -> None:
    decoder = opened(folder)
    family = decoder.family
    with decoder.loaded_block(0) as block:
        linears = [name for name, module in block.named_modules() if isinstance(module, nn.Linear)]
        assert sorted(family.linears) == sorted(linears)
        for fold in family.folds:
            block.get_submodule(fold.into)
            assert fold.unit in family.units
    outside = [name for name, module in decoder._model.named_modules() if isinstance(module, nn.Linear)]
    assert family.outside == tuple(name for name in outside if not name.startswith(family.blocks))


@torch.no_grad()
def test_streamed_logits_are_those_of_transformers(folder: Path) -> None:
    load: Any = AutoModelForCausalLM.from_pretrained
    # Eager attention is what every option of a config is built into.
    reference = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    expected = reference(IDS).logits
    assert expected.std() > 0.1
    close(logits(opened(folder)), expected, 2e-5)


class FoldedReader(SafetensorsReader):
    """A model with random scales between 1/4 and 4 in every fold that holds, as artifacts have them."""

    def __init__(self, folder: Path, family: Family) -> None:
        super().__init__(folder)
        self.family = family
        generator = torch.Generator().manual_seed(2)
        self.fold_rows: dict[str, Tensor] = {}
        self.columns: dict[str, Tensor] = {}
        self.norms: set[str] = set()
        self.used: list[Fold] = []
        for fold in family.folds:
            outputs = self.spec(f"{family.block_name(0)}.{fold.into}.weight").shape[0]
            inputs = self.spec(f"{family.block_name(0)}.{family.units[fold.unit][0]}.weight").shape[1]
            if fold.into in family.linears and not fold.holds(outputs, inputs):
                continue
            scale = 4 ** (2 * torch.rand(inputs, generator=generator) - 1)
            self.fold_rows[fold.into] = divisor(fold, scale, outputs)
            self.columns |= dict.fromkeys(family.units[fold.unit], scale)
            self.norms |= {fold.into} - set(family.linears)
            self.used.append(fold)

    def read(self, name: str) -> Tensor:
        tensor = super().read(name)
        if not name.startswith(self.family.blocks):
            return tensor
        module, leaf = name.split(".", 3)[3].rsplit(".", 1)
        offset = self.family.norm_offset if module in self.norms and leaf == "weight" else 0.0
        if module in self.columns and leaf == "weight":
            tensor = tensor * self.columns[module]
        if module in self.fold_rows:
            rows = self.fold_rows[module]
            tensor = (tensor + offset) / (rows.unsqueeze(1) if tensor.ndim == 2 else rows) - offset
        return tensor


@torch.no_grad()
def test_a_scale_in_every_fold_leaves_the_logits_as_they_are(folder: Path, kind: str) -> None:
    plain = opened(folder)
    reader = FoldedReader(folder, plain.family)
    grouped = opened(folder).config.num_key_value_heads == GROUPED["num_key_value_heads"]
    assert len(reader.used) == len(plain.family.folds) - grouped
    expected = logits(plain)
    folded = logits(StreamedDecoder(folder, reader))
    close(folded, expected, 1e-4)


@pytest.mark.parametrize("name", ["self_attn.v_proj", "self_attn.qkv_proj"])
def test_values_of_grouped_queries_take_no_scale(name: str) -> None:
    folds = [fold for family in FAMILIES.values() for fold in family.folds if fold.into == name]
    assert folds
    for fold in folds:
        fused = name == "self_attn.qkv_proj"
        assert fold.holds(3 * 64 if fused else 64, 64)
        assert not fold.holds(64 + 2 * 32 if fused else 32, 64)


def test_soft_capped_attention_is_not_left_to_sdpa_which_leaves_it_out(tmp_path: Path) -> None:
    capped = random_model(tmp_path / "capped", tiny_config("gemma2", attn_logit_softcapping=2.0))
    open_ended = random_model(tmp_path / "open", tiny_config("gemma2", attn_logit_softcapping=None))
    assert (opened(capped).attention, opened(open_ended).attention) == ("eager", "sdpa")
    first, second = logits(opened(capped)), logits(opened(open_ended))
    assert (first - second).abs().max() > 0.01 * second.abs().max()

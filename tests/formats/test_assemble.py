"""The assemble stage: what is on disk is what was quantized, in a form that runtimes load."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from quantflow.errors import QuantizationError, SourceError, StoreError
from quantflow.formats.assembly import load_assembly
from quantflow.formats.params import AssembleParams
from quantflow.formats.read import open_artifact
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import final_hidden
from quantflow.model.weights import INDEX_FILE, SafetensorsReader
from quantflow.quantize.codes import BlockCodes, LinearCodes, dequantize
from quantflow.quantize.params import Scheme
from tests.formats.assembling import Assembled, assembled, rounded, rounded_blocks
from tests.reporting import RecordingReporter
from tests.tiny_models import VOCABULARY, random_model, tiny_config

IDS = torch.randint(VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(3))


def expected_weights(artifact: Assembled) -> dict[str, torch.Tensor]:
    """The weights the artifact stands for, from codes, folds and the source, by plain arithmetic."""
    reader = SafetensorsReader(artifact.source)
    weights = {name: reader.read(name) for name in reader.names()}
    for block in artifact.blocks:
        for name, scale in block.folds.items():
            weights[name] = (weights[name].float() / scale).to(weights[name].dtype)
        for name, codes in block.linears.items():
            weights[f"{name}.weight"] = dequantize(codes)
    return weights


def streamed_logits(folder: Path, reader: Any) -> torch.Tensor:
    decoder = StreamedDecoder(folder, reader)
    (hidden,) = final_hidden(decoder, [IDS], RecordingReporter(), "forward")
    return decoder.logits(hidden)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_reading_back_gives_the_dequantized_codes_exactly_and_all_else_as_stored(artifact: Assembled) -> None:
    reader = open_artifact(artifact.folder)
    expected = expected_weights(artifact)
    assert reader.names() == expected.keys()
    for name, weight in expected.items():
        assert reader.read(name).dtype == weight.dtype
        assert torch.equal(reader.read(name), weight), name


@torch.no_grad()
def test_streamed_logits_of_an_artifact_are_those_of_transformers_with_its_weights(
    artifact: Assembled,
) -> None:
    plain: Any = AutoModelForCausalLM.from_pretrained(artifact.source, dtype=torch.float32)
    before = plain(IDS).logits
    plain.load_state_dict({name: w.float() for name, w in expected_weights(artifact).items()}, strict=False)
    expected = plain(IDS).logits
    assert (expected - before).abs().max() > 0.01
    logits = streamed_logits(artifact.folder, open_artifact(artifact.folder))
    assert torch.allclose(logits, expected, rtol=0, atol=1e-5)


def on_grid(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Multiples of 1/32 between -8/32 and 7/32: four bits hold them without loss."""
    return torch.randint(-8, 8, shape, generator=generator) / 32


def grid_codes(weight: torch.Tensor, scale: torch.Tensor) -> LinearCodes:
    """Codes of a weight `[out, in]` on a grid of step `scale` `[out, groups]` about zero point 8."""
    groups = weight.reshape(weight.shape[0], -1, 32) / scale.unsqueeze(-1)
    assert torch.equal(groups, groups.round())
    q = (groups + 8).to(torch.uint8).reshape(weight.shape)
    return LinearCodes(q, scale.half(), torch.full_like(scale, 8).to(torch.uint8), 4, 32)


@torch.no_grad()
def test_folding_scales_leaves_the_model_as_it_was_where_rounding_loses_nothing(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    config = tiny_config(num_key_value_heads=4, attention_bias=True, mlp_bias=True, num_hidden_layers=1)
    build: Any = AutoModelForCausalLM.from_config
    model = build(config, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.copy_(on_grid(tuple(parameter.shape), generator))
    model.save_pretrained(tmp_path / "model")

    def powers_of_two(size: int) -> torch.Tensor:
        """One per group of 32 channels, so that a group stays on one grid."""
        return (2.0 ** torch.randint(-2, 3, (size // 32,), generator=generator)).repeat_interleave(32)

    attention, mlp, o, down = powers_of_two(64), powers_of_two(64), powers_of_two(64), powers_of_two(128)
    columns = {"q_proj": attention, "k_proj": attention, "v_proj": attention, "o_proj": o}
    columns |= {"gate_proj": mlp, "up_proj": mlp, "down_proj": down}
    rows = {"v_proj": o, "up_proj": down}
    linears = {}
    for name, module in model.model.layers[0].named_modules():
        if isinstance(module, torch.nn.Linear):
            kind = name.split(".")[-1]
            by_row = rows.get(kind, torch.ones(module.out_features)).unsqueeze(1)
            scale = columns[kind][::32] / 32 / by_row
            linears[f"model.layers.0.{name}"] = grid_codes(module.weight * columns[kind] / by_row, scale)
    into = {
        "input_layernorm": attention,
        "post_attention_layernorm": mlp,
        "self_attn.v_proj": o,
        "mlp.up_proj": down,
    }
    folds = {f"model.layers.0.{name}.weight": scale for name, scale in into.items()}
    artifact = assembled(tmp_path / "run", tmp_path / "model", (BlockCodes(linears, folds),), dtype="float32")
    logits = streamed_logits(artifact.folder, open_artifact(artifact.folder))
    assert torch.allclose(logits, model.eval()(IDS).logits, rtol=0, atol=1e-5)


def test_config_says_how_it_is_quantized_and_transformers_reads_it(artifact: Assembled) -> None:
    config = json.loads((artifact.folder / "config.json").read_text())
    assert config["quantization_config"] == {
        "quant_method": "awq",
        "version": "gemm",
        "bits": 4,
        "group_size": 32,
        "zero_point": True,
        "modules_to_not_convert": ["lm_head"],
    }
    assert config["dtype"] == "bfloat16"
    source = json.loads((artifact.source / "config.json").read_text())
    assert {key: value for key, value in config.items() if key != "quantization_config"} == source
    assert AutoConfig.from_pretrained(artifact.folder).quantization_config["quant_method"] == "awq"


def test_tokenizer_chat_template_and_generation_config_come_along(artifact: Assembled) -> None:
    assert contents(artifact.source).keys() | {"quantflow.json"} == contents(artifact.folder).keys()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (artifact.folder / name).read_bytes() == (artifact.source / name).read_bytes()
    tokenizer: Any = AutoTokenizer.from_pretrained(artifact.folder)
    assert "assistant" in tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )


def test_provenance_hashes_every_file_and_names_no_place_or_time(artifact: Assembled) -> None:
    text = (artifact.folder / "quantflow.json").read_text()
    provenance = json.loads(text)
    files = contents(artifact.folder)
    del files["quantflow.json"]
    assert provenance["files"] == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert (provenance["method"], provenance["bits"], provenance["group_size"]) == ("awq", 4, 32)
    assert provenance["precisions"]["model.layers.2.gate_up"] == "int4"
    assert provenance["precisions"]["lm_head"] == "bfloat16"
    assert str(artifact.source) not in text


def test_equal_inputs_give_equal_bytes(artifact: Assembled, tmp_path: Path) -> None:
    again = assembled(tmp_path, artifact.source, artifact.blocks, "bfloat16")
    assert contents(again.folder) == contents(artifact.folder)


def test_a_large_artifact_is_cut_into_shards_that_hold_the_same(
    artifact: Assembled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 40_000
    monkeypatch.setattr("quantflow.formats.making.MAX_SHARD_BYTES", limit)
    sharded = assembled(tmp_path, artifact.source, artifact.blocks, "bfloat16")
    files = sorted(path.name for path in sharded.folder.glob("*.safetensors"))
    assert len(files) > 2
    assert files == [f"model-{n:05d}-of-{len(files):05d}.safetensors" for n in range(1, len(files) + 1)]
    for name in files:
        tensors = load_file(sharded.folder / name)
        assert sum(tensor.nbytes for tensor in tensors.values()) <= limit or len(tensors) == 1
    index = json.loads((sharded.folder / INDEX_FILE).read_text())
    assert sorted(set(index["weight_map"].values())) == files
    whole, parts = SafetensorsReader(artifact.folder), SafetensorsReader(sharded.folder)
    assert whole.names() == parts.names() == index["weight_map"].keys()
    assert all(torch.equal(whole.read(name), parts.read(name)) for name in whole.names())


def test_the_stage_s_record_says_what_it_came_to(artifact: Assembled) -> None:
    assembly = load_assembly(artifact.folder.parent)
    assert assembly.bytes == sum(path.stat().st_size for path in artifact.folder.iterdir())
    assert assembly.weight_bytes < assembly.source_weight_bytes
    assert assembly.quantized_linears == 7 * 3
    assert assembly.kept_units == ()


def test_a_float32_source_is_stored_as_float16_and_says_so(
    tmp_path: Path, reporter: RecordingReporter
) -> None:
    source = random_model(tmp_path / "model", tiny_config())
    artifact = assembled(tmp_path / "run", source, rounded_blocks(source), "float32", reporter)
    assert reporter.codes() == ["stored-as-float16"]
    assert json.loads((artifact.folder / "config.json").read_text())["dtype"] == "float16"
    stored = SafetensorsReader(artifact.folder).read("lm_head.weight")
    assert torch.equal(stored, SafetensorsReader(source).read("lm_head.weight").half())


def test_a_bfloat16_source_stays_bfloat16_without_an_event(
    artifact: Assembled, tmp_path: Path, reporter: RecordingReporter
) -> None:
    again = assembled(tmp_path, artifact.source, artifact.blocks, "bfloat16", reporter)
    assert reporter.events == []
    name = "model.embed_tokens.weight"
    assert SafetensorsReader(again.folder).spec(name) == SafetensorsReader(artifact.source).spec(name)


def spoiled_source(tmp_path: Path, value: float) -> tuple[Path, tuple[BlockCodes, ...]]:
    build: Any = AutoModelForCausalLM.from_config
    model = build(tiny_config(num_hidden_layers=1), dtype=torch.float32)
    with torch.no_grad():
        model.lm_head.weight[3, 5] = value
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model", rounded_blocks(tmp_path / "model")


def test_a_value_that_float16_cannot_hold_is_an_error_that_names_its_tensor(tmp_path: Path) -> None:
    source, blocks = spoiled_source(tmp_path, 1e5)
    with pytest.raises(QuantizationError, match=r"lm_head\.weight: its largest value, 100000") as refused:
        assembled(tmp_path / "run", source, blocks, "float32")
    assert "bfloat16" in refused.value.hint


def test_a_value_that_is_not_a_number_is_the_source_s_fault(tmp_path: Path) -> None:
    source, blocks = spoiled_source(tmp_path, float("nan"))
    with pytest.raises(SourceError, match=r"lm_head\.weight: holds NaN"):
        assembled(tmp_path / "run", source, blocks, "float32")


def with_linears(block: BlockCodes, linears: dict[str, LinearCodes]) -> BlockCodes:
    return BlockCodes({**block.linears, **linears}, block.folds)


def test_a_unit_that_is_not_quantized_is_named_to_the_runtime_and_in_the_record(
    artifact: Assembled, tmp_path: Path
) -> None:
    spared = "model.layers.1.mlp.down_proj"
    first, second, third = artifact.blocks
    kept = {name: codes for name, codes in second.linears.items() if name != spared}
    mixed = assembled(
        tmp_path, artifact.source, (first, BlockCodes(kept, second.folds), third), dtype="bfloat16"
    )
    settings = json.loads((mixed.folder / "config.json").read_text())["quantization_config"]
    assert settings["modules_to_not_convert"] == ["lm_head", spared]
    assert load_assembly(mixed.folder.parent).kept_units == ("model.layers.1.down",)
    provenance = json.loads((mixed.folder / "quantflow.json").read_text())
    assert provenance["precisions"]["model.layers.1.down"] == "bfloat16"
    name = f"{spared}.weight"
    assert torch.equal(open_artifact(mixed.folder).read(name), SafetensorsReader(artifact.source).read(name))


def test_a_unit_that_is_quantized_in_part_is_refused(artifact: Assembled, tmp_path: Path) -> None:
    first, *others = artifact.blocks
    kept = {name: codes for name, codes in first.linears.items() if not name.endswith("k_proj")}
    with pytest.raises(QuantizationError, match=r"model\.layers\.0\.qkv"):
        assembled(tmp_path, artifact.source, (BlockCodes(kept, first.folds), *others), "bfloat16")


def test_a_block_without_codes_is_refused(artifact: Assembled, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="block-00002"):
        assembled(tmp_path, artifact.source, artifact.blocks[:2], "bfloat16")


@pytest.mark.parametrize(
    ("linear", "codes", "message"),
    [
        ("self_attn.q_proj", rounded(torch.ones(64, 96)), r"codes of shape \[64, 96\]"),
        ("self_attn.q_proj", rounded(torch.ones(64, 64), 16), "groups of 16"),
        ("mlp.extra_proj", rounded(torch.ones(64, 64)), "no such layer"),
    ],
)
def test_codes_that_do_not_belong_to_the_source_are_refused(
    artifact: Assembled, tmp_path: Path, linear: str, codes: LinearCodes, message: str
) -> None:
    name = f"model.layers.0.{linear}"
    first, *others = artifact.blocks
    with pytest.raises(QuantizationError, match=message) as refused:
        assembled(tmp_path, artifact.source, (with_linears(first, {name: codes}), *others), "bfloat16")
    assert refused.value.where == name


def test_a_group_size_that_does_not_divide_a_layer_names_the_layer(
    artifact: Assembled, tmp_path: Path
) -> None:
    scheme = Scheme(method="awq", bits=4, group_size=48)
    params = AssembleParams(name="int4", format="awq", scheme=scheme)
    with pytest.raises(QuantizationError, match="groups are of 48 inputs") as refused:
        assembled(tmp_path, artifact.source, artifact.blocks, "bfloat16", params=params)
    assert refused.value.where.startswith("model.layers.0.")


def test_a_fold_into_a_tensor_that_is_not_there_is_refused(artifact: Assembled, tmp_path: Path) -> None:
    first, *others = artifact.blocks
    lost = BlockCodes(first.linears, {**first.folds, "model.layers.0.no_norm.weight": torch.ones(64)})
    with pytest.raises(QuantizationError, match=r"model\.layers\.0\.no_norm\.weight"):
        assembled(tmp_path, artifact.source, (lost, *others), "bfloat16")


def test_nothing_of_a_file_is_left_when_its_last_block_fails(artifact: Assembled, tmp_path: Path) -> None:
    *others, last = artifact.blocks
    odd = with_linears(last, {"model.layers.2.self_attn.q_proj": rounded(torch.ones(64, 64), 16)})
    with pytest.raises(QuantizationError, match="groups of 16"):
        assembled(tmp_path, artifact.source, (*others, odd), "bfloat16")
    assert list((tmp_path / "output").rglob("*.*")) == []


@torch.no_grad()
def test_an_artifact_of_an_architecture_that_is_not_listed_reads_back(tmp_path: Path) -> None:
    source = random_model(tmp_path / "falcon", tiny_config("falcon"), dtype=torch.bfloat16)
    blocks = rounded_blocks(source, "falcon")
    assert [len(block.linears) for block in blocks] == [4, 4, 4]
    artifact = assembled(tmp_path / "out", source, blocks, "bfloat16")
    config = json.loads((artifact.folder / "config.json").read_text())
    assert config["quantization_config"]["modules_to_not_convert"] == ["lm_head"]
    precisions = json.loads((artifact.folder / "quantflow.json").read_text())["precisions"]
    assert precisions["transformer.h.2.self_attention.query_key_value"] == "int4"
    load: Any = AutoModelForCausalLM.from_pretrained
    reference = load(source, dtype=torch.float32).eval()
    reference.load_state_dict({n: w.float() for n, w in expected_weights(artifact).items()}, strict=False)
    found = streamed_logits(artifact.folder, open_artifact(artifact.folder))
    assert torch.allclose(found, reference(IDS).logits, rtol=0, atol=1e-4)

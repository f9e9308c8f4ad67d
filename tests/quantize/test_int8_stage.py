"""INT8 of the quantize stage: codes of blocks and head, ranges of inputs, and the whole model emulated."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from quantflow.calibrate.input_ranges import RangeCollector, load_ranges, ranges_file
from quantflow.errors import QuantizationError, StoreError
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.replaced import forwards_replaced
from quantflow.quantize import stage
from quantflow.quantize.codes import block_file, load_block
from quantflow.quantize.emulated import EmulatedDecoder, alone
from quantflow.quantize.int8 import InputRange, emulate, int8_dequantized, int8_weight
from quantflow.quantize.int8_block import (
    Int8Block,
    int8_file,
    int8_linears,
    load_int8_block,
    read_int8_block,
    save_int8_block,
)
from quantflow.quantize.params import QuantizeParams, Scheme, int8_scheme
from quantflow.quantize.ranges import spanning
from quantflow.quantize.sizes import RANGE_TOKENS
from tests.quantize.test_stage import inputs_for
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config

W8A8, INT8 = int8_scheme("w8a8"), int8_scheme("int8")
AWQ = Scheme(method="awq", bits=4, group_size=32)
BLOCKS = 3


def quantize(
    inputs: dict[str, Path], output: Path, *schemes: Scheme, reporter: RecordingReporter | None = None
) -> Path:
    output.mkdir(exist_ok=True)
    params = QuantizeParams(candidates=schemes, device="cpu", batch_tokens=64)
    stage.run(params, inputs, output, reporter or RecordingReporter())
    return output


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("model"), tiny_config(tie_word_embeddings=True))


@pytest.fixture(scope="module")
def inputs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return inputs_for(model, tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def output(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantize(inputs, tmp_path_factory.mktemp("output"), W8A8, INT8)


@pytest.fixture(scope="module")
def heard(model: Path, inputs: dict[str, Path]) -> dict[str, torch.Tensor]:
    """What every linear reads of the calibration tokens in transformers' own model, [tokens, in]."""
    loaded, found = lossless(model), {}
    with ExitStack() as stack:
        for name, module in loaded.named_modules():
            if isinstance(module, torch.nn.Linear):

                def hear(module: Any, args: Any, name: str = name) -> None:
                    found[name] = args[0].reshape(-1, args[0].shape[-1])

                stack.callback(module.register_forward_pre_hook(hear).remove)
        with torch.no_grad():
            loaded(torch.cat(stage.calibration_batches(inputs["data"], 64)))
    return found


def lossless(model: Path) -> Any:
    load: Any = AutoModelForCausalLM.from_pretrained
    return load(model, dtype=torch.float32).eval()


def unit_of(name: str) -> str:
    last = name.rpartition(".")[2]
    return {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "o_proj": "o", "down_proj": "down"}.get(
        last, "lm_head" if last == "lm_head" else "gate_up"
    )


def test_blocks_and_head_have_codes_of_weights_and_minmax_ranges_of_inputs(
    output: Path, model: Path, heard: dict[str, torch.Tensor]
) -> None:
    loaded = lossless(model)
    found = {
        name: linear
        for index in (*range(BLOCKS), None)
        for name, linear in read_int8_block(output, W8A8.id, index).linears.items()
    }
    assert found.keys() == heard.keys()
    for name, linear in found.items():
        weight = loaded.get_submodule(name).weight
        assert ((int8_dequantized(linear) - weight).abs() <= 0.5001 * linear.scales.unsqueeze(1)).all()
        expected = spanning(float(heard[name].min()), float(heard[name].max()))
        assert linear.input is not None
        assert expected is not None
        assert linear.input.scale == pytest.approx(expected.scale, rel=1e-4)
        assert linear.input.zero_point == pytest.approx(expected.zero_point, abs=1)


def test_weight_only_int8_has_the_same_codes_and_leaves_inputs_alone(output: Path) -> None:
    for index in (0, None):
        both = (read_int8_block(output, scheme.id, index).linears for scheme in (W8A8, INT8))
        for own, other in zip(*(block.values() for block in both), strict=True):
            assert torch.equal(own.q, other.q)
            assert other.input is None


def test_extremes_are_of_every_channel_over_all_tokens(output: Path, heard: dict[str, torch.Tensor]) -> None:
    ranges = load_ranges(ranges_file(output, 1)) | load_ranges(ranges_file(output, None))
    for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj", "lm_head"):
        x = heard[name if name == "lm_head" else f"model.layers.1.{name}"]
        own = ranges[unit_of(name)]
        torch.testing.assert_close(own.low, x.amin(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own.high, x.amax(0), rtol=1e-4, atol=1e-5)
        assert own.tokens == len(x)


def test_the_sample_is_of_tokens_from_all_over_the_text() -> None:
    collector, tokens = RangeCollector("unit", 4 * RANGE_TOKENS), torch.arange(4.0 * RANGE_TOKENS)
    for batch in torch.split(tokens.div(16), 100):
        collector.add(batch.unsqueeze(-1))
    seen = collector.finish().sample.float().flatten() * 16
    assert len(seen) == RANGE_TOKENS
    # One of every four, to the accuracy of bfloat16.
    assert ((seen / 4 - torch.arange(RANGE_TOKENS)).abs() <= 1 + seen / 512).all()


def test_grams_are_not_summed_up_for_int8_alone(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("quantflow.calibrate.stream.InputCollector", never)
    quantize(inputs, tmp_path / "out", INT8)
    with pytest.raises(AssertionError):
        quantize(inputs, tmp_path / "both", INT8, AWQ)


def test_codes_of_other_schemes_are_the_same_beside_int8(inputs: dict[str, Path], tmp_path: Path) -> None:
    together = quantize(inputs, tmp_path / "both", W8A8, AWQ)
    by_itself = quantize(inputs, tmp_path / "one", AWQ)
    for index in range(BLOCKS):
        both = (block_file(folder, AWQ.id, index).read_bytes() for folder in (together, by_itself))
        assert len(set(both)) == 1


def test_an_interrupted_stage_goes_on_and_ends_the_same(
    inputs: dict[str, Path], output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quantflow.pipeline.pace.MAX_OVERHEAD", float("inf"))
    real, seen = stage.int8_block, list[int]()  # type: ignore[attr-defined]

    def dying(block: Any, *args: Any) -> Any:
        seen.append(block.index)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(block, *args)

    monkeypatch.setattr(stage, "int8_block", dying)
    reporter = RecordingReporter()
    with pytest.raises(KeyboardInterrupt):
        quantize(inputs, tmp_path / "cut", W8A8, INT8, reporter=reporter)
    cut = quantize(inputs, tmp_path / "cut", W8A8, INT8, reporter=reporter)
    assert seen == [0, 1, 1, 2]
    for path in sorted(p for p in output.rglob("*.safetensors") if p.is_file()):
        assert path.read_bytes() == (cut / path.relative_to(output)).read_bytes(), path.name


def damaged(model: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    loaded = lossless(model)
    loaded.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_an_input_that_is_zero_throughout_stays_in_floating_point_and_that_is_an_event(
    model: Path, tmp_path: Path
) -> None:
    def silence(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.1.mlp.up_proj.weight"].zero_()

    folder = damaged(model, tmp_path / "model", silence)
    reporter = RecordingReporter()
    output = quantize(inputs_for(folder, tmp_path), tmp_path / "out", W8A8, reporter=reporter)
    linears = read_int8_block(output, W8A8.id, 1).linears
    assert linears["model.layers.1.mlp.down_proj"].input is None
    assert linears["model.layers.1.mlp.up_proj"].input is not None
    event = next(event for event in reporter.events if event.code == "range-of-zero")
    assert event.detail["units"] == {"model.layers.1.down": 128}


def test_channels_that_are_zero_throughout_are_an_event(model: Path, tmp_path: Path) -> None:
    def silence(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.2.mlp.up_proj.weight"][:5] = 0

    folder = damaged(model, tmp_path / "model", silence)
    reporter = RecordingReporter()
    quantize(inputs_for(folder, tmp_path), tmp_path / "out", W8A8, reporter=reporter)
    event = next(event for event in reporter.events if event.code == "dead-input-channels")
    assert event.detail["units"] == {"model.layers.2.down": 5}


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_range_that_is_not_finite_is_refused(value: float) -> None:
    collector = RangeCollector("block 3, down", 4)
    collector.add(torch.tensor([[1.0, value]]))
    with pytest.raises(QuantizationError, match="block 3, down: its input on the calibration text is NaN"):
        collector.finish()


def test_values_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    how, left = InputRange(0.1, 3), InputRange(0.004, 128)
    apart = replace(int8_weight(weight, torch.tensor([2, 5])), input=how, remainder=left)
    plain = int8_weight(weight)
    path = tmp_path / "block.safetensors"
    save_int8_block(path, Int8Block({"a": apart, "b": plain}, {"norm.weight": torch.arange(8.0)}))
    found = load_int8_block(path)
    for own, other in ((found.linears["a"], apart), (found.linears["b"], plain)):
        assert all(torch.equal(getattr(own, n), getattr(other, n)) for n in ("q", "scales"))
        assert (own.input, own.remainder) == (other.input, other.remainder)
        assert torch.equal(own.floating_channels, other.floating_channels)
        assert torch.equal(own.floating_weight, other.floating_weight)
    assert torch.equal(found.folds["norm.weight"], torch.arange(8.0))
    assert int8_linears(path) == {"a", "b"}


def test_another_file_is_not_taken_for_int8_values(
    inputs: dict[str, Path], output: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="does not hold INT8 values"):
        load_int8_block(ranges_file(output, 0))
    with pytest.raises(StoreError):
        load_block(int8_file(output, W8A8.id, 0))


def final_logits(decoder: EmulatedDecoder, ids: torch.Tensor, folder: Path) -> torch.Tensor:
    states = BlockPass(decoder, [ids], PassProgress(RecordingReporter(progress_folder=folder)))
    for index, block in states.blocks():
        states.run(index, block, lambda steps: None)
    return decoder.logits(decoder.final(states.hidden[0]))


def test_the_emulated_model_is_transformers_own_with_each_linear_replaced(
    output: Path, model: Path, tmp_path: Path
) -> None:
    ids = torch.randint(0, 400, (2, 24), generator=torch.Generator().manual_seed(5))
    decoder = EmulatedDecoder(model, partial(read_int8_block, output, W8A8.id))
    loaded = lossless(model)
    with ExitStack() as stack, torch.no_grad():
        for index in (*range(BLOCKS), None):
            for name, linear in read_int8_block(output, W8A8.id, index).linears.items():
                module = loaded.get_submodule(name)
                stack.enter_context(forwards_replaced([module], partial(emulate, linear)))
        expected = loaded(ids).logits
        found = final_logits(decoder, ids, tmp_path)
    plain = lossless(model)(ids).logits
    # Sums in another order send a few inputs to the neighbouring code.
    assert (found - expected).abs().mean() < 0.02 * (plain - expected).abs().mean()


@pytest.mark.parametrize("kind", ["llama", "gemma2", "phi3"])
def test_a_folded_model_computes_what_it_did_before(kind: str, tmp_path: Path) -> None:
    """Folds alone, in norms and rows, kept linears and heads included: with codes of none of its linears."""
    folder = random_model(tmp_path / "model", tiny_config(kind, num_key_value_heads=4))
    plain = EmulatedDecoder(folder, lambda index: Int8Block())
    family = plain.family
    generator = torch.Generator().manual_seed(1)
    for unit in ("qkv", "down"):
        fold = next(fold for fold in family.folds if fold.unit == unit)
        linear = family.units[unit][0]

        def values(index: int | None, fold: Any = fold, linear: str = linear, unit: str = unit) -> Int8Block:
            if index != 1:
                return Int8Block()
            prefix = family.block_name(1)
            weight = plain.reader.read(f"{prefix}.{linear}.weight").float()
            scale = torch.rand(weight.shape[1], generator=generator) + 0.5
            into = f"{prefix}.{fold.into}.weight"
            rows = plain.reader.shape(into)[0]
            by = torch.cat([torch.ones(rows - len(scale)), scale])
            linears = {
                f"{prefix}.{name}": int8_weight(plain.reader.read(f"{prefix}.{name}.weight").float() * scale)
                for name in family.units[unit]
            }
            return Int8Block(linears, {into: by})

        ids = torch.randint(0, 400, (1, 16), generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            expected = final_logits(plain, ids, tmp_path / f"plain-{unit}")
            found = final_logits(EmulatedDecoder(folder, values), ids, tmp_path / f"folded-{unit}")
        assert (found - expected).abs().mean() < 0.02 * expected.abs().mean()


def test_a_fold_into_what_is_not_there_is_refused(model: Path) -> None:
    values = Int8Block({}, {"model.no_norm.weight": torch.ones(64)})
    with pytest.raises(QuantizationError, match="the source has no such tensor"):
        EmulatedDecoder(model, lambda index: values)


def test_a_linear_alone_reads_unscaled_inputs_and_gives_unscaled_outputs() -> None:
    from quantflow.model.families import family_of

    generator = torch.Generator().manual_seed(0)
    up, x = torch.randn(12, 8, generator=generator), torch.randn(5, 8, generator=generator)
    rows, columns = torch.rand(12, generator=generator) + 0.5, torch.rand(8, generator=generator) + 0.5
    block = Int8Block(
        {"model.layers.0.mlp.up_proj": int8_weight(up * columns / rows.unsqueeze(1))},
        {
            "model.layers.0.mlp.up_proj.weight": rows,
            "model.layers.0.post_attention_layernorm.weight": columns,
        },
    )
    found = alone(block, family_of("llama"), "model.layers.0", "mlp.up_proj")(x)
    torch.testing.assert_close(found, x @ up.T, rtol=0.05, atol=0.1)

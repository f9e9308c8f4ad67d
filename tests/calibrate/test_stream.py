from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from quantflow.calibrate import statistics
from quantflow.calibrate.stream import CalibratedBlock, calibrate_blocks
from quantflow.errors import QuantizationError
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.forward import BlockPass
from quantflow.model.passes import PassProgress
from quantflow.model.weights import SafetensorsReader
from tests.reporting import RecordingReporter
from tests.tiny_models import random_model, tiny_config


def batches() -> list[torch.Tensor]:
    ids = torch.randint(0, 400, (6, 32), generator=torch.Generator().manual_seed(0))
    return [ids[:4], ids[4:]]


def decoder_of(folder: Path) -> StreamedDecoder:
    return StreamedDecoder(folder, SafetensorsReader(folder))


def calibrated(
    decoder: StreamedDecoder, tmp_path: Path, windows: int = 6, searched: tuple[str, ...] = ()
) -> Generator[CalibratedBlock]:
    ids = [batch for batch in torch.split(torch.cat(batches())[:windows], 4) if len(batch)]
    states = BlockPass(decoder, ids, PassProgress(RecordingReporter(progress_folder=tmp_path / "progress")))
    return calibrate_blocks(states, decoder.family.units, lambda batches: None, searched)


def test_statistics_are_those_of_a_plain_forward(tmp_path: Path) -> None:
    folder = random_model(tmp_path, tiny_config())
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=torch.float32)
    seen: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(
                lambda _, args, name=name: seen.__setitem__(name, args[0].reshape(-1, args[0].shape[-1]))
            )
    with torch.no_grad():
        model(torch.cat(batches()))
    decoder = decoder_of(folder)
    blocks = 0
    for block in calibrated(decoder, tmp_path):
        blocks += 1
        for unit, linears in decoder.family.units.items():
            x = seen[f"model.layers.{block.index}.{linears[0]}"]
            found = block.statistics[unit]
            assert found.tokens == 6 * 32
            torch.testing.assert_close(found.gram, x.T @ x, rtol=1e-4, atol=1e-3)
            torch.testing.assert_close(found.mean_abs, x.abs().mean(0), rtol=1e-4, atol=1e-5)
            assert found.sample is None
    assert blocks == 3


def test_each_block_is_read_once_and_freed(tmp_path: Path) -> None:
    folder = random_model(tmp_path, tiny_config())

    class CountingReader(SafetensorsReader):
        read_names: list[str] = []  # noqa: RUF012

        def read(self, name: str) -> torch.Tensor:
            self.read_names.append(name)
            return super().read(name)

    reader = CountingReader(folder)
    decoder = StreamedDecoder(folder, reader)
    for block in calibrated(decoder, tmp_path):
        loaded = [p for p in decoder._model.parameters() if not p.is_meta]
        assert len(loaded) == len(list(block.module.parameters()))
    assert len(reader.read_names) == len(set(reader.read_names))


def test_infinite_activations_are_refused_by_block_and_unit(tmp_path: Path) -> None:
    folder = random_model(tmp_path, tiny_config())
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.input_layernorm.weight"][3] = float("inf")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    decoder = decoder_of(folder)
    with pytest.raises(QuantizationError, match="block 1"):
        list(calibrated(decoder, tmp_path))


def test_a_pass_goes_on_after_the_last_block_that_was_taken(tmp_path: Path) -> None:
    folder = random_model(tmp_path / "model", tiny_config())
    whole = {block.index: block for block in calibrated(decoder_of(folder), tmp_path / "whole")}
    first = calibrated(decoder_of(folder), tmp_path / "cut")
    assert [next(first).index, next(first).index] == [0, 1]  # asking for 1 says that 0 is safe
    first.close()
    second = {block.index: block for block in calibrated(decoder_of(folder), tmp_path / "cut")}
    assert sorted(second) == [1, 2]
    for index, block in second.items():
        for unit, found in block.statistics.items():
            assert torch.equal(found.gram, whole[index].statistics[unit].gram)


def test_wide_inputs_keep_a_sample_of_tokens_that_favours_no_place_in_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "SAMPLED_TOKENS", 50)  # of 6 · 32 tokens: one of every four
    decoder = decoder_of(random_model(tmp_path, tiny_config()))
    hidden = torch.cat([decoder.embed(ids)[0] for ids in batches()])
    with decoder.loaded_block(0) as block:
        inputs = block.get_submodule("input_layernorm")(hidden).reshape(-1, 4, 64)
    sample = next(calibrated(decoder, tmp_path, searched=("qkv",))).statistics["qkv"].sample
    assert sample is not None and len(sample) == len(inputs)
    nearest = (inputs - sample.unsqueeze(1)).abs().amax(-1)
    assert nearest.amin(1).max() < 1e-5
    taken = nearest.argmin(1).bincount(minlength=4)
    assert taken.min() > 4  # of 48


def test_fewer_tokens_than_inputs_are_all_sampled_where_a_scale_is_searched(tmp_path: Path) -> None:
    decoder = decoder_of(random_model(tmp_path, tiny_config()))
    found = next(calibrated(decoder, tmp_path, windows=3, searched=("qkv", "down"))).statistics
    assert found["down"].sample is not None and found["down"].sample.shape == (3 * 32, 128)
    torch.testing.assert_close(
        found["down"].sample.T @ found["down"].sample, found["down"].gram, rtol=1e-4, atol=1e-6
    )
    # 96 tokens are more than its 64 inputs, and nothing searches a scale for `gate_up` and `o`.
    assert [found[unit].sample for unit in ("qkv", "o", "gate_up")] == [None] * 3


def test_a_gram_matrix_summed_up_by_panels_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = decoder_of(random_model(tmp_path, tiny_config()))
    whole = next(calibrated(decoder, tmp_path / "a")).statistics
    monkeypatch.setattr(statistics, "PANEL", 48)
    panels = next(calibrated(decoder, tmp_path / "b")).statistics
    for unit in whole:
        torch.testing.assert_close(panels[unit].gram, whole[unit].gram, rtol=1e-5, atol=1e-4)

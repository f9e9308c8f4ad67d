"""Exact scores: the same as one full forward for each unit, for a part of the work."""

from pathlib import Path
from typing import Any

import pytest
import torch

from quantflow.pipeline.pace import Pace
from quantflow.sensitivity import exact
from quantflow.sensitivity.exact import exact_scores
from quantflow.sensitivity.measured import NOTHING
from quantflow.sensitivity.spent import ForwardParts
from quantflow.sensitivity.swap import WeightSwaps
from tests.reporting import RecordingReporter
from tests.sensitivity.scanning import AWQ, RTN, Ground, ground, naive_kl, scan_inputs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Ground:
    inputs = scan_inputs(tmp_path_factory.mktemp("scan"), tiny_llama, (AWQ, RTN))
    return ground(inputs, tiny_llama, (AWQ, RTN))


def test_exact_equals_one_full_forward_for_each_unit(made: Ground) -> None:
    measured = exact_scores(made.boundaries, made.codes, made.keys, RecordingReporter())
    text = made.boundaries.text
    for key in made.keys[::5]:
        assert text.mean(measured.sums[key]) == pytest.approx(naive_kl(made.model, made, key), abs=1e-6)
    assert min(text.mean(measured.sums[key]) for key in made.keys) > 0


def test_a_stream_in_which_nothing_is_swapped_is_the_lossless_model(made: Ground) -> None:
    measured = exact_scores(made.boundaries, made.codes, made.keys[:2], RecordingReporter(), control=0)
    assert not measured.sums[NOTHING].any()


def test_cost_is_counted_as_the_blocks_that_really_run(made: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = made.boundaries.decoder
    passes: list[int] = []
    call = type(made.boundaries).call

    def counted(self: Any, block: int, number: int) -> Any:
        passes.append(block)
        return call(self, block, number)

    monkeypatch.setattr(type(made.boundaries), "call", counted)
    measured = exact_scores(made.boundaries, made.codes, made.keys, RecordingReporter(), control=0)
    parts = ForwardParts.of(decoder)
    streams = len(made.keys) + 1
    blocks = len(passes) / len(made.boundaries.text.batches)
    assert sum(measured.forwards.values()) == pytest.approx(blocks * parts.block + (streams + 1) * parts.head)


def test_many_waves_find_the_same_as_one(made: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exact_scores(made.boundaries, made.codes, made.keys[:6], RecordingReporter())
    monkeypatch.setattr(exact, "STREAM_BYTES", 1)
    apart = exact_scores(made.boundaries, made.codes, made.keys[:6], RecordingReporter())
    assert all((whole.sums[key] == apart.sums[key]).all() for key in whole.sums)


def test_an_interrupted_wave_goes_on_after_its_last_block(
    made: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter, run_block = RecordingReporter(), exact._pass_block
    seen: list[int] = []

    def broken(*args: Any) -> None:
        seen.append(args[2])
        if len(seen) == 3:
            raise KeyboardInterrupt
        run_block(*args)

    monkeypatch.setattr(exact, "_pass_block", broken)
    monkeypatch.setattr(Pace, "due", True)
    with pytest.raises(KeyboardInterrupt):
        exact_scores(made.boundaries, made.codes, made.keys, reporter)
    again = exact_scores(made.boundaries, made.codes, made.keys, reporter)
    assert seen == [0, 1, 2, 2]
    whole = exact_scores(made.boundaries, made.codes, made.keys, RecordingReporter())
    assert all((whole.sums[key] == again.sums[key]).all() for key in whole.sums)
    assert again.sizes == whole.sizes
    exact_scores(made.boundaries, made.codes, made.keys, reporter)
    assert len(seen) == 4 + 3


def test_a_unit_swapped_alone_differs_from_the_lossless_one_by_rounding_only(made: Ground) -> None:
    """Scales folded into norms and linears are undone: what the swap leaves is within the grid's step."""
    swaps = made.codes[AWQ.id].open(0)
    decoder = made.boundaries.decoder
    assert isinstance(swaps, WeightSwaps)
    assert swaps.codes.folds
    with decoder.loaded_block(0) as block:
        for name in decoder.family.linears:
            lossless = block.get_submodule(name).get_parameter("weight")
            error = torch.linalg.norm(swaps.weight(name) - lossless) / torch.linalg.norm(lossless)
            assert float(error) < 0.25, name

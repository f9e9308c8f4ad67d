"""Fisher's estimate: near the exact KL where quantization is fine, from one pass forwards and one back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantflow.data.windows import SELECTION_FILE
from quantflow.sensitivity import fisher
from quantflow.sensitivity.exact import exact_scores
from quantflow.sensitivity.fisher import fisher_scores
from quantflow.sensitivity.logits import loss_gradients
from quantflow.sensitivity.measured import NOTHING
from quantflow.sensitivity.scores import rank_correlation
from quantflow.sensitivity.spent import ForwardParts
from tests.reporting import RecordingReporter
from tests.sensitivity.scanning import AWQ, RTN, Ground, ground, scan_inputs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> dict[str, Path]:
    return scan_inputs(tmp_path_factory.mktemp("scan"), tiny_llama, (AWQ, RTN), windows=8)


@pytest.fixture(scope="module")
def made(inputs: dict[str, Path], tiny_llama: Path) -> Ground:
    return ground(inputs, tiny_llama, (AWQ, RTN))


def scores(made: Ground, reporter: Any = None) -> Any:
    return fisher_scores(made.boundaries, made.codes, reporter or RecordingReporter(), "Estimating")


def test_it_ranks_as_exact_does_and_comes_near_its_values(made: Ground) -> None:
    estimated, text = scores(made), made.boundaries.text
    exact = exact_scores(made.boundaries, made.codes, made.keys, RecordingReporter())
    for precision in made.codes:
        keys = [key for key in made.keys if key[1] == precision]
        first, second = ([text.mean(found.sums[key]) for key in keys] for found in (estimated, exact))
        correlation = rank_correlation(first, second)
        assert correlation is not None
        assert correlation > 0.85
        assert 0.5 < sum(first) / sum(second) < 2


def test_swapping_nothing_changes_nothing(made: Ground) -> None:
    assert not scores(made).sums[NOTHING].any()


def test_a_further_candidate_costs_less_than_a_forward(made: Ground) -> None:
    first, both = (
        sum(fisher_scores(made.boundaries, codes, RecordingReporter(), "Estimating").forwards.values())
        for codes in ({AWQ.id: made.codes[AWQ.id]}, made.codes)
    )
    parts = ForwardParts.of(made.boundaries.decoder)
    assert both - first == pytest.approx(1 - parts.head)
    # The lossless states before every block are the boundaries': the head's part is counted here.
    assert first + (1 - parts.head) < 4 + parts.block


def test_an_interrupted_pass_goes_on_after_its_last_block(
    made: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter, differentiate = RecordingReporter(), fisher._BlockWork.differentiate
    seen: list[int] = []

    def broken(self: Any, number: int, gradient: Any) -> Any:
        seen.append(self._index)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return differentiate(self, number, gradient)

    monkeypatch.setattr(fisher._BlockWork, "differentiate", broken)
    with pytest.raises(KeyboardInterrupt):
        scores(made, reporter)
    again = scores(made, reporter)
    batches = len(made.boundaries.text.batches)
    assert batches == 4
    assert seen == [2] * 4 + [1] * 2 + [1] * 4 + [0] * 4
    whole = scores(made)
    assert whole.forwards == again.forwards
    assert all((whole.sums[key] == again.sums[key]).all() for key in whole.sums)


def test_padding_and_what_is_context_only_carry_no_loss(inputs: dict[str, Path], tiny_llama: Path) -> None:
    own = ground(inputs, tiny_llama, split=SELECTION_FILE)
    decoder, text = own.boundaries.decoder, own.boundaries.text
    assert any((batch.lengths < batch.ids.shape[1]).any() for batch in text.batches)
    gradients = loss_gradients(decoder, text, lambda n: own.boundaries.state(decoder.num_blocks, n))
    for batch, gradient in zip(text.batches, gradients, strict=True):
        for row, length in enumerate(batch.lengths):
            assert not gradient[row, length - 1 :].any()
            assert gradient[row, : length - 1].abs().amax(-1).gt(0).all()


def test_the_mean_square_of_the_loss_gradient_is_the_information_of_the_predictions(made: Ground) -> None:
    """Over many draws of labels, g·gᵀ at a final state comes to J·(diag(p) − p·pᵀ)·Jᵀ."""
    decoder, text = made.boundaries.decoder, made.boundaries.text
    last = decoder.num_blocks
    state = made.boundaries.state(last, 0)
    direction = torch.randn(state.shape[-1], generator=torch.Generator().manual_seed(0))

    def draw(seed: int) -> float:
        gradient = next(loss_gradients(decoder, text, lambda n: made.boundaries.state(last, n), seed))
        return float((gradient @ direction).square().sum())

    drawn = np.array([draw(1000 * seed) for seed in range(40)])
    with torch.no_grad():
        step = 1e-2
        logits = [decoder.logits(decoder.final(state + s * direction)).double() for s in (step, -step, 0)]
        moved = (logits[0] - logits[1])[:, :-1] / (2 * step)
        p = logits[2].softmax(-1)[:, :-1]
        information = float(((p * moved.square()).sum(-1) - (p * moved).sum(-1).square()).sum())
    assert drawn.mean() == pytest.approx(information, abs=4 * drawn.std() / np.sqrt(len(drawn)))
    assert drawn.std() / np.sqrt(len(drawn)) < 0.1 * information

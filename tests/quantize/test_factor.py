"""The factor that GPTQ rounds by: right, in place, and damped until it exists."""

import pytest
import torch
from torch import Tensor

from quantflow.errors import QuantizationError
from quantflow.quantize import factor
from quantflow.quantize.factor import HARDER, TRIES, factorize


def gram_of(inputs: int, tokens: int, seed: int = 0) -> Tensor:
    x = torch.randn(tokens, inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.T @ x


def damped(gram: Tensor, damping: float) -> Tensor:
    return gram + damping * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)


@pytest.mark.parametrize("inputs", [1, 5, 16, 17, 40])
@pytest.mark.parametrize("by_activation", [False, True])
def test_a_factor_times_its_transpose_is_the_damped_matrix_in_reverse_order(
    monkeypatch: pytest.MonkeyPatch, inputs: int, by_activation: bool
) -> None:
    monkeypatch.setattr(factor, "PANEL", 16)
    monkeypatch.setattr(factor, "CORNER", 8)
    gram = gram_of(inputs, 100)
    found = factorize(gram.clone(), damping=0.05, by_activation=by_activation)
    order = torch.argsort(gram.diagonal(), descending=True) if by_activation else torch.arange(inputs)
    assert torch.equal(found.columns, order.flip(0))
    lower = found.lower.tril()
    expected = damped(gram, 0.05)[found.columns][:, found.columns]
    torch.testing.assert_close(lower @ lower.T, expected)
    assert (found.damping, found.tries) == (0.05, 0)


def test_shrinkage_weakens_what_is_off_the_diagonal_alone() -> None:
    gram = gram_of(40, 100)
    lower = factorize(gram.clone(), damping=0.05, shrinkage=0.25).lower.tril()
    expected = 0.75 * gram
    expected.diagonal().copy_(gram.diagonal())
    torch.testing.assert_close(lower @ lower.T, damped(expected, 0.05).flip(0, 1))


def test_the_matrix_is_factorised_where_it_lies() -> None:
    gram = gram_of(600, 700)
    assert factorize(gram, damping=0.01).lower.data_ptr() == gram.data_ptr()


def test_damping_is_raised_until_the_matrix_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factor, "PANEL", 16)
    monkeypatch.setattr(factor, "CORNER", 8)
    # Not positive: its lowest eigenvalue is a twentieth of the diagonal below zero, in the last columns.
    gram = gram_of(40, 4000)
    values, vectors = torch.linalg.eigh(gram)
    values[0] = -0.05 * gram.diagonal().mean()
    gram = vectors @ torch.diag(values) @ vectors.T
    gram = (gram + gram.T) / 2
    found = factorize(gram.clone(), damping=0.001)
    assert found.tries == 2
    assert found.damping == pytest.approx(0.1)
    lower = found.lower.tril()
    expected = damped(gram, found.damping)[found.columns][:, found.columns]
    torch.testing.assert_close(lower @ lower.T, expected)


def test_a_matrix_that_no_damping_helps_is_refused() -> None:
    hopeless = torch.eye(8) - 1000 * torch.ones(8, 8)
    with pytest.raises(QuantizationError, match="does not factor, however much"):
        factorize(hopeless.fill_diagonal_(1), damping=0.01)
    assert 0.01 * HARDER**TRIES >= 1000


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [(3, 3), (2, 30)])
def test_what_is_not_finite_is_refused(bad: float, place: tuple[int, int]) -> None:
    gram = gram_of(40, 100)
    gram[place] = bad
    with pytest.raises(QuantizationError, match="NaN or infinite"):
        factorize(gram, damping=0.01)

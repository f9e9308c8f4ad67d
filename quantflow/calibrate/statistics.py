"""Statistics of a unit's input, collected while the calibration tokens pass."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantflow.errors import QuantizationError
from quantflow.quantize.search_space import SAMPLED_TOKENS
from quantflow.quantize.sizes import PANEL


@dataclass(frozen=True)
class InputStatistics:
    """What is known of a unit's input over all calibration tokens.

    Attributes:
        gram: float32 `[d_in, d_in]`, Σ x·xᵀ.
        mean_abs: float32 `[d_in]`, mean |x|.
        sample: float32 `[sampled, d_in]`, the input at tokens drawn at random, one of every so many, at all
            of them where they are few; None where nothing asks for it, or where it is no wider than there
            would be tokens in it, so that what the Gram matrix says costs no more.
        tokens: Tokens seen.
    """

    gram: Tensor
    mean_abs: Tensor
    sample: Tensor | None
    tokens: int


class InputCollector:
    """A forward pre-hook that sums up what a linear is called with.

    Args:
        linear: The linear to listen to.
        name: Its full name, for messages.
        tokens: Tokens that will pass in all.
        searched: Whether a scale will be searched for it, which a sample may make cheaper.
    """

    def __init__(self, linear: nn.Module, name: str, tokens: int, *, searched: bool = False) -> None:
        weight = linear.get_parameter("weight")
        size, device = weight.shape[1], weight.device
        self._name = name
        self._gram = torch.zeros(size, size, dtype=torch.float32, device=device)
        self._sum_abs = torch.zeros(size, dtype=torch.float32, device=device)
        self._tokens = 0
        self._sampled = one_of_every(math.ceil(tokens / SAMPLED_TOKENS), tokens)
        samples = searched and size > min(SAMPLED_TOKENS, tokens)
        self._sample = torch.empty(len(self._sampled), size, device=device) if samples else None
        self._handle = linear.register_forward_pre_hook(self._collect)

    def finish(self) -> InputStatistics:
        """Stop listening.

        Raises:
            QuantizationError: An input was NaN or infinite, or no token passed.
        """
        self._handle.remove()
        if not self._tokens or not bool(torch.isfinite(self._sum_abs).all()):
            raise QuantizationError(
                "its input on the calibration text is NaN or infinite",
                where=self._name,
                hint="the model itself overflows there; check its weights, or its dtype",
            )
        size = len(self._gram)
        for begin in range(0, size, PANEL):
            end = min(begin + PANEL, size)
            self._gram[begin:end, end:] = self._gram[end:, begin:end].T
        mean_abs = self._sum_abs / self._tokens
        return InputStatistics(self._gram, mean_abs, self._sample, self._tokens)

    def _collect(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        x = args[0].reshape(-1, args[0].shape[-1]).float()
        for begin in range(0, x.shape[1], PANEL):  # it is symmetric: what is above them need not be summed
            end = begin + PANEL
            self._gram[begin:, begin:end].addmm_(x[:, begin:].T, x[:, begin:end])
        self._sum_abs += x.abs().sum(0)
        if self._sample is not None:
            ends = torch.tensor([self._tokens, self._tokens + len(x)])
            first, last = torch.searchsorted(self._sampled, ends).tolist()
            self._sample[first:last] = x[(self._sampled[first:last] - self._tokens).to(x.device)]
        self._tokens += x.shape[0]


def one_of_every(many: int, tokens: int) -> Tensor:
    """Positions drawn at random, one of each stretch of `many` tokens, the same ones every time.

    Evenly spaced ones would fall on the first token of every window, or on none, where lengths divide.
    """
    stretches = torch.arange(0, tokens, many)
    drawn = torch.randint(many, stretches.shape, generator=torch.Generator().manual_seed(0))
    return (stretches + drawn).clamp_(max=tokens - 1)

"""Statistics of a unit's input, collected while the calibration tokens pass."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quantflow.errors import QuantizationError


@dataclass(frozen=True)
class InputStatistics:
    """What is known of a unit's input over all calibration tokens.

    Attributes:
        gram: float32 `[d_in, d_in]`, Σ x·xᵀ.
        mean_abs: float32 `[d_in]`, mean |x|.
        tokens: Tokens seen.
    """

    gram: Tensor
    mean_abs: Tensor
    tokens: int


class InputCollector:
    """A forward pre-hook that sums up what a linear is called with.

    Args:
        linear: The linear to listen to.
        name: Its full name, for messages.
    """

    def __init__(self, linear: nn.Module, name: str) -> None:
        weight = linear.get_parameter("weight")
        size, device = weight.shape[1], weight.device
        self._name = name
        self._gram = torch.zeros(size, size, dtype=torch.float32, device=device)
        self._sum_abs = torch.zeros(size, dtype=torch.float32, device=device)
        self._tokens = 0
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
        return InputStatistics(self._gram, self._sum_abs / self._tokens, self._tokens)

    def _collect(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        x = args[0].reshape(-1, args[0].shape[-1]).float()
        self._gram.addmm_(x.T, x)  # in place, so in float32 even where the forward around it is in bfloat16
        self._sum_abs += x.abs().sum(0)
        self._tokens += x.shape[0]

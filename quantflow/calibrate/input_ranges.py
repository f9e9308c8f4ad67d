"""What the inputs of a unit range over: the extremes of every channel, and a sample to find ranges on."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from quantflow.calibrate.statistics import one_of_every
from quantflow.errors import QuantizationError, StoreError
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.quantize.sizes import RANGE_TOKENS


@dataclass(frozen=True)
class InputRanges:
    """What is known of the range of a unit's input over all calibration tokens.

    Attributes:
        low: float32 `[d_in]`, the least value of every channel.
        high: float32 `[d_in]`, the largest.
        sample: bfloat16 `[sampled, d_in]`, the input at tokens drawn at random, one of every so many.
        tokens: Tokens seen.
    """

    low: Tensor
    high: Tensor
    sample: Tensor
    tokens: int


class RangeCollector:
    """Sees a unit's inputs pass, as a forward pre-hook of its first linear or called by itself.

    Args:
        name: Of the unit, for messages.
        tokens: Tokens that will pass in all.
    """

    def __init__(self, name: str, tokens: int) -> None:
        self._name = name
        self._seen = 0
        self._sampled = one_of_every(math.ceil(tokens / RANGE_TOKENS), tokens)
        self._sample: list[Tensor] = []
        self._low: Tensor | None = None
        self._high: Tensor | None = None
        self._handle: RemovableHandle | None = None

    def listen(self, linear: nn.Module) -> "RangeCollector":
        """See what a linear is called with, until `finish`."""
        self._handle = linear.register_forward_pre_hook(lambda module, args: self.add(args[0]))
        return self

    def add(self, inputs: Tensor) -> None:
        """Take inputs `[..., d_in]`."""
        x = inputs.reshape(-1, inputs.shape[-1]).float()
        low, high = x.amin(0), x.amax(0)
        self._low = low if self._low is None else torch.minimum(self._low, low)
        self._high = high if self._high is None else torch.maximum(self._high, high)
        ends = torch.tensor([self._seen, self._seen + len(x)])
        first, last = torch.searchsorted(self._sampled, ends).tolist()
        chosen = x[(self._sampled[first:last] - self._seen).to(x.device)]
        self._sample.append(chosen.to("cpu", torch.bfloat16))
        self._seen += len(x)

    def finish(self) -> InputRanges:
        """What was seen; stop listening.

        Raises:
            QuantizationError: An input was NaN or infinite, or none came.
        """
        if self._handle is not None:
            self._handle.remove()
        low, high = self._low, self._high
        if low is None or high is None or not bool(torch.isfinite(low).all() & torch.isfinite(high).all()):
            raise QuantizationError(
                "its input on the calibration text is NaN or infinite",
                where=self._name,
                hint="the model itself overflows there; check its weights, or its dtype",
            )
        return InputRanges(low.cpu(), high.cpu(), torch.cat(self._sample), self._seen)


def ranges_file(stage_output: Path, index: int | None) -> Path:
    """Where the quantize stage keeps the input ranges of a block, or of the head where that is None."""
    name = "head" if index is None else f"block-{index:05d}"
    return stage_output / "inputs" / f"{name}.safetensors"


def save_ranges(path: Path, ranges: dict[str, InputRanges]) -> None:
    """Write ranges by unit: equal ranges give equal bytes, and the file appears complete or not at all."""
    tensors = {
        f"{part}:{unit}": tensor
        for unit, own in ranges.items()
        for part, tensor in (("low", own.low), ("high", own.high), ("sample", own.sample))
    }
    specs = [TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    tokens = {unit: str(own.tokens) for unit, own in ranges.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_safetensors(path, specs, tensors.items(), tokens)


def load_ranges(path: Path) -> dict[str, InputRanges]:
    """Read what `save_ranges` wrote: unit → ranges.

    Raises:
        StoreError: The file is missing or damaged.
    """
    file = SafetensorsFile(path, error=StoreError)
    return {
        unit: InputRanges(
            low=file.read(f"low:{unit}"),
            high=file.read(f"high:{unit}"),
            sample=file.read(f"sample:{unit}"),
            tokens=int(tokens),
        )
        for unit, tokens in file.metadata.items()
    }

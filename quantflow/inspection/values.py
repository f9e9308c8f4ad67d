"""Whether a checkpoint's weights are numbers."""

import math

import torch

from quantflow.errors import SourceError
from quantflow.inspection.tensors import MOST_NAMED, in_order
from quantflow.model.weights import SafetensorsReader
from quantflow.pipeline.events import Reporter


def check_values(reader: SafetensorsReader, reporter: Reporter) -> None:
    """Read every weight once, a piece at a time, and look for what is no number.

    Raises:
        SourceError: A tensor holds NaN or infinite values; names the first and how many there are.
    """
    names = sorted(reader.names(), key=in_order)
    bad: dict[str, tuple[int, int]] = {}
    zero = []
    with reporter.track("Looking through the weights, tensors", len(names)) as advance:
        for name in names:
            spec = reader.spec(name)
            if spec.dtype.is_floating_point:
                wrong, largest = _look_through(reader, name)
                if wrong:
                    bad[name] = (wrong, math.prod(spec.shape))
                elif largest == 0 and len(spec.shape) > 1:
                    zero.append(name)
            advance(1)
    if bad:
        first, (wrong, values) = next(iter(bad.items()))
        raise SourceError(
            f"{len(bad)} of {len(names)} tensors hold values that are no finite numbers; the first is "
            f"{first}, {wrong} of its {values} values",
            where=str(reader.folder),
            hint="The model is damaged, or was saved in a type that its values do not fit.",
        )
    if zero:
        reporter.event(
            "weights-all-zero",
            f"{len(zero)} weights are zero throughout, the first {zero[0]}: a download or a copy that lost "
            "its content looks like that.",
            tensors=list(zero[:MOST_NAMED]),
        )


def _look_through(reader: SafetensorsReader, name: str) -> tuple[int, float]:
    """How many values are not finite, and the largest magnitude."""
    wrong, largest = 0, 0.0
    for chunk in reader.chunks(name):
        # One pass for both ends: NaN comes through it as NaN.
        low, high = (float(bound) for bound in torch.aminmax(chunk))
        if math.isfinite(low) and math.isfinite(high):
            largest = max(largest, abs(low), abs(high))
        else:
            wrong += int((~torch.isfinite(chunk)).sum())
    return wrong, largest

"""Whether two models' samples are of the same tokens of the same documents: else nothing is compared."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantflow.measure.measurement import Samples


def pairing_problem(
    document: NDArray[np.int32], target: NDArray[np.integer], sampled: Sequence[Samples]
) -> str | None:
    """Why samples cannot be paired by position with the evaluation data and one another; None where they can.

    Args:
        document: Document of every position that had to be scored, in order, [positions].
        target: The token that came at each of them, [positions].
        sampled: Samples, the baseline's first.
    """
    for number, samples in enumerate(sampled):
        whose = "artifact" if number else "baseline"
        lengths = {samples.document.size, samples.nll.size}
        optional = (samples.target, samples.kl, samples.kl_at_least, samples.top1)
        lengths |= {values.size for values in optional if values is not None}
        if len(lengths) > 1:
            return f"The {whose}'s samples have several lengths: {', '.join(map(str, sorted(lengths)))}."
        if samples.document.size != document.size:
            return (
                f"The {whose} was scored at {samples.document.size} positions where the evaluation data "
                f"has {document.size}, so the pairs do not match."
            )
        if samples.target is None:
            return f"The {whose}'s samples do not say which tokens they are of, so they cannot be paired."
        for what, expected, found in (
            ("documents", document, samples.document),
            ("tokens", target, samples.target),
        ):
            differing = np.flatnonzero(found != expected)
            if differing.size:
                return (
                    f"The {whose} was scored on other {what} than the evaluation data holds "
                    f"(first at position {differing[0]}), so the pairs do not match."
                )
    return None

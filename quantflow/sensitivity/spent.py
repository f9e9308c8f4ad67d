"""What a scan costs, counted in whole forwards over its text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quantflow.model.decoder import StreamedDecoder
from quantflow.quantize.stage import head_share


@dataclass(frozen=True)
class ForwardParts:
    """What the parts of a model are of one forward's arithmetic.

    Attributes:
        block: One block's share.
        head: The head's share.
    """

    block: float
    head: float

    @classmethod
    def of(cls, decoder: StreamedDecoder) -> "ForwardParts":
        """Those of a model."""
        head = head_share(decoder)
        return cls((1 - head) / decoder.num_blocks, head)

    def suffix(self, first: int, blocks: int) -> float:
        """What running from a block to the logits takes."""
        return (blocks - first) * self.block + self.head


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Forwards by step, summed up."""
    total: dict[str, float] = {}
    for part in parts:
        for step, forwards in part.items():
            total[step] = total.get(step, 0.0) + forwards
    return total

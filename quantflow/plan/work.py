"""Work, counted: what a stage does in kinds whose speed can be measured, and what it holds and writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

K = TypeVar("K")
# Tensors up to this size find room in what the process has; larger ones are given back when they are freed:
# where a few are alive at a time, and where so many are that glibc trims its heap (64 MiB) over and over.
LARGEST_REUSED, LARGEST_REUSED_AMONG_MANY = 32 << 20, 8 << 20
Kind = Literal[
    "bf16",  # floating-point operations of products in bfloat16
    "elementwise",  # numbers of a float32 tensor, one pass
    "fresh",  # bytes of memory that the system has to give, cleared, to a tensor
    "rounding",  # weights fitted to a grid and rounded to it
    "converting",  # numbers from 16 bits to float32
    "packing",  # weights from codes to AWQ's layout
    "unpacking",  # weights from AWQ's layout to float32
    "attention",  # floating-point operations, the masked half counted
    "scoring",  # logits to log-likelihoods
    "comparing",  # logits of two models to log-likelihoods and KL
    "second",  # seconds, where a sample of the very work was timed
    "call",  # calls of torch on tensors too small to matter
    "block",  # decoder blocks of an empty model
    "writing",  # bytes to disk, flushed
    "reading",  # bytes from disk, cached by the system
    "hashing",  # bytes through SHA-256
]


@dataclass(frozen=True)
class Work:
    """Amounts of work, which add up.

    Attributes:
        matmuls: Smallest of a product's three sizes → floating-point operations in such products.
        amounts: Kind of work → amount, in the unit said at `Kind`.
    """

    matmuls: Mapping[int, float] = field(default_factory=dict)
    amounts: Mapping[Kind, float] = field(default_factory=dict)

    def __add__(self, other: "Work") -> "Work":
        """Both."""
        return Work(_added(self.matmuls, other.matmuls), _added(self.amounts, other.amounts))

    def in_bfloat16(self) -> "Work":
        """The same with its products in bfloat16."""
        return Work({}, _added(self.amounts, {"bf16": sum(self.matmuls.values())}))

    def times(self, count: float) -> "Work":
        """The same `count` times over."""
        return Work(
            {width: count * amount for width, amount in self.matmuls.items()},
            {kind: count * amount for kind, amount in self.amounts.items()},
        )


def matmul(rows: float, inner: float, columns: float) -> Work:
    """A product of `[rows, inner]` and `[inner, columns]`."""
    return Work({max(1, int(min(rows, inner, columns))): 2.0 * rows * inner * columns})


def amounts(**kinds: float) -> Work:
    """Work by kind; names are those of `Kind`."""
    return Work({}, kinds)  # type: ignore[arg-type]


def fresh(rows: float, columns: float, tensors: float, *, reused: int = LARGEST_REUSED) -> Work:
    """Tensors `[rows, columns]` in memory from the system; those of up to `reused` bytes cost nothing."""
    size = rows * columns * 4
    return amounts(fresh=tensors * size) if size > reused else Work()


def _added(one: Mapping[K, float], two: Mapping[K, float]) -> dict[K, float]:
    return {key: one.get(key, 0.0) + two.get(key, 0.0) for key in {**one, **two}}


@dataclass(frozen=True)
class Cost:
    """What a stage takes.

    Attributes:
        work: What it does; None where that cannot be told.
        host_bytes: Most main memory it holds beside the program itself; None where that cannot be told.
        device_bytes: Most memory of a GPU that it holds; 0 where it computes on the processor.
        disk_bytes: What it writes to the workspace; None where that cannot be told.
        scratch_bytes: Disk that it takes besides while it runs, to be able to go on after an interruption.
        unknown: What cannot be told and why, a sentence.
    """

    work: Work | None = None
    host_bytes: int | None = None
    device_bytes: int = 0
    disk_bytes: int | None = None
    scratch_bytes: int = 0
    unknown: str = ""

"""One decoder block: from its weights and statistics to the codes of every scheme and the folds they assume.

What schemes have in common is made once: weights are read once, statistics are of the one forward, scale
searches serve AWQ with and without GPTQ's rounding, and a factorisation serves all linears of a unit and
every scheme that damps alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from quantflow.calibrate.statistics import InputStatistics
from quantflow.calibrate.stream import CalibratedBlock
from quantflow.errors import QuantizationError
from quantflow.model.families import Family, Fold
from quantflow.quantize.awq import ScaleChoice, search_scale
from quantflow.quantize.codes import BlockCodes, LinearCodes, grid_codes
from quantflow.quantize.factor import Factor, factorize
from quantflow.quantize.folds import divisor, folds_that_hold, scaled_weight, storable
from quantflow.quantize.gptq import quantize_gptq
from quantflow.quantize.grid import GridKind, fit_grid, search_grid
from quantflow.quantize.params import Scheme
from quantflow.quantize.rtn import quantize_rtn
from quantflow.quantize.search_space import NEVER_CLIPPED, SHRINKAGE, SHRINKS


@dataclass(frozen=True)
class Notice:
    """Something about a unit that changed its codes or may have.

    Attributes:
        code: Of the event that comes of it.
        unit: Full name of the unit, e.g. `model.layers.0.down`.
        figure: How much of it: channels, damping.
    """

    code: str
    unit: str
    figure: float


@dataclass
class QuantizedBlock:
    """A block's codes in one scheme and how they were chosen.

    Attributes:
        linears: Full name of a linear → its codes.
        folds: Full name of a parameter → the scale it is divided by.
        choices: Unit → its scale search; only units that a scale can be folded before.
    """

    linears: dict[str, LinearCodes] = field(default_factory=dict)
    folds: dict[str, Tensor] = field(default_factory=dict)
    choices: dict[str, ScaleChoice] = field(default_factory=dict)

    @property
    def codes(self) -> BlockCodes:
        """What is stored."""
        return BlockCodes(linears=self.linears, folds=self.folds)


def grid_kind(scheme: Scheme) -> GridKind:
    """The grids of a scheme; all but AWQ's can be stored in AutoGPTQ's layout."""
    return GridKind(scheme.bits, scheme.symmetric, lowest_zero_point=0 if "awq" in scheme.method else 1)


@torch.no_grad()
def quantize_block(
    block: CalibratedBlock, family: Family, schemes: Sequence[Scheme], *, stored_as: torch.dtype
) -> tuple[dict[str, QuantizedBlock], tuple[Notice, ...]]:
    """Choose channel scales unit by unit where a scheme has them, then round every linear.

    A unit whose inputs a scheme's groups do not divide gets no codes in it: who asks for it keeps that unit.

    Args:
        block: A block with its lossless weights and the statistics of its units' inputs, which are used up.
        family: Its units and folds.
        schemes: What to quantize in.
        stored_as: Dtype of the artifact's norms.

    Returns:
        Id of a scheme → what came of it, and what is to be said about units.

    Raises:
        QuantizationError: A weight is not finite or beyond what the formats can hold.
    """
    prefix = family.block_name(block.index)
    weights = {name: _weight(block.module, name, prefix) for name in family.linears}
    folds = folds_that_hold(family, weights)
    results = {scheme.id: QuantizedBlock() for scheme in schemes}
    searched: dict[tuple[GridKind, int], dict[str, ScaleChoice]] = {}
    for scheme in schemes:
        if "awq" not in scheme.method:
            continue
        key = (grid_kind(scheme), scheme.group_size)
        if key not in searched:
            searched[key] = _search_scales(block, family, weights, folds, scheme, stored_as)
        result = results[scheme.id]
        result.choices = searched[key]
        for unit, choice in result.choices.items():
            fold = folds[unit]
            outputs = len(weights[fold.into]) if fold.into in weights else 0
            scale = divisor(fold, choice.scale, outputs)
            result.folds[f"{prefix}.{fold.into}.weight"] = scale.cpu()
    # Samples are for the searches alone.
    block.statistics.update({unit: replace(own, sample=None) for unit, own in block.statistics.items()})
    notices: list[Notice] = []
    for unit in family.units:
        work = _UnitWork(prefix, unit, {n: weights[n] for n in family.units[unit]}, folds, results, notices)
        own = block.statistics.pop(unit, None)  # a Gram matrix can be half of all that is held
        width = work.weights[family.units[unit][0]].shape[1]
        fitting = [scheme for scheme in schemes if scheme.divides(width)]
        with _named(f"{prefix}.{unit}"):
            _look_at(work, own, fitting)
            _round_unit(work, own, fitting)
    return results, tuple(notices)


@dataclass(frozen=True)
class _UnitWork:
    """A unit whose linears are to be rounded, and where the outcome goes."""

    prefix: str
    unit: str
    weights: Mapping[str, Tensor]
    folds: Mapping[str, Fold]
    results: Mapping[str, QuantizedBlock]
    notices: list[Notice]

    def scale(self, scheme: Scheme) -> Tensor | None:
        """The unit's channel scale in a scheme, if it has one."""
        choice = self.results[scheme.id].choices.get(self.unit)
        return None if choice is None else choice.scale

    def prepared(self, name: str, scheme: Scheme) -> Tensor:
        """A linear's weight as a scheme rounds it."""
        scales = {unit: choice.scale for unit, choice in self.results[scheme.id].choices.items()}
        folds = {unit: self.folds[unit] for unit in scales}
        return scaled_weight(name, self.weights[name], self.unit, folds, scales)

    def keep(self, name: str, scheme: Scheme, codes: LinearCodes) -> None:
        """Take a linear's codes."""
        self.results[scheme.id].linears[f"{self.prefix}.{name}"] = codes

    def notice(self, code: str, figure: float) -> None:
        """Have something said of the unit."""
        self.notices.append(Notice(code, f"{self.prefix}.{self.unit}", figure))


def _look_at(work: _UnitWork, statistics: InputStatistics | None, schemes: Sequence[Scheme]) -> None:
    """Notice what the methods get by with and a reader should know."""
    constant = sum(int((w.amax(0) == w.amin(0)).sum()) for w in work.weights.values() if len(w) > 1)
    if constant:
        work.notice("constant-columns", constant)
    if statistics is None:
        return
    size = len(statistics.gram)
    dead = int((statistics.gram.diagonal() == 0).sum())
    if dead:
        work.notice("dead-channels", dead)
    if statistics.tokens < size and any("gptq" in scheme.method for scheme in schemes):
        work.notice("fewer-tokens-than-inputs", size)


def _round_unit(work: _UnitWork, statistics: InputStatistics | None, schemes: Sequence[Scheme]) -> None:
    """Round a unit's linears in every scheme, last in those whose factorisation destroys the Gram matrix."""
    compensating = []
    for scheme in schemes:
        if "gptq" in scheme.method:
            compensating.append(scheme)
            continue
        for name in work.weights:
            weight = work.prepared(name, scheme)
            size = scheme.group_width(weight.shape[1])
            if statistics is None or scheme.method == "rtn":
                search = scheme.scale_search == "mse"
                codes = quantize_rtn(weight, kind=grid_kind(scheme), group_size=size, search=search)
            else:
                blocks = diagonal_blocks(statistics.gram, size, work.scale(scheme))
                codes = _clipped(name, weight, blocks, scheme, size)
            work.keep(name, scheme, codes)
    if statistics is not None:
        _compensate(work, statistics.gram, compensating)


def _compensate(work: _UnitWork, gram: Tensor, schemes: Sequence[Scheme]) -> None:
    """Round in the schemes that factor the Gram matrix; those that factor it alike one after the other."""
    size = len(gram)
    weightings = {
        scheme.id: diagonal_blocks(gram, scheme.group_width(size), work.scale(scheme))
        for scheme in schemes
        if scheme.scale_search == "mse" and (scheme.static_groups or scheme.group_width(size) == size)
    }
    by_factor: dict[tuple[float, bool, tuple[GridKind, int] | None], list[Scheme]] = {}
    for scheme in schemes:
        scaled = None if work.scale(scheme) is None else (grid_kind(scheme), scheme.group_size)
        by_factor.setdefault((scheme.damping, scheme.desc_act, scaled), []).append(scheme)
    for number, ((damping, by_activation, _), alike) in enumerate(by_factor.items(), start=1):
        matrix = gram if number == len(by_factor) else gram.clone()
        scale = work.scale(alike[0])
        if scale is not None:
            matrix.div_(scale).div_(scale.unsqueeze(1))
        factor = factorize(matrix, damping=damping, by_activation=by_activation, shrinkage=SHRINKAGE)
        if factor.tries:
            work.notice("damping-raised", factor.damping)
        for scheme in alike:
            for name in work.weights:
                work.keep(name, scheme, _rounded(work.prepared(name, scheme), factor, scheme, weightings))


def _rounded(weight: Tensor, factor: Factor, scheme: Scheme, weightings: Mapping[str, Tensor]) -> LinearCodes:
    return quantize_gptq(
        weight,
        factor,
        kind=grid_kind(scheme),
        group_size=scheme.group_width(weight.shape[1]),
        static_groups=scheme.static_groups,
        search=scheme.scale_search == "mse",
        weighting=weightings.get(scheme.id),
    )


def diagonal_blocks(gram: Tensor, group_size: int, scale: Tensor | None = None) -> Tensor:
    """What a group's own error costs: its block of the Gram matrix of the input, or of it over `scale`.

    Args:
        gram: `[d_in, d_in]`.
        group_size: Inputs in a group.
        scale: `[d_in]`.

    Returns:
        `[groups, group_size, group_size]`; of a single group the diagonal alone, `[1, group_size]`: the whole
        matrix would cost more than it is worth.
    """
    size = len(gram)
    if group_size == size:
        diagonal = gram.diagonal() if scale is None else gram.diagonal() / scale.square()
        return diagonal.unsqueeze(0).clone()
    blocks = torch.stack([gram[i : i + group_size, i : i + group_size] for i in range(0, size, group_size)])
    if scale is not None:
        parts = scale.reshape(-1, group_size)
        blocks.div_(parts.unsqueeze(1)).div_(parts.unsqueeze(2))
    return blocks


def _clipped(name: str, weight: Tensor, blocks: Tensor, scheme: Scheme, group_size: int) -> LinearCodes:
    groups = weight.reshape(len(weight), -1, group_size)
    if name.rpartition(".")[2] in NEVER_CLIPPED:
        return grid_codes(weight, fit_grid(groups, grid_kind(scheme)))
    return grid_codes(weight, search_grid(groups, grid_kind(scheme), SHRINKS, blocks))


def _search_scales(
    block: CalibratedBlock,
    family: Family,
    weights: Mapping[str, Tensor],
    folds: Mapping[str, Fold],
    scheme: Scheme,
    stored_as: torch.dtype,
) -> dict[str, ScaleChoice]:
    choices = {}
    for unit, fold in folds.items():
        own = [weights[name] for name in family.units[unit]]
        width = own[0].shape[1]
        if not scheme.divides(width):
            continue
        with _named(f"{family.block_name(block.index)}.{unit}"):
            choice = search_scale(
                own, block.statistics[unit], kind=grid_kind(scheme), group_size=scheme.group_width(width)
            )
        choices[unit] = storable(choice, block.module, fold, family, stored_as)
    return choices


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say which unit it is that cannot be quantized."""
    try:
        yield
    except QuantizationError as error:
        raise QuantizationError(error.message, where=error.where or where, hint=error.hint) from error


def _weight(module: nn.Module, name: str, prefix: str) -> Tensor:
    weight = module.get_submodule(name).get_parameter("weight").detach().float()
    if not bool(torch.isfinite(weight.sum())) and not bool(torch.isfinite(weight).all()):
        raise QuantizationError(
            "its weight holds NaN or infinite values",
            where=f"{prefix}.{name}",
            hint="the source model is damaged; fetch it again",
        )
    return weight

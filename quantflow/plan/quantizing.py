"""What quantizing takes: the calibration tokens' forward, Gram matrices, searches, factorisations, codes."""

from collections.abc import Sequence
from math import ceil

from quantflow.model.families import family_of
from quantflow.plan.forward import (
    FLOAT,
    HEAP_BYTES,
    PROGRESS_COPIES,
    activation_bytes,
    batch_rows,
    block_bytes,
    forward_work,
    hidden_bytes,
    loading_work,
)
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work, amounts, fresh, matmul
from quantflow.quantize.params import QuantizeParams, Scheme
from quantflow.quantize.search_space import (
    COARSE_EXPONENTS,
    FINE_STEPS,
    NEVER_CLIPPED,
    SAMPLED_ROWS,
    SAMPLED_TOKENS,
    SHRINKS,
)
from quantflow.quantize.sizes import BLOCK, CORNER, PANEL, RANGE_TOKENS, SPILL_BYTES

EXPONENTS = len(COARSE_EXPONENTS) + len(FINE_STEPS)
# Passes over a unit's sampled weights beside rounding: scaling, unscaling, the difference, the weighted sum …
SEARCH_PASSES = 6
# … and for each part of the range tried in a search of grids: dividing, rounding, clamping, multiplying, the
# difference, the transposed copy, the weighted sum.
CLIP_PASSES = 8
# Tensors of the weight's size that fitting and rounding make on their way.
ROUNDING_TENSORS = 5
# Passes over a Gram matrix that is factorised: two permutations, a check; over inputs: absolute values, sum.
FACTOR_PASSES, INPUT_PASSES = 4, 3
# Passes over a weight that GPTQ rounds: gathered and put back by columns, transposed there and back, and what
# rounding a column is made of.
GPTQ_PASSES = 14
# Calls of torch around one linear's search, around its search of grids, and around a column in GPTQ.
CALLS_PER_SEARCH, CALLS_PER_CLIP, CALLS_PER_COLUMN = 25, 30, 12
# Tensors of a weight's size alive while it is rounded, itself not counted: scaled, gathered, codes.
ROUNDING_ALIVE = 3
# Passes over inputs for their extremes.
RANGE_PASSES = 2
HALF = 2  # bytes of a bfloat16
# A weight's code, and for each group a float16 scale and a zero point.
CODE_BYTES, GROUP_BYTES = 1, 3


def quantize_cost(params: QuantizeParams, shape: ModelShape, text: TextSize) -> Cost:
    """One forward, and for every block statistics, searches and codes of all candidates."""
    schemes = params.candidates
    calibrates = any(scheme.method != "rtn" for scheme in schemes)
    tokens = text.calibration_tokens if calibrates else 0
    written = sum(shape.blocks * scheme_bytes(shape, scheme) for scheme in schemes)
    work = codes_work(schemes, shape, tokens).times(shape.blocks) + amounts(writing=written, hashing=written)
    if calibrates:
        work += calibration_work(shape, text, params.batch_tokens, params.calibration_dtype)
        if collects_grams(schemes):
            work += grams_work(shape, text, params.batch_tokens).times(shape.blocks)
        if any(scheme.is_int8 for scheme in schemes):
            work += _ranges_work(shape, tokens) + amounts(
                writing=range_bytes(shape), hashing=range_bytes(shape)
            )
            written += range_bytes(shape)
    else:
        work += loading_work(shape).times(shape.blocks)
    computing = quantizing_memory(shape, schemes, text, params.batch_tokens if calibrates else 0)
    codes = HEAP_BYTES + code_bytes(shape, shape.hidden)
    on_gpu = params.device == "cuda"
    return Cost(
        work,
        host_bytes=codes if on_gpu else computing + codes,
        device_bytes=computing if on_gpu else 0,
        disk_bytes=written,
        scratch_bytes=PROGRESS_COPIES * hidden_bytes(shape, tokens),
    )


def calibration_work(shape: ModelShape, text: TextSize, batch_tokens: int, dtype: str) -> Work:
    """One forward over the calibration tokens, its products in `dtype`."""
    tokens, length = text.calibration_tokens, text.calibration_length
    work = forward_work(shape, tokens, length, batch_tokens)
    if dtype == "float32":
        return work
    batches = ceil(tokens / batch_rows(length, batch_tokens))
    casts = amounts(converting=shape.block_parameters).times(batches * shape.blocks)
    return work.in_bfloat16() + casts


def code_bytes(shape: ModelShape, group_size: int) -> int:
    """One block's codes."""
    return round(shape.block_parameters * (CODE_BYTES + GROUP_BYTES / group_size))


def scheme_bytes(shape: ModelShape, scheme: Scheme) -> int:
    """One block's codes in a scheme."""
    return sum(
        round(outputs * inputs * (CODE_BYTES + GROUP_BYTES / scheme.group_width(inputs)))
        for outputs, inputs in shape.linears.values()
    )


def quantizing_memory(shape: ModelShape, schemes: Sequence[Scheme], text: TextSize, batch_tokens: int) -> int:
    """What is held at a block's widest moment; without a forward where `batch_tokens` is 0."""
    largest = max(outputs * inputs for outputs, inputs in shape.linears.values())
    rounding = ROUNDING_ALIVE * largest * FLOAT
    if not batch_tokens:
        return block_bytes(shape) + rounding
    widths = _input_widths(shape)
    states = hidden_bytes(shape, text.calibration_tokens)
    if states > SPILL_BYTES:
        states = hidden_bytes(shape, batch_rows(text.calibration_length, batch_tokens))
    grams = sum(width**2 for width in widths) * FLOAT if collects_grams(schemes) else 0
    if any("awq" in scheme.method for scheme in schemes):
        tokens = text.calibration_tokens
        grams += sum(width * _sampled_tokens(width, tokens) for width in widths) * FLOAT
    copies = max(widths) ** 2 * FLOAT if len(_factorisations(schemes)) > 1 else 0
    running = activation_bytes(shape, text.calibration_length, batch_tokens)
    return states + block_bytes(shape) + grams + max(running, copies + rounding)


def collects_grams(schemes: Sequence[Scheme]) -> bool:
    """Whether a scheme needs more of the inputs than what they range over."""
    return any(scheme.method != "rtn" and not scheme.is_int8 for scheme in schemes)


def _ranges_work(shape: ModelShape, tokens: int) -> Work:
    """Extremes of all inputs, and the head's codes."""
    widths = shape.blocks * sum(_input_widths(shape)) + shape.hidden
    return amounts(elementwise=RANGE_PASSES * tokens * widths, rounding=2 * shape.vocabulary * shape.hidden)


def range_bytes(shape: ModelShape) -> int:
    """What inputs range over: two extremes of every channel in float32, and a sample in bfloat16."""
    widths = shape.blocks * sum(_input_widths(shape)) + shape.hidden
    return widths * (2 * FLOAT + RANGE_TOKENS * HALF)


def _input_widths(shape: ModelShape) -> list[int]:
    return [linears[0][1] for linears in shape.units.values()]


def grams_work(shape: ModelShape, text: TextSize, batch_tokens: int) -> Work:
    """Statistics of the inputs of one block's units."""
    tokens = text.calibration_tokens
    rows = min(tokens, batch_rows(text.calibration_length, batch_tokens))
    work = Work()
    for width in _input_widths(shape):
        for begin in range(0, width, PANEL):
            work += matmul(width - begin, rows, min(PANEL, width - begin)).times(tokens / max(1, rows))
        batches = ceil(tokens / max(1, rows))
        work += amounts(elementwise=INPUT_PASSES * tokens * width + batches * width**2)
    return work


def codes_work(schemes: Sequence[Scheme], shape: ModelShape, tokens: int) -> Work:
    """Searches, factorisations and codes of one block."""
    work = Work()
    scaled = {(scheme.bits, scheme.group_size) for scheme in schemes if "awq" in scheme.method}
    work += _searches(shape, tokens).times(len(scaled))
    for scheme in schemes:
        for name, (outputs, inputs) in shape.linears.items():
            work += _rounding(scheme, name, outputs, inputs)
    factors = len(_factorisations(schemes))
    for width in _input_widths(shape):
        work += _factorisation(width).times(factors)
    return work


def _factorisations(schemes: Sequence[Scheme]) -> set[tuple[float, bool, tuple[int, int] | None]]:
    """What tells one factorisation of a unit's Gram matrix from another."""
    return {
        (s.damping, s.desc_act, (s.bits, s.group_size) if "awq" in s.method else None)
        for s in schemes
        if "gptq" in s.method
    }


def _searches(shape: ModelShape, tokens: int) -> Work:
    """Scale searches of the units that a scale can be folded before."""
    work = Work()
    for unit in _folded_units(shape):
        linears = shape.units[unit]
        outputs, inputs = sum(out for out, _ in linears), linears[0][1]
        rows = ceil(outputs / ceil(outputs / SAMPLED_ROWS))
        once = matmul(rows, inputs, _sampled_tokens(inputs, tokens) or inputs) + amounts(
            rounding=rows * inputs, elementwise=SEARCH_PASSES * rows * inputs, call=CALLS_PER_SEARCH
        )
        once += fresh(rows, inputs, ROUNDING_TENSORS + SEARCH_PASSES)
        work += once.times(EXPONENTS)
    return work


def _sampled_tokens(inputs: int, tokens: int) -> int:
    """Tokens in the sample of a unit's input; 0 where the Gram matrix speaks for all of them."""
    if not 0 < min(SAMPLED_TOKENS, tokens) < inputs:
        return 0
    return ceil(tokens / ceil(tokens / SAMPLED_TOKENS))


def _folded_units(shape: ModelShape) -> list[str]:
    linears = shape.linears
    return [
        fold.unit
        for fold in family_of(shape.model_type).folds
        if fold.into not in linears or fold.holds(linears[fold.into][0], shape.units[fold.unit][0][1])
    ]


def _rounding(scheme: Scheme, name: str, outputs: int, inputs: int) -> Work:
    """One linear in one scheme."""
    size, group = outputs * inputs, scheme.group_width(inputs)
    is_static = scheme.static_groups or group == inputs
    searched = amounts(elementwise=CLIP_PASSES * size, call=CALLS_PER_CLIP)
    weighted = searched + matmul(outputs, inputs, group)
    if "gptq" not in scheme.method:
        work = amounts(rounding=2 * size)
        if scheme.is_int8:
            return work
        if scheme.method == "rtn":
            return work + (searched.times(len(SHRINKS)) if scheme.scale_search == "mse" else Work())
        return work if name.endswith(NEVER_CLIPPED) else work + weighted.times(len(SHRINKS))
    block = BLOCK if is_static else group
    work = amounts(elementwise=(GPTQ_PASSES + block / 2) * size, call=CALLS_PER_COLUMN * inputs)
    for end in range(inputs, 0, -block):
        work += matmul(outputs, inputs - end, min(block, end))
    if scheme.scale_search == "mse":
        by_diagonal = group == inputs
        work += (searched if by_diagonal else weighted).times(len(SHRINKS))
    return work


def _factorisation(width: int) -> Work:
    """Cholesky factor of a Gram matrix, panel by panel; what is small beside the products is left out."""
    work = amounts(elementwise=FACTOR_PASSES * width**2)
    for begin in range(0, width, CORNER):
        panel = min(CORNER, width - begin)
        work += matmul(width - begin, begin, panel)
    return work

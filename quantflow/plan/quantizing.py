"""What quantizing takes: the calibration tokens' forward, Gram matrices, searches, codes."""

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
    table_bytes,
)
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work, amounts, fresh, matmul
from quantflow.quantize.params import QuantizeParams
from quantflow.quantize.search_space import COARSE_EXPONENTS, FINE_STEPS, SAMPLED_ROWS, SHRINKS

EXPONENTS = len(COARSE_EXPONENTS) + len(FINE_STEPS)
# Passes over a unit's weights beside rounding: scaling, unscaling, the difference, the weighted sum …
SEARCH_PASSES = 6
# … and in the clip search the difference, two transposes, the weighted sum and the choice of the better.
CLIP_PASSES = 5
# Tensors of the weight's size that fitting and rounding make on their way.
ROUNDING_TENSORS = 5
# Passes over a Gram matrix that a fold divides; over inputs: absolute values, their sum, the check.
FOLD_PASSES, INPUT_PASSES = 3, 4
# Calls of torch around one linear's search and around its encoding.
CALLS_PER_SEARCH, CALLS_PER_CLIP = 25, 30
# Tensors of a weight's size alive in the clip search, the weight itself not counted.
CLIP_ALIVE = 6
# A weight's code, and for each group a float16 scale and a zero point.
CODE_BYTES, GROUP_BYTES = 1, 3


def quantize_cost(params: QuantizeParams, shape: ModelShape, text: TextSize) -> Cost:
    """One forward, and for every block statistics, searches and codes."""
    length, tokens = text.calibration_length, text.calibration_tokens
    per_block = _grams(params, shape, text) + _searches(shape) + _codes(params, shape)
    written = shape.blocks * code_bytes(shape, params.group_size)
    work = (
        _forward(params, shape, tokens, length)
        + per_block.times(shape.blocks)
        + amounts(writing=written, hashing=written)
    )
    computing = _memory(params, shape, text)
    codes = HEAP_BYTES + code_bytes(shape, params.group_size)
    on_gpu = params.device == "cuda"
    return Cost(
        work,
        host_bytes=codes if on_gpu else computing + codes,
        device_bytes=computing if on_gpu else 0,
        disk_bytes=written,
        scratch_bytes=PROGRESS_COPIES * hidden_bytes(shape, tokens),
    )


def _forward(params: QuantizeParams, shape: ModelShape, tokens: int, length: int) -> Work:
    work = forward_work(shape, tokens, length, params.batch_tokens)
    if params.calibration_dtype == "float32":
        return work
    batches = ceil(tokens / batch_rows(length, params.batch_tokens))
    casts = amounts(converting=shape.block_parameters).times(batches * shape.blocks)
    return work.in_bfloat16() + casts


def code_bytes(shape: ModelShape, group_size: int) -> int:
    """One block's codes."""
    return round(shape.block_parameters * (CODE_BYTES + GROUP_BYTES / group_size))


def _input_widths(shape: ModelShape) -> list[int]:
    return [linears[0][1] for linears in shape.units.values()]


def _grams(params: QuantizeParams, shape: ModelShape, text: TextSize) -> Work:
    tokens = text.calibration_tokens
    rows = min(tokens, batch_rows(text.calibration_length, params.batch_tokens))
    batches = ceil(tokens / max(1, rows))
    work = Work()
    for width in _input_widths(shape):
        work += matmul(width, rows, width).times(tokens / max(1, rows))
        work += amounts(elementwise=INPUT_PASSES * tokens * width + batches * width**2)
    return work


def _searches(shape: ModelShape) -> Work:
    """Scale searches of the units that a scale can be folded before."""
    work = Work()
    for unit in _folded_units(shape):
        linears = shape.units[unit]
        outputs, inputs = sum(out for out, _ in linears), linears[0][1]
        rows = ceil(outputs / ceil(outputs / SAMPLED_ROWS))
        once = matmul(rows, inputs, inputs) + amounts(
            rounding=rows * inputs, elementwise=SEARCH_PASSES * rows * inputs, call=CALLS_PER_SEARCH
        )
        once += fresh(rows, inputs, ROUNDING_TENSORS + SEARCH_PASSES)
        work += once.times(EXPONENTS) + amounts(elementwise=FOLD_PASSES * inputs**2)
    return work


def _folded_units(shape: ModelShape) -> list[str]:
    linears = shape.linears
    return [
        fold.unit
        for fold in family_of(shape.model_type).folds
        if not fold.needs_equal_shapes or linears[fold.into][0] == shape.units[fold.unit][0][1]
    ]


def _codes(params: QuantizeParams, shape: ModelShape) -> Work:
    """Clip searches of all linears but queries and keys, and the codes of all."""
    work = Work()
    for name, (outputs, inputs) in shape.linears.items():
        size = outputs * inputs
        work += amounts(rounding=2 * size)
        if not name.endswith(("q_proj", "k_proj")):
            step = matmul(outputs, inputs, params.group_size)
            step += amounts(rounding=size, elementwise=CLIP_PASSES * size, call=CALLS_PER_CLIP)
            step += fresh(outputs, inputs, ROUNDING_TENSORS + CLIP_PASSES)
            work += step.times(len(SHRINKS))
    return work


def _memory(params: QuantizeParams, shape: ModelShape, text: TextSize) -> int:
    states = hidden_bytes(shape, text.calibration_tokens)
    grams = sum(width**2 for width in _input_widths(shape)) * FLOAT
    folded = 2 * max(_input_widths(shape)) ** 2 * FLOAT
    largest = max(outputs * inputs for outputs, inputs in shape.linears.values())
    searching = folded + CLIP_ALIVE * largest * FLOAT
    running = activation_bytes(shape, text.calibration_length, params.batch_tokens)
    block = states + block_bytes(shape) + grams + max(running, searching)
    return max(block, states + table_bytes(shape))

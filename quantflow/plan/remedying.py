"""What remedies for INT8 take: a forward, a backward, options of every unit, and whole models measured."""

from quantflow.measure.batches import LOGITS_BYTES
from quantflow.plan.forward import (
    FLOAT,
    HEAP_BYTES,
    activation_bytes,
    block_bytes,
    embedding_work,
    forward_work,
    head_work,
    hidden_bytes,
    table_bytes,
)
from quantflow.plan.measuring import BESIDE_LOGITS, PADDING
from quantflow.plan.quantizing import scheme_bytes
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, amounts, matmul
from quantflow.quantize.params import RemedyParams
from quantflow.quantize.search_space import RANGE_SHRINKS
from quantflow.remedies.sizes import (
    CHANNELS,
    EXPONENTS,
    HEAD_POSITIONS,
    MODELS_MEASURED,
    OTHER_RANGES,
    RANGE_VALUES,
    TRIAL_TOKENS,
)

# Forwards of the blocks before any trial: states before every block, each block again, and its backward,
# which is twice a forward's products.
PASSES_OF_ESTIMATE = 4
# Passes over a unit's inputs for one option: divided, rounded, moved, clamped, back, times Wᵀg, summed.
PASSES_PER_OPTION = 8
# Tensors of a unit's inputs alive for each smoothing: divided inputs, Wᵀg of rounded weights, sums.
SCORED_ALIVE = 3
# Passes over a sample for one part of the range that is tried.
PASSES_PER_SHRINK = 6


def remedy_cost(params: RemedyParams, shape: ModelShape, text: TextSize) -> Cost:
    """Estimates of all options, then whole models; nothing but codes where there is no selection text."""
    written = shape.blocks * scheme_bytes(shape, params.scheme) + shape.vocabulary * shape.hidden
    rounding = amounts(rounding=2 * (written), writing=written, hashing=written)
    tokens = min(TRIAL_TOKENS, text.selection_tokens)
    if not tokens:
        return Cost(rounding, host_bytes=HEAP_BYTES + block_bytes(shape), disk_bytes=written)
    padded = round(PADDING * tokens)
    passes = forward_work(shape, padded, text.evaluation_length, params.batch_tokens)
    work = passes.times(PASSES_OF_ESTIMATE + MODELS_MEASURED)
    for units in shape.units.values():
        outputs, inputs = sum(out for out, _ in units), units[0][1]
        work += matmul(tokens, outputs, inputs).times((1 + len(EXPONENTS)) * shape.blocks)
        options = len(CHANNELS) * (len(EXPONENTS) + len(OTHER_RANGES)) + 2
        searched = len(CHANNELS) * 2 * len(RANGE_SHRINKS) * PASSES_PER_SHRINK * RANGE_VALUES
        passing = PASSES_PER_OPTION * options * tokens * inputs + searched
        work += amounts(elementwise=passing, rounding=len(EXPONENTS) * outputs * inputs).times(shape.blocks)
    work += matmul(HEAD_POSITIONS, shape.vocabulary, shape.hidden).times(2 + len(EXPONENTS))
    heads = head_work(shape, tokens).times(2) + amounts(comparing=tokens * shape.vocabulary)
    work += (heads + embedding_work(shape) + rounding).times(MODELS_MEASURED) + rounding
    states = (shape.blocks + 1) * hidden_bytes(shape, padded)
    outputs = sum(out for out, _ in shape.linears.values())
    inputs = sum(units[0][1] for units in shape.units.values())
    widest = max(units[0][1] for units in shape.units.values())
    scored = tokens * SCORED_ALIVE * len(EXPONENTS) * widest * FLOAT
    differentiating = 2 * block_bytes(shape) + tokens * 2 * (outputs + inputs) * FLOAT + scored
    differentiating += activation_bytes(shape, text.evaluation_length, params.batch_tokens)
    piece = min(LOGITS_BYTES, tokens * shape.vocabulary * FLOAT)
    scoring = 3 * table_bytes(shape) + round(BESIDE_LOGITS * piece)
    head = 4 * table_bytes(shape) + HEAD_POSITIONS * shape.vocabulary * FLOAT
    computing = max(differentiating, scoring, head)
    on_gpu = params.device == "cuda"
    return Cost(
        work,
        host_bytes=HEAP_BYTES if on_gpu else HEAP_BYTES + computing,
        device_bytes=computing if on_gpu else 0,
        disk_bytes=written,
        scratch_bytes=states + MODELS_MEASURED * hidden_bytes(shape, tokens),
    )

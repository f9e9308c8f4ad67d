"""What a scan takes: Fisher's pass on calibration and selection text, and exact scores of units."""

from quantflow.measure.batches import LOGITS_BYTES
from quantflow.plan.forward import (
    FLOAT,
    HEAP_BYTES,
    activation_bytes,
    block_bytes,
    forward_work,
    head_work,
    hidden_bytes,
    loading_work,
    table_bytes,
)
from quantflow.plan.measuring import BESIDE_LOGITS, PADDING
from quantflow.plan.quantizing import code_bytes
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work, amounts
from quantflow.sensitivity.params import ScanParams
from quantflow.sensitivity.sizes import AUTO_SHARE, LEAST_EXACT, SCAN_LENGTH, STREAM_BYTES

# A block's outputs again and its gradients, beside the forward that the states before it came from.
FORWARD_AGAIN, BACKWARD = 1, 1
# Tensors of a block that differentiating it keeps, as a multiple of what running it holds at once.
KEPT_FOR_GRADIENTS = 3
# Bytes of a score in scan.json.
SCORE_BYTES = 700


def scan_cost(params: ScanParams, shape: ModelShape, text: TextSize) -> Cost:
    """The passes that its method makes; of `auto` the most that it may spend."""
    length = min(SCAN_LENGTH, text.calibration_length)
    tokens = min(params.tokens, text.calibration_windows * length)
    held_out = round(PADDING * min(params.tokens, text.selection_tokens))
    candidates = params.candidates
    units = candidates * len(shape.units) * shape.blocks
    once = _blocks(params, shape, tokens, length)
    estimating = _estimating(params, shape, tokens, length)
    # A stream begins at its unit's block: half of the model's, on average.
    share = (shape.blocks + 1) / (2 * shape.blocks)
    unit = once.times(share) + _logits(shape, tokens)
    work = _estimating(params, shape, held_out, length)
    if params.method == "exact":
        work += once + unit.times(units)
    elif params.method == "auto":
        # Of its part of what all would take, the estimates have taken theirs.
        within = AUTO_SHARE * units - _passes(params) / share
        work += estimating + unit.times(max(LEAST_EXACT, within))
    else:
        work += estimating
    states = hidden_bytes(shape, max(tokens, held_out))
    streams = min(STREAM_BYTES, units * states) if params.method in ("exact", "auto") else 0
    running = block_bytes(shape) + KEPT_FOR_GRADIENTS * activation_bytes(shape, length, params.batch_tokens)
    largest = max(outputs * inputs for outputs, inputs in shape.linears.values())
    swapping = largest * FLOAT + streams
    piece = min(LOGITS_BYTES, tokens * shape.vocabulary * FLOAT)
    scoring = table_bytes(shape) + streams + round(BESIDE_LOGITS * piece)
    computing = states + max(running + swapping, scoring)
    codes = HEAP_BYTES + candidates * code_bytes(shape, shape.hidden)
    on_gpu = params.device == "cuda"
    written = SCORE_BYTES * units
    return Cost(
        work + amounts(writing=written),
        host_bytes=codes if on_gpu else computing + codes,
        device_bytes=computing if on_gpu else 0,
        disk_bytes=written,
        scratch_bytes=(shape.blocks + 1) * hidden_bytes(shape, tokens + held_out) + streams,
    )


def _blocks(params: ScanParams, shape: ModelShape, tokens: int, length: int) -> Work:
    return forward_work(shape, tokens, length, params.batch_tokens)


def _estimating(params: ScanParams, shape: ModelShape, tokens: int, length: int) -> Work:
    """Forwards, again, backwards, and the changes of outputs in every candidate."""
    unpacked = amounts(unpacking=shape.blocks * shape.block_parameters).times(params.candidates)
    return (
        _blocks(params, shape, tokens, length).times(_passes(params))
        + _logits(shape, tokens).times(2)
        + loading_work(shape).times(shape.blocks)
        + unpacked
    )


def _passes(params: ScanParams) -> int:
    """Times that all blocks are passed by an estimate."""
    return 1 + FORWARD_AGAIN + BACKWARD + params.candidates


def _logits(shape: ModelShape, tokens: int) -> Work:
    return head_work(shape, tokens) + amounts(comparing=tokens * shape.vocabulary)

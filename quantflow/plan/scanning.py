"""What a scan takes, Fisher's pass on calibration and selection text, and what exact scores of units do."""

from dataclasses import replace

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
from quantflow.sensitivity.params import ScanParams, SettleParams
from quantflow.sensitivity.sizes import AUTO_SHARE, LEAST_EXACT, SCAN_LENGTH, STREAM_BYTES

# A block's outputs again and its gradients, beside the forward that the states before it came from.
FORWARD_AGAIN, BACKWARD = 1, 1
# Tensors of a block that differentiating it keeps, as a multiple of what running it holds at once.
KEPT_FOR_GRADIENTS = 3
# Bytes of a score in scan.json.
SCORE_BYTES = 700


def scan_cost(params: ScanParams, shape: ModelShape, text: TextSize) -> Cost:
    """The passes that its method makes."""
    tokens, length = _text(params, text)
    held_out = round(PADDING * min(params.tokens, text.selection_tokens))
    candidates = params.candidates
    units = candidates * len(shape.units) * shape.blocks
    work = _estimating(params, shape, held_out, length)
    if params.method == "exact":
        work += _swapping(params, shape, text, units)
    else:
        work += _estimating(params, shape, tokens, length)
    states = hidden_bytes(shape, max(tokens, held_out))
    streams = min(STREAM_BYTES, units * states) if params.method == "exact" else 0
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


def settle_cost(params: SettleParams, shape: ModelShape, text: TextSize) -> Cost:
    """The most that exact scores may take of units whose place decides; few recipes need all of it."""
    scan = params.scan
    units = scan.candidates * len(shape.units) * shape.blocks
    # Of its part of what all would take, the estimates have taken theirs.
    exact = max(LEAST_EXACT, AUTO_SHARE * units - _passes(scan) / _share(shape))
    swapped = scan_cost(scan.model_copy(update={"method": "exact"}), shape, text)
    states = hidden_bytes(shape, _text(scan, text)[0])
    written = SCORE_BYTES * units
    return replace(
        swapped,
        work=_swapping(scan, shape, text, exact) + amounts(writing=written),
        scratch_bytes=(shape.blocks + 1) * states + min(STREAM_BYTES, round(exact) * states),
    )


def _text(params: ScanParams, text: TextSize) -> tuple[int, int]:
    """Tokens of the scan, and of its windows."""
    length = min(SCAN_LENGTH, text.calibration_length)
    return min(params.tokens, text.calibration_windows * length), length


def _share(shape: ModelShape) -> float:
    """Of the blocks, those that a stream passes: it begins at its unit's, half of the model's on average."""
    return (shape.blocks + 1) / (2 * shape.blocks)


def _swapping(params: ScanParams, shape: ModelShape, text: TextSize, units: float) -> Work:
    """A lossless forward, and so many units swapped by themselves."""
    tokens, length = _text(params, text)
    once = _blocks(params, shape, tokens, length)
    return once + (once.times(_share(shape)) + _logits(shape, tokens)).times(units)


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

"""What the stage takes that compares calibration text with production text."""

from quantflow.drift.params import DriftParams
from quantflow.drift.size import READ_DOCUMENTS, READ_TOKENS
from quantflow.measure.batches import LOGITS_BYTES
from quantflow.plan.files import SMALL_BYTES, SMALL_WORK, TOKEN_BYTES, TOKENIZER_BYTES
from quantflow.plan.forward import (
    FLOAT,
    HEAP_BYTES,
    PROGRESS_COPIES,
    activation_bytes,
    block_bytes,
    forward_work,
    head_work,
    hidden_bytes,
    table_bytes,
)
from quantflow.plan.measuring import ALONE_LOGITS
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, amounts
from quantflow.quantize.sizes import SPILL_BYTES

# Passes over every unit's input: extremes, and twice two comparisons with their sums.
RANGE_PASSES = 8


def drift_cost(params: DriftParams, shape: ModelShape, text: TextSize) -> Cost:
    """The beginnings of some documents of both texts through the model; production's taken to be as long."""
    length = min(READ_TOKENS, max(1, text.evaluation_length))
    tokens = 2 * READ_DOCUMENTS * length
    inputs = sum(width for _, width in shape.linears.values())
    work = (
        SMALL_WORK
        + forward_work(shape, tokens, length, params.batch_tokens)
        + head_work(shape, tokens)
        + amounts(
            elementwise=RANGE_PASSES * tokens * shape.blocks * inputs, scoring=tokens * shape.vocabulary
        )
    )
    running = block_bytes(shape) + activation_bytes(shape, length, params.batch_tokens)
    scoring = table_bytes(shape) + round(ALONE_LOGITS * min(LOGITS_BYTES, tokens * shape.vocabulary * FLOAT))
    states = min(hidden_bytes(shape, tokens), SPILL_BYTES)
    held = TOKENIZER_BYTES + TOKEN_BYTES * 2 * params.tokens + hidden_bytes(shape, tokens)
    on_gpu = params.device == "cuda"
    computing = max(running + states, scoring)
    return Cost(
        work,
        host_bytes=HEAP_BYTES + held + (0 if on_gpu else computing),
        device_bytes=computing if on_gpu else 0,
        disk_bytes=SMALL_BYTES,
        scratch_bytes=PROGRESS_COPIES * hidden_bytes(shape, tokens),
    )

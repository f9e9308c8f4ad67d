"""What refining takes: GPTQ's sequential pass, and three models' runs over the selection windows."""

from quantflow.measure.batches import LOGITS_BYTES
from quantflow.plan.forward import (
    FLOAT,
    HEAP_BYTES,
    PROGRESS_COPIES,
    embedding_work,
    forward_work,
    head_work,
    hidden_bytes,
)
from quantflow.plan.measuring import BESIDE_LOGITS, PADDING
from quantflow.plan.quantizing import (
    calibration_work,
    code_bytes,
    codes_work,
    grams_work,
    quantizing_memory,
    scheme_bytes,
)
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, amounts
from quantflow.quantize.params import RefineParams

# The lossless model, and with codes as they came and refined; its logits beside each of these.
RUNS, COMPARISONS = 3, 2


def refine_cost(params: RefineParams, shape: ModelShape, text: TextSize) -> Cost:
    """Two forwards over the calibration tokens, statistics and codes; then both codes are measured."""
    tokens, positions = text.calibration_tokens, text.selection_positions
    written = shape.blocks * scheme_bytes(shape, params.scheme)
    passes = calibration_work(shape, text, params.batch_tokens, params.calibration_dtype).times(2)
    blocks = grams_work(shape, text, params.batch_tokens) + codes_work([params.scheme], shape, tokens)
    padded = round(PADDING * text.selection_tokens)
    measuring = forward_work(shape, padded, text.evaluation_length, params.batch_tokens).times(RUNS)
    heads = head_work(shape, positions).times(2) + amounts(comparing=positions * shape.vocabulary)
    work = (
        passes
        + blocks.times(shape.blocks)
        + measuring
        + (heads + embedding_work(shape)).times(COMPARISONS)
        + amounts(writing=written, hashing=written, unpacking=2 * shape.blocks * shape.block_parameters)
    )
    quantizing = quantizing_memory(shape, [params.scheme], text, params.batch_tokens)
    piece = min(LOGITS_BYTES, positions * shape.vocabulary * FLOAT)
    tables = 2 * shape.vocabulary * shape.hidden * FLOAT
    scoring = 2 * hidden_bytes(shape, positions) + tables + round(BESIDE_LOGITS * piece)
    computing = max(quantizing, scoring)
    codes = HEAP_BYTES + code_bytes(shape, shape.hidden)
    on_gpu = params.device == "cuda"
    return Cost(
        work,
        host_bytes=codes if on_gpu else computing + codes,
        device_bytes=computing if on_gpu else 0,
        disk_bytes=written,
        scratch_bytes=PROGRESS_COPIES * hidden_bytes(shape, tokens) + written,
    )

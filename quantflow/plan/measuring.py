"""What the stages that measure take: the baseline, and an artifact beside it."""

from dataclasses import replace

from quantflow.measure.batches import LOGITS_BYTES
from quantflow.measure.params import BaselineParams, MeasureParams, NoiseParams, YardstickParams
from quantflow.plan.forward import (
    FLOAT,
    HEAP_BYTES,
    PROGRESS_COPIES,
    activation_bytes,
    block_bytes,
    embedding_work,
    forward_work,
    head_work,
    hidden_bytes,
    table_bytes,
)
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work, amounts

# Evaluation windows differ in length and are padded to the longest of their batch, which is of similar ones.
PADDING = 1.03
# Pieces of logits alive at once: those before and after log-softmax and the former piece; two models' and the
# terms of their divergence.
ALONE_LOGITS, BESIDE_LOGITS = 3.25, 5.5
# Bytes of a sample: document, token, likelihood; beside a baseline also divergence, agreement, confidence.
ALONE_SAMPLE, BESIDE_SAMPLE = 4 + 4 + 8, 4 + 4 + 8 + 8 + 1 + 4


def baseline_cost(params: BaselineParams, shape: ModelShape, text: TextSize) -> Cost:
    """Forward, hidden states to disk, logits."""
    if params.split == "selection":
        text = on_selection(text)
    logits = text.positions * shape.vocabulary
    written = text.positions * (shape.hidden * FLOAT + ALONE_SAMPLE)
    work = (
        _forward(params.batch_tokens, shape, text)
        + head_work(shape, text.positions)
        + amounts(
            scoring=logits, writing=written, hashing=written, reading=hidden_bytes(shape, text.positions)
        )
    )
    return _cost(params, shape, text, work, heads=1, logits=ALONE_LOGITS, disk=written)


def on_selection(text: TextSize) -> TextSize:
    """What is measured where the selection windows are measured on in place of the evaluation windows."""
    return replace(text, evaluation_tokens=text.selection_tokens, positions=text.selection_positions)


def measure_cost(params: MeasureParams, shape: ModelShape, text: TextSize) -> Cost:
    """The artifact's forward, its weights unpacked block by block, and both models' logits."""
    return _beside(params, shape, text, amounts(unpacking=shape.blocks * shape.block_parameters))


def noise_cost(params: NoiseParams, shape: ModelShape, text: TextSize) -> Cost:
    """Some windows of the lossless model once more, each by itself, beside what the baseline gave."""
    return _beside(params, shape, some_windows(params.windows, text), Work())


def some_windows(windows: int, text: TextSize) -> TextSize:
    """What is measured where so many evaluation windows are measured on at most."""
    share = min(1.0, windows / max(1, text.evaluation_windows))
    return replace(
        text,
        evaluation_windows=min(windows, text.evaluation_windows),
        evaluation_tokens=round(share * text.evaluation_tokens),
        positions=round(share * text.positions),
    )


def yardstick_cost(params: YardstickParams, shape: ModelShape, text: TextSize) -> Cost:
    """The same of a model whose weights are rounded block by block."""
    return _beside(params, shape, text, amounts(rounding=2 * shape.blocks * shape.block_parameters))


def _beside(
    params: MeasureParams | YardstickParams | NoiseParams, shape: ModelShape, text: TextSize, weights: Work
) -> Cost:
    logits = text.positions * shape.vocabulary
    written, hidden = text.positions * BESIDE_SAMPLE, hidden_bytes(shape, text.positions)
    work = (
        _forward(params.batch_tokens, shape, text)
        + weights
        + head_work(shape, text.positions).times(2)
        + embedding_work(shape)  # the baseline's, made for its head
        + amounts(comparing=logits, writing=written + hidden, hashing=written, reading=2 * hidden)
    )
    return _cost(params, shape, text, work, heads=2, logits=BESIDE_LOGITS, disk=written)


def _forward(batch_tokens: int, shape: ModelShape, text: TextSize) -> Work:
    padded = round(PADDING * text.evaluation_tokens)
    return forward_work(shape, padded, text.evaluation_length, batch_tokens)


def _cost(
    params: BaselineParams | MeasureParams | YardstickParams | NoiseParams,
    shape: ModelShape,
    text: TextSize,
    work: Work,
    *,
    heads: int,
    logits: float,
    disk: int,
) -> Cost:
    states = hidden_bytes(shape, round(PADDING * text.evaluation_tokens))
    running = (
        states + block_bytes(shape) + activation_bytes(shape, text.evaluation_length, params.batch_tokens)
    )
    embedding = states + table_bytes(shape)
    computing = max(running, embedding)
    piece = min(LOGITS_BYTES, text.positions * shape.vocabulary * FLOAT)
    scoring = heads * table_bytes(shape) + round(logits * piece)
    if (
        params.device == "cuda"
    ):  # scored states are gathered in the machine's memory and go to disk from there
        host, device = hidden_bytes(shape, text.positions), max(computing, scoring)
    else:
        host, device = max(computing, scoring), 0
    return Cost(
        work,
        host_bytes=HEAP_BYTES + host,
        device_bytes=device,
        disk_bytes=disk,
        scratch_bytes=PROGRESS_COPIES * states,
    )

"""What the stages of ONNX artifacts take: time, memory and disk, counted like those of torch.

Products in ONNX Runtime are taken to be as fast as torch's. For float32 that is so; INT8 is about as fast
without VNNI and up to three times as fast with it, so that times are upper bounds there until stored stages
have taught better.
"""

from quantflow.formats.onnx.params import (
    OnnxAssembleParams,
    OnnxBaseParams,
    OnnxCheckParams,
    OnnxImportParams,
)
from quantflow.measure.onnx_params import (
    OnnxFidelityParams,
    OnnxGenerationParams,
    OnnxMeasureParams,
    OnnxNoiseParams,
    OnnxSpeedParams,
)
from quantflow.plan.asked import STORED_TOKEN_BYTES, UNCOUNTED_TASKS
from quantflow.plan.files import HALF, SMALL_BYTES, SMALL_WORK
from quantflow.plan.forward import FLOAT, HEAP_BYTES, forward_work, head_work, stored_bytes
from quantflow.plan.measuring import ALONE_LOGITS, BESIDE_LOGITS, BESIDE_SAMPLE, on_selection, some_windows
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work, amounts
from quantflow.runtime.ort_sizes import LOGITS_BYTES, MOST_CHUNK
from quantflow.tasks.params import OnnxTasksParams

# Bytes a weight comes to on disk: its code, its share of the scales and of channels in floating point.
STORED = {"w8a8": 1.31, "w8": 1.31, "w8-block": 1.13, "w4-block": 0.64, "dynamic": 1.01}
EXPORTED = ("olmo2",)
"""Listed families that the GenAI builder does not know: torch.onnx.export makes their graphs."""
# Copies of the weights that the program which makes a graph holds: the model, and the tensors it is writing.
MAKER_COPIES = 1.3
# A process beside the run's own: Python with torch and transformers, or with ONNX Runtime.
MAKER_BYTES, SERVER_BYTES = 450 << 20, 150 << 20
# Seconds, measured: such a program starts; the builder puts a block together; torch traces one.
STARTING, BUILDING, TRACING = 8.0, 0.15, 5.0
# Passes over all weights while a graph is made of them, and while ONNX Runtime loads one.
MAKING_PASSES, LOADING_PASSES = 20, 3
# Tokens in which a graph is held against torch.
TRIED_TOKENS = 64
# Copies that ONNX Runtime holds after loading: its own layout, and what it has not let go of.
LOADED_COPIES = 1.3
# The largest tensor in the types that it passes through while it is quantized, and passes over each.
TENSOR_COPIES, QUANTIZING_PASSES = 4, 6
# A token alone reads all weights, and writes next to nothing.
DECODING_PASSES = 0.35
# Graphs that are timed, and rounds beside those asked for, which warm both up.
TIMED, WARMING = 2, 1


def check_cost(params: OnnxCheckParams) -> Cost:
    """Headers in, a page of JSON out."""
    return Cost(SMALL_WORK, host_bytes=0, disk_bytes=SMALL_BYTES)


def base_cost(params: OnnxBaseParams, shape: ModelShape) -> Cost:
    """The whole model in a program of its own, its graph on disk, and a few tokens through both."""
    exported = shape.model_type in EXPORTED
    table = shape.vocabulary * shape.hidden if exported and shape.tied else 0  # it does not tie them
    size = (HALF if params.precision == "fp16" else FLOAT) * (shape.parameters + table)
    per_block = TRACING if exported else BUILDING
    weights = shape.parameters
    work = SMALL_WORK + amounts(
        second=STARTING + per_block * shape.blocks,
        reading=weights * stored_bytes(shape),
        converting=weights,
        elementwise=MAKING_PASSES * weights,
        writing=size,
        hashing=size,
    )
    if params.precision == "fp32":
        tried = forward_work(shape, TRIED_TOKENS, TRIED_TOKENS, TRIED_TOKENS)
        work += (tried + head_work(shape, TRIED_TOKENS)).times(3) + _loading(shape)
    held = max(MAKER_BYTES + round(MAKER_COPIES * size), SERVER_BYTES + round(LOADED_COPIES * size))
    return Cost(work, host_bytes=HEAP_BYTES + held, disk_bytes=size)


def assemble_cost(params: OnnxAssembleParams, shape: ModelShape) -> Cost:
    """One tensor at a time, but for quantize_dynamic, which holds the model."""
    table = shape.vocabulary * shape.hidden
    linear, whole = shape.blocks * shape.block_parameters + table, FLOAT * shape.parameters
    if params.scheme in STORED:  # the embedding stays, also where it was tied to the head
        size, quantizing = round(STORED[params.scheme] * linear) + FLOAT * table, QUANTIZING_PASSES * linear
    else:
        size, quantizing = (HALF if params.scheme == "fp16" else FLOAT) * shape.parameters, 0
    work = SMALL_WORK + amounts(reading=whole, elementwise=quantizing, writing=size, hashing=2 * size)
    if params.scheme != "dynamic":
        return Cost(work, host_bytes=HEAP_BYTES + TENSOR_COPIES * FLOAT * table, disk_bytes=size)
    return Cost(
        work + amounts(reading=whole, writing=whole),
        host_bytes=HEAP_BYTES + round(MAKER_COPIES * whole),
        disk_bytes=size,
        scratch_bytes=whole,
    )


def baseline_cost(params: OnnxMeasureParams, shape: ModelShape, text: TextSize) -> Cost:
    """The lossless graph in memory, over all windows."""
    if params.split == "selection":
        text = on_selection(text)
    work = _running(shape, text) + amounts(scoring=text.positions * shape.vocabulary)
    return _cost(work, 1, shape, text)


def measure_cost(params: OnnxMeasureParams, shape: ModelShape, text: TextSize) -> Cost:
    """Both graphs in memory, over the same windows; the optimised one on disk while the census is taken."""
    work = _running(shape, text).times(2) + amounts(
        comparing=text.positions * shape.vocabulary, writing=FLOAT * shape.parameters
    )
    return _cost(work, 2, shape, text)


def speed_cost(params: OnnxSpeedParams, shape: ModelShape) -> Cost:
    """Both graphs in memory, each in a process of its own; prompts, and tokens that each read all weights."""
    work = (_loading(shape) + amounts(second=STARTING / 2)).times(TIMED)
    times = TIMED * (params.rounds + WARMING)
    for context in params.contexts:
        work += _graph(shape, times * context, context) + _decoding(shape, times * params.output_tokens)
    return Cost(work, host_bytes=TIMED * SERVER_BYTES + _loaded(TIMED, shape), disk_bytes=SMALL_BYTES)


def fidelity_cost(params: OnnxFidelityParams, shape: ModelShape) -> Cost:
    """The lossless graph in memory, the model block by block, and the logits of both."""
    tokens = params.windows * params.tokens
    work = _loading(shape) + _graph(shape, tokens, params.tokens).times(2)
    work += amounts(comparing=tokens * shape.vocabulary)
    return Cost(SMALL_WORK + work, host_bytes=_loaded(1, shape), disk_bytes=SMALL_BYTES)


def noise_cost(params: OnnxNoiseParams, shape: ModelShape, text: TextSize) -> Cost:
    """Some windows through the lossless graph twice, at once and in small pieces."""
    some = some_windows(params.windows, text)
    work = _running(shape, some).times(2) + amounts(comparing=some.positions * shape.vocabulary)
    return _cost(work, 1, shape, some)


def import_cost(params: OnnxImportParams, shape: ModelShape) -> Cost:
    """The graph in memory, for three tokens."""
    return Cost(SMALL_WORK + _loading(shape), host_bytes=_loaded(1, shape), disk_bytes=SMALL_BYTES)


def tasks_cost(params: OnnxTasksParams, shape: ModelShape) -> Cost:
    """A graph in memory; how much text tasks have cannot be told before."""
    return Cost(host_bytes=_loaded(1, shape), unknown=UNCOUNTED_TASKS)


def generation_cost(params: OnnxGenerationParams, shape: ModelShape, *, runs: int = 1) -> Cost:
    """A prompt at a time, read and then gone on with token by token."""
    reading = _graph(shape, params.prompts * params.prompt_tokens, params.prompt_tokens)
    work = reading + _decoding(shape, params.prompts * params.output_tokens)
    stored = STORED_TOKEN_BYTES * params.prompts * (params.prompt_tokens + params.output_tokens)
    return Cost(
        SMALL_WORK + _loading(shape) + work.times(runs), host_bytes=_loaded(1, shape), disk_bytes=stored
    )


def _loaded(graphs: int, shape: ModelShape) -> int:
    return HEAP_BYTES + round(graphs * LOADED_COPIES * FLOAT * shape.parameters)


def _decoding(shape: ModelShape, tokens: int) -> Work:
    return amounts(elementwise=DECODING_PASSES * shape.parameters * tokens)


def _graph(shape: ModelShape, tokens: int, length: int) -> Work:
    """Tokens through a graph, the head over every one of them."""
    rows = min(length, max(1, min(MOST_CHUNK, LOGITS_BYTES // (FLOAT * shape.vocabulary))))
    return forward_work(shape, tokens, length, rows) + head_work(shape, tokens)


def _loading(shape: ModelShape) -> Work:
    return amounts(reading=FLOAT * shape.parameters, elementwise=LOADING_PASSES * shape.parameters)


def _running(shape: ModelShape, text: TextSize) -> Work:
    return _loading(shape) + _graph(shape, text.evaluation_tokens, text.evaluation_length)


def _cost(work: Work, graphs: int, shape: ModelShape, text: TextSize) -> Cost:
    size = FLOAT * shape.parameters
    piece = min(LOGITS_BYTES, text.evaluation_length * shape.vocabulary * FLOAT)
    logits = BESIDE_LOGITS if graphs > 1 else ALONE_LOGITS
    return Cost(
        SMALL_WORK + work,
        host_bytes=_loaded(graphs, shape) + round(logits * piece),
        disk_bytes=text.positions * BESIDE_SAMPLE,
        scratch_bytes=size if graphs > 1 else 0,
    )

"""What the stages of ONNX artifacts take: memory and disk; their time has not been counted."""

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
from quantflow.plan.files import SMALL_BYTES, SMALL_WORK
from quantflow.plan.forward import HEAP_BYTES
from quantflow.plan.measuring import BESIDE_SAMPLE
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost
from quantflow.tasks.params import OnnxTasksParams

FLOAT, HALF = 4, 2
# Bytes a weight comes to on disk: its code, its share of the scales and of channels in floating point.
STORED = {"w8a8": 1.31, "w8": 1.31, "w8-block": 1.13, "w4-block": 0.64, "dynamic": 1.01}
# Copies of the weights that the builder holds at most: the model, and the tensors it is writing.
BUILDER_COPIES = 1.3
# Copies that ONNX Runtime holds after loading: its own layout, and what it has not let go of.
LOADED_COPIES = 1.3
# The largest tensor in the types that it passes through while it is quantized.
TENSOR_COPIES = 4
UNCOUNTED = "how long ONNX Runtime and its builder take"


def check_cost(params: OnnxCheckParams) -> Cost:
    """Headers in, a page of JSON out."""
    return Cost(SMALL_WORK, host_bytes=0, disk_bytes=SMALL_BYTES)


def base_cost(params: OnnxBaseParams, shape: ModelShape) -> Cost:
    """The whole model in the builder's memory, and its graph on disk."""
    size = (HALF if params.precision == "fp16" else FLOAT) * shape.parameters
    return Cost(host_bytes=HEAP_BYTES + round(BUILDER_COPIES * size), disk_bytes=size, unknown=UNCOUNTED)


def assemble_cost(params: OnnxAssembleParams, shape: ModelShape) -> Cost:
    """One tensor at a time, but for quantize_dynamic, which holds the model."""
    linear = shape.blocks * shape.block_parameters + shape.vocabulary * shape.hidden
    other = FLOAT * shape.embedding_parameters
    size = round(STORED.get(params.scheme, FLOAT) * linear) + other
    table = TENSOR_COPIES * FLOAT * shape.vocabulary * shape.hidden
    held = round(BUILDER_COPIES * FLOAT * shape.parameters) if params.scheme == "dynamic" else table
    return Cost(host_bytes=HEAP_BYTES + held, disk_bytes=size, unknown=UNCOUNTED)


def baseline_cost(params: OnnxMeasureParams, shape: ModelShape, text: TextSize) -> Cost:
    """The lossless graph in memory."""
    return _running(1, shape, text)


def measure_cost(params: OnnxMeasureParams, shape: ModelShape, text: TextSize) -> Cost:
    """Both graphs in memory; the optimised one is on disk while the census is taken."""
    return _running(2, shape, text)


def speed_cost(params: OnnxSpeedParams, shape: ModelShape) -> Cost:
    """Both graphs in memory, each in a process of its own."""
    return Cost(host_bytes=_loaded(2, shape), disk_bytes=SMALL_BYTES, unknown=UNCOUNTED)


def fidelity_cost(params: OnnxFidelityParams, shape: ModelShape) -> Cost:
    """The lossless graph in memory, and the model block by block."""
    return Cost(host_bytes=_loaded(1, shape), disk_bytes=SMALL_BYTES, unknown=UNCOUNTED)


def noise_cost(params: OnnxNoiseParams, shape: ModelShape, text: TextSize) -> Cost:
    """The lossless graph in memory, on some windows."""
    return _running(1, shape, text)


def import_cost(params: OnnxImportParams, shape: ModelShape) -> Cost:
    """The graph in memory, for three tokens."""
    return Cost(host_bytes=_loaded(1, shape), disk_bytes=SMALL_BYTES, unknown=UNCOUNTED)


def tasks_cost(params: OnnxTasksParams, shape: ModelShape) -> Cost:
    """A graph in memory; how much text tasks have cannot be told before."""
    return Cost(host_bytes=_loaded(1, shape), unknown=UNCOUNTED_TASKS)


def generation_cost(params: OnnxGenerationParams, shape: ModelShape) -> Cost:
    """A graph in memory."""
    stored = STORED_TOKEN_BYTES * params.prompts * (params.prompt_tokens + params.output_tokens)
    return Cost(host_bytes=_loaded(1, shape), disk_bytes=stored, unknown=UNCOUNTED)


def _loaded(graphs: int, shape: ModelShape) -> int:
    return HEAP_BYTES + round(graphs * LOADED_COPIES * FLOAT * shape.parameters)


def _running(graphs: int, shape: ModelShape, text: TextSize) -> Cost:
    size = FLOAT * shape.parameters
    return Cost(
        host_bytes=_loaded(graphs, shape),
        disk_bytes=text.positions * BESIDE_SAMPLE,
        scratch_bytes=size if graphs > 1 else 0,
        unknown=UNCOUNTED,
    )

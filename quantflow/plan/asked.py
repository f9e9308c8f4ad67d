"""What the stages take that run tasks, generate text or look at somebody else's artifact."""

from quantflow.formats.params import ImportParams
from quantflow.measure.params import CustomParams, GenerationParams
from quantflow.plan.files import SMALL_BYTES, SMALL_WORK
from quantflow.plan.forward import (
    CALLS_PER_BLOCK,
    FLOAT,
    HEAP_BYTES,
    activation_bytes,
    forward_work,
    head_work,
    loading_work,
)
from quantflow.plan.shape import ModelShape
from quantflow.plan.work import Cost, Work, amounts
from quantflow.tasks.params import TasksParams

# The baseline generates twice: once more in batches of half the size.
BASELINE_RUNS = 2
# Text of a prompt and its answer with ids and margins, as JSON: bytes per token.
STORED_TOKEN_BYTES = 40
UNCOUNTED_TASKS = "how long the prompts of tasks are is known when they have been loaded"


def tasks_cost(params: TasksParams, shape: ModelShape) -> Cost:
    """The weights, kept in memory where they fit; how much text tasks have cannot be told before."""
    held = shape.parameters * FLOAT + activation_bytes(shape, params.batch_tokens, params.batch_tokens)
    on_gpu = params.device == "cuda"
    return Cost(
        host_bytes=HEAP_BYTES + (0 if on_gpu else held),
        device_bytes=held if on_gpu else 0,
        unknown=UNCOUNTED_TASKS,
    )


def generation_cost(params: GenerationParams, shape: ModelShape, *, runs: int = 1) -> Cost:
    """Prompts read once, then a forward of a few rows for every token."""
    rows = min(params.prompts, max(1, params.batch_tokens // params.prompt_tokens))
    batches = -(-params.prompts // rows)
    steps = batches * params.output_tokens
    reading = forward_work(
        shape, params.prompts * params.prompt_tokens, params.prompt_tokens, params.batch_tokens
    )
    products = Work({rows: 2.0 * rows * (shape.parameters - shape.vocabulary * shape.hidden)})
    step = products + head_work(shape, rows) + amounts(call=shape.blocks * CALLS_PER_BLOCK)
    work = reading + step.times(steps) + loading_work(shape).times(shape.blocks)
    held = shape.parameters * FLOAT + activation_bytes(shape, params.prompt_tokens, params.batch_tokens)
    on_gpu = params.device == "cuda"
    return Cost(
        work.times(runs),
        host_bytes=HEAP_BYTES + (0 if on_gpu else held),
        device_bytes=held if on_gpu else 0,
        disk_bytes=STORED_TOKEN_BYTES * params.prompts * (params.prompt_tokens + params.output_tokens),
    )


def custom_cost(params: CustomParams) -> Cost:
    """Programs of the user's own."""
    return Cost(host_bytes=0, disk_bytes=SMALL_BYTES, unknown="how long your own scorers take")


def import_cost(params: ImportParams) -> Cost:
    """Headers in, a page of JSON out."""
    return Cost(SMALL_WORK, host_bytes=0, disk_bytes=SMALL_BYTES)

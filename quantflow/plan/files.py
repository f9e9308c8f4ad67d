"""What the stages take that fetch, read, write and judge rather than compute."""

from quantflow.data.params import DataParams
from quantflow.errors import RecipeError
from quantflow.formats.params import AssembleParams, ExportParams
from quantflow.inspection.params import InspectParams
from quantflow.inspection.size import GENERATED_TOKENS, RESIDENT_BYTES
from quantflow.model.families import family_of
from quantflow.model.units import kept_units
from quantflow.plan.forward import CALLS_PER_BLOCK, FLOAT, HEAP_BYTES, block_bytes, stored_bytes
from quantflow.plan.model import PlannedModel
from quantflow.plan.quantizing import code_bytes
from quantflow.plan.shape import ModelShape
from quantflow.plan.text import TextSize
from quantflow.plan.work import Cost, Work, amounts

# A token while the data stage works: in the document, in its windows, and in what the tokenizer gives back.
TOKEN_BYTES = 24
# The tokenizer itself and one batch of text with its tokens as Python's numbers.
TOKENIZER_BYTES = 40 << 20
# A stored token, its share of offsets and documents included.
STORED_TOKEN_BYTES = 4.5
# A group's float16 scale, beside its packed zero point; the group of an input in GPTQ's layout.
SCALE_BYTES, INDEX_BYTES = 2, 4
HALF = 2
# Converting a GGUF file, measured on SmolLM2-135M-Instruct in Q4_1: passes over the weights that dequantizing
# in numpy comes to, and bytes a weight takes meanwhile, in float32 and in the checkpoint's dtype at once.
CONVERSION_PASSES, CONVERSION_BYTES = 80, 6
# Passes that counting what a 16-bit type cannot hold makes over the weights.
EXPORT_PASSES = 8
# Rows of one forward in which a model is tried: the built-in texts with their filling, or the prompts so far.
TRIED_ROWS = 160
# Loading the tokenizer and trying it on the built-in texts.
TOKENIZER_SECONDS = 0.5
# Reading, parsing and writing small files.
SMALL_WORK = amounts(call=2_000)
SMALL_BYTES = 8 << 10


def source_cost(model: PlannedModel) -> Cost:
    """A folder is only looked at; everything else becomes a checkpoint in the workspace."""
    if model.kind == "folder" and not model.converted:
        return Cost(SMALL_WORK, host_bytes=0, disk_bytes=SMALL_BYTES)
    if model.shape is None or model.weight_bytes is None:
        return Cost(unknown=model.unknown)
    weights, parameters = model.weight_bytes, model.shape.parameters
    if model.kind == "hub":
        # The checkpoint is hard links to the hub's own cache; what is downloaded is counted there.
        work = None if model.download_bytes else SMALL_WORK + amounts(hashing=weights)
        why = "how fast the network is" if work is None else ""
        return Cost(work, host_bytes=0, disk_bytes=SMALL_BYTES, unknown=why)
    work = SMALL_WORK + amounts(writing=weights, hashing=2 * weights)
    if model.kind == "folder":  # pickled weights, read file by file
        return Cost(work + amounts(reading=weights), host_bytes=weights, disk_bytes=weights)
    work += amounts(elementwise=CONVERSION_PASSES * parameters, block=2 * model.shape.blocks)
    return Cost(work, host_bytes=CONVERSION_BYTES * parameters, disk_bytes=weights)


def gate_cost() -> Cost:
    """Samples in, a page of JSON out."""
    return Cost(SMALL_WORK, host_bytes=0, disk_bytes=SMALL_BYTES)


def check_cost(model: PlannedModel) -> Cost:
    """Headers and an empty model in, a page of JSON out."""
    blocks = model.shape.blocks if model.shape is not None else 0
    return Cost(SMALL_WORK + amounts(block=blocks), host_bytes=0, disk_bytes=SMALL_BYTES)


def inspect_cost(params: InspectParams, shape: ModelShape) -> Cost:
    """Every weight looked through, and a few short forwards of a model that is kept whole if it is small."""
    weights, stored = shape.parameters, stored_bytes(shape)
    is_resident = weights * FLOAT <= RESIDENT_BYTES
    forwards = 1 + GENERATED_TOKENS
    readings = 1 if is_resident else forwards
    work = (
        SMALL_WORK
        + amounts(second=TOKENIZER_SECONDS, block=shape.blocks, elementwise=2 * weights)
        + amounts(reading=(1 + readings) * weights * stored, converting=(1 + readings) * weights)
        + amounts(call=forwards * shape.blocks * CALLS_PER_BLOCK)
        + Work({TRIED_ROWS: 2.0 * weights * TRIED_ROWS * forwards})
    )
    held = (
        weights * FLOAT if is_resident else block_bytes(shape) + 2 * shape.vocabulary * shape.hidden * FLOAT
    )
    if params.device == "cuda":
        return Cost(work, host_bytes=HEAP_BYTES, device_bytes=held, disk_bytes=SMALL_BYTES)
    return Cost(work, host_bytes=HEAP_BYTES + held, disk_bytes=SMALL_BYTES)


def export_cost(params: ExportParams, shape: ModelShape) -> Cost:
    """Every weight read twice: to count what the type costs, and to write it."""
    weights, written = shape.parameters, HALF * shape.parameters
    work = SMALL_WORK + amounts(
        elementwise=EXPORT_PASSES * weights,
        converting=2 * weights,
        reading=2 * weights * stored_bytes(shape),
        writing=written,
        hashing=2 * written,
    )
    table = shape.vocabulary * shape.hidden * (stored_bytes(shape) + HALF)
    return Cost(work, host_bytes=HEAP_BYTES + table, disk_bytes=written)


def data_cost(params: DataParams, text: TextSize) -> Cost:
    """Text read, tokenized and cut."""
    stored = round(STORED_TOKEN_BYTES * (text.calibration_tokens + 2 * text.evaluation_tokens))
    seconds = text.reading_seconds
    return Cost(
        None if seconds is None else SMALL_WORK + amounts(second=seconds),
        host_bytes=TOKENIZER_BYTES + TOKEN_BYTES * text.held_tokens,
        disk_bytes=stored,
        unknown="how fast the text is tokenized, as the tokenizer is not here" if seconds is None else "",
    )


def assemble_cost(params: AssembleParams, shape: ModelShape) -> Cost:
    """Codes packed, everything else copied, all of it hashed for its provenance and again for the store."""
    quantized = shape.blocks * shape.block_parameters - _kept_parameters(params.keep, shape)
    written = artifact_bytes(params, shape)
    tables = shape.embedding_parameters
    codes = code_bytes(shape, params.scheme.group_width(shape.hidden))
    work = SMALL_WORK + amounts(
        packing=quantized,
        elementwise=2 * tables,
        converting=tables,
        reading=shape.blocks * codes + tables * stored_bytes(shape),
        writing=written,
        hashing=2 * written,
    )
    table = shape.vocabulary * shape.hidden * (stored_bytes(shape) + HALF)
    held = max(table, codes + block_bytes(shape) // 2)
    return Cost(work, host_bytes=HEAP_BYTES + held, disk_bytes=written)


def artifact_bytes(params: AssembleParams, shape: ModelShape) -> int:
    """The finished artifact: codes of the linears, everything else in 16 bits."""
    scheme, kept = params.scheme, _kept_parameters(params.keep, shape)
    weight = scheme.bits / 8
    block = sum(
        outputs * (inputs * weight + inputs // scheme.group_width(inputs) * (SCALE_BYTES + weight))
        + (INDEX_BYTES * inputs if params.format == "gptq" else 0)
        for outputs, inputs in shape.linears.values()
    )
    quantized = 1 - kept / max(1, shape.blocks * shape.block_parameters)
    return round(quantized * shape.blocks * block + HALF * (kept + shape.embedding_parameters))


def _kept_parameters(keep: tuple[str, ...], shape: ModelShape) -> int:
    """Weights of units that stay as they are; what `keep` says wrong is for the check stage to refuse."""
    try:
        kept = kept_units(keep, family_of(shape.model_type), shape.blocks)
    except RecipeError:
        return 0
    sizes = {unit: sum(out * width for out, width in linears) for unit, linears in shape.units.items()}
    return sum(sizes[unit.rpartition(".")[2]] for unit in kept)

"""What a streamed forward and the scoring of its logits take, counted as the code does them."""

from math import ceil

from quantflow.measure.batches import LOGITS_BYTES
from quantflow.plan.shape import BYTES_OF, ModelShape
from quantflow.plan.work import LARGEST_REUSED_AMONG_MANY, Work, amounts, fresh, matmul

FLOAT = 4
"""Bytes of a number in computing: float32."""

# One block's forward beside its products, counted in transformers' Llama: passes over the hidden states (two
# norms, two residuals), over queries and keys (rotary embedding, repeated heads), over the feed-forward's
# activations (SiLU, product); and the calls of torch that it is made of, Python's part included.
HIDDEN_PASSES, ATTENTION_PASSES, INTERMEDIATE_PASSES = 12, 7, 3
CALLS_PER_BLOCK = 160
# Calls around one block's weights: files opened, tensors made and registered.
CALLS_PER_TENSOR = 40
TENSORS_PER_BLOCK = 9
# Activations alive at once at the widest place of a block, the feed-forward: gate, up, SiLU and product.
INTERMEDIATE_ALIVE, HIDDEN_ALIVE = 4, 4


# Hidden states on disk, kept between blocks: the newest, and those before until the newest are whole. The
# time for it is at most a twentieth and not counted.
PROGRESS_COPIES = 2
# What the C library keeps of memory that earlier stages freed, as measured between stages of small models.
HEAP_BYTES = 100 << 20


def stored_bytes(shape: ModelShape) -> int:
    """Bytes of a weight in the checkpoint."""
    return BYTES_OF.get(shape.dtype or "", FLOAT)


def batch_rows(length: int, batch_tokens: int) -> int:
    """Tokens of one batch: whole windows, at least one."""
    return max(1, batch_tokens // max(1, length)) * max(1, length)


def forward_work(shape: ModelShape, tokens: int, length: int, batch_tokens: int) -> Work:
    """All blocks over all tokens, each block's weights read once.

    Args:
        shape: The model.
        tokens: Tokens in all.
        length: Tokens of a window.
        batch_tokens: Tokens of a batch, at most.
    """
    rows = min(tokens, batch_rows(length, batch_tokens))
    batches = ceil(tokens / max(1, rows))
    products = Work()
    for outputs, inputs in shape.linears.values():
        products += matmul(rows, inputs, outputs)
    around = amounts(
        attention=4 * rows * length * shape.query,
        elementwise=rows
        * (
            HIDDEN_PASSES * shape.hidden
            + ATTENTION_PASSES * (shape.query + shape.key_value)
            + INTERMEDIATE_PASSES * shape.intermediate
        ),
        call=CALLS_PER_BLOCK,
    )
    for width, tensors in (
        (shape.hidden, HIDDEN_PASSES),
        (shape.query, ATTENTION_PASSES),
        (shape.intermediate, INTERMEDIATE_ALIVE),
    ):
        around += fresh(rows, width, tensors, reused=LARGEST_REUSED_AMONG_MANY)
    # The last batch may be a part of one: products are counted by tokens, calls by batches.
    per_block = products.times(tokens / max(1, rows)) + around.times(batches)
    return (per_block + loading_work(shape)).times(shape.blocks) + embedding_work(shape)


def loading_work(shape: ModelShape) -> Work:
    """Weights of one block from disk to float32."""
    return amounts(
        reading=shape.block_parameters * stored_bytes(shape),
        converting=shape.block_parameters,
        call=CALLS_PER_TENSOR * TENSORS_PER_BLOCK,
    )


def embedding_work(shape: ModelShape) -> Work:
    """Embedding and the empty model around it."""
    table = shape.vocabulary * shape.hidden
    return amounts(block=shape.blocks, reading=table * stored_bytes(shape), converting=table)


def head_work(shape: ModelShape, positions: int) -> Work:
    """Logits of all positions from their hidden states."""
    table = shape.vocabulary * shape.hidden
    rows = min(positions, logit_rows(shape))
    product = matmul(rows, shape.hidden, shape.vocabulary).times(positions / max(1, rows))
    return product + amounts(reading=table * stored_bytes(shape), converting=table)


def logit_rows(shape: ModelShape) -> int:
    """Positions whose logits are held at once."""
    return max(1, LOGITS_BYTES // (shape.vocabulary * FLOAT))


def block_bytes(shape: ModelShape) -> int:
    """A loaded block."""
    return shape.block_parameters * FLOAT


def table_bytes(shape: ModelShape) -> int:
    """A loaded embedding or head."""
    return shape.vocabulary * shape.hidden * FLOAT


def activation_bytes(shape: ModelShape, length: int, batch_tokens: int) -> int:
    """What one batch holds inside a block."""
    rows = batch_rows(length, batch_tokens)
    return rows * (INTERMEDIATE_ALIVE * shape.intermediate + HIDDEN_ALIVE * shape.hidden) * FLOAT


def hidden_bytes(shape: ModelShape, tokens: int) -> int:
    """Hidden states of tokens."""
    return tokens * shape.hidden * FLOAT

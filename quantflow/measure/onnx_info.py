"""How a graph was run in ONNX Runtime, as its measurement says it."""

from quantflow.formats.onnx.params import SessionOptions
from quantflow.measure.measurement import RuntimeInfo


def session_info(
    session: SessionOptions, instruction_set: str, provider: str, dtype: str, chunk: int
) -> RuntimeInfo:
    """Describe a session.

    Args:
        session: Its pinned options.
        instruction_set: What the processor multiplies 8 bits with.
        provider: The execution provider that runs the graph.
        dtype: What activations are in where they are not rounded.
        chunk: Tokens that go through the graph at once, at most.
    """
    return RuntimeInfo(
        name="onnxruntime",
        version=session.version.rpartition(" ")[2],
        device=session.provider,
        dtype=dtype,
        options={
            "package": session.version,
            "provider": provider,
            "optimization": session.optimization,
            "threads": str(session.threads),
            "instruction_set": instruction_set,
            "batch": "1",
            "chunk_tokens": str(chunk),
            **session.entries,
        },
    )

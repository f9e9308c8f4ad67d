"""How a model was run in vLLM, as its measurement says it."""

from quantflow.measure.measurement import RuntimeInfo
from quantflow.runtime.params import ServingParams
from quantflow.runtime.vllm import Session


def served_info(session: Session, params: ServingParams) -> RuntimeInfo:
    """Describe a session.

    Args:
        session: A loaded model.
        params: vLLM's pinned options.
    """
    return RuntimeInfo(
        name="vllm",
        version=session.loaded.version,
        device=params.device,
        dtype=session.loaded.dtype,
        options=session.loaded.options,
    )

"""Memory that a model takes while it is served."""

from quantflow.measure.speed_value import MemoryOf
from quantflow.runtime.vllm import Session


def memory_of(session: Session, file_bytes: int) -> MemoryOf:
    """Take a session's memory after it has served.

    Args:
        session: A loaded model.
        file_bytes: Size of the model's files.
    """
    used, idle = session.memory(), session.loaded.idle
    if used.device:
        return MemoryOf(file_bytes=file_bytes, idle_bytes=idle.device, peak_bytes=used.device)
    return MemoryOf(file_bytes=file_bytes, idle_bytes=idle.peak, peak_bytes=used.peak)

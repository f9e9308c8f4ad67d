"""Looks at everything a run depends on."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.doctor.advice import advise, instruction_sets
from quantflow.doctor.computing import TorchAnswer, ask_torch
from quantflow.doctor.finding import Finding
from quantflow.doctor.versions import library_findings
from quantflow.hardware.gpu import Gpus, find_gpus, first_visible
from quantflow.hardware.memory import Memory, find_memory
from quantflow.hardware.processor import Processor, find_processor
from quantflow.pipeline.store import WORKSPACE
from quantflow.plan.fit import PROCESS_BYTES
from quantflow.plan.size import readable

# Free disk below which nothing but the smallest models fits beside its own artifact.
LITTLE_DISK = 2 * 10**9
OLDEST_PYTHON = (3, 11)


class Examination(BaseModel):
    """What the doctor found.

    Attributes:
        findings: Everything that was looked at.
        advice: What the hardware means, by topic.
        machine: The figures, for programs.
    """

    model_config = ConfigDict(frozen=True)

    findings: tuple[Finding, ...]
    advice: dict[str, str]
    machine: dict[str, object]

    @property
    def broken(self) -> bool:
        """Whether QuantFlow cannot work like this."""
        return any(finding.level == "broken" for finding in self.findings)


def examine(folder: Path) -> Examination:
    """Look at processor, memory, GPUs, disk, libraries and torch.

    Args:
        folder: Where runs would write.
    """
    processor, memory, gpus, torch = find_processor(), find_memory(), find_gpus(), ask_torch()
    findings = (
        *_processor(processor, torch),
        *_memory(memory),
        *_gpus(gpus, torch),
        *_disk(folder),
        *_python(),
        *library_findings(),
        *_torch(torch),
    )
    return Examination(
        findings=findings,
        advice=dict(advise(processor, first_visible(gpus))),
        machine={
            "processor": processor.name,
            "cores": processor.cores,
            "instruction_sets": instruction_sets(processor),
            "memory_bytes": memory.total if memory else None,
            "memory_available_bytes": memory.available if memory else None,
            "memory_limit_bytes": memory.limit if memory else None,
            "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory} for gpu in gpus.devices],
            "driver": gpus.driver,
            "disk_free_bytes": shutil.disk_usage(folder).free,
            "torch": torch.model_dump(),
        },
    )


def _processor(processor: Processor, torch: TorchAnswer) -> Iterator[Finding]:
    sets = ", ".join(instruction_sets(processor)) or "none of those that matter"
    threads = f", torch computes with {torch.threads} of them" if torch.threads else ""
    text = f"{processor.name}, {processor.cores} usable cores{threads}; instruction sets: {sets}"
    yield Finding(level="fine", topic="processor", text=text)


def _memory(memory: Memory | None) -> Iterator[Finding]:
    if memory is None:
        yield Finding(level="note", topic="memory", text="the system does not say how much there is")
        return
    limit = f" (limit of the control group: {readable(memory.limit)})" if memory.limit is not None else ""
    text = f"{readable(memory.total)}, {readable(memory.available)} available{limit}"
    if memory.available < PROCESS_BYTES:
        text += f"; QuantFlow takes {readable(PROCESS_BYTES)} before it loads anything. Close other programs."
        yield Finding(level="broken", topic="memory", text=text)
    else:
        yield Finding(level="fine", topic="memory", text=text)


def _gpus(gpus: Gpus, torch: TorchAnswer) -> Iterator[Finding]:
    for gpu in gpus.devices:
        capability = ".".join(map(str, gpu.capability))
        text = (
            f"{gpu.name}, {readable(gpu.memory)}, {readable(gpu.free)} free, compute capability {capability}"
        )
        yield Finding(level="fine", topic="GPU", text=f"{text}, driver {gpus.driver}")
    if not gpus.devices:
        yield Finding(
            level="fine", topic="GPU", text="no NVIDIA GPU with a driver; runs compute on the processor"
        )
    elif not torch.broken and not torch.cuda_devices:
        why = "is built for another CUDA" if torch.cuda_build else "is a build without CUDA"
        yield Finding(
            level="note",
            topic="GPU",
            text=f"torch {why} and does not use the GPU. Set up with a CUDA build: see README, `make setup`.",
        )


def _disk(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    workspace = folder / WORKSPACE
    if not os.access(workspace if workspace.exists() else folder, os.W_OK):
        yield Finding(
            level="broken", topic="disk", text=f"{folder} cannot be written. Work in another folder."
        )
    elif free < LITTLE_DISK:
        yield Finding(
            level="note", topic="disk", text=f"{readable(free)} free, which is little: see `quantflow clean`"
        )
    else:
        yield Finding(level="fine", topic="disk", text=f"{readable(free)} free in {folder}")


def _python() -> Iterator[Finding]:
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        yield Finding(level="broken", topic="Python", text=f"older than {wanted}. Run `make setup PYTHON=…`.")


def _torch(torch: TorchAnswer) -> Iterator[Finding]:
    if torch.broken:
        yield Finding(
            level="broken", topic="torch", text=f"torch does not work: {torch.broken}. Run `make setup`."
        )
        return
    right = {"the processor": torch.cpu_right} | (
        {"the GPU": torch.cuda_right} if torch.cuda_right is not None else {}
    )
    for device, is_right in right.items():
        if is_right:
            yield Finding(level="fine", topic="torch", text=f"computes right on {device}")
        else:
            yield Finding(
                level="broken",
                topic="torch",
                text=f"computes wrong on {device}. Install another build of torch.",
            )

"""The stages that run models in vLLM, and what has to be there before any stage starts."""

import hashlib
import json
import os

from quantflow.errors import RuntimeUnavailableError
from quantflow.gate.params import MemoryMargins, SpeedMargin
from quantflow.measure.params import ServedParams, SpeedParams
from quantflow.pipeline.importing import runs_as_graph
from quantflow.pipeline.machine import Machine
from quantflow.pipeline.stage import Stage
from quantflow.recipe.artifacts import QuantizedArtifact, TorchArtifact
from quantflow.recipe.schema import Recipe
from quantflow.recipe.serving import SpeedLimits
from quantflow.runtime.environment import Device, device_here, find_environment
from quantflow.runtime.params import ServedDtype, ServingParams


def needs_vllm(recipe: Recipe) -> bool:
    """Whether anything of a recipe is measured in vLLM."""
    others = any(not runs_as_graph(recipe, artifact) for artifact in recipe.artifacts)
    return recipe.runtime.name == "vllm" or (times_serving(recipe) and others)


def times_serving(recipe: Recipe) -> bool:
    """Whether a recipe asks for speed or memory."""
    return recipe.gate.speed is not None or recipe.gate.memory is not None


def serving_params(recipe: Recipe, machine: Machine) -> ServingParams:
    """Resolve vLLM's options, and refuse at once what it could not do hours later.

    Raises:
        RuntimeUnavailableError: vLLM is not installed, or its build for this processor lacks a kernel.
    """
    device = device_here(recipe.runtime.device)
    environment = find_environment("vllm", device)
    quantized = [artifact.name for artifact in recipe.artifacts if isinstance(artifact, QuantizedArtifact)]
    wide = machine.architecture != "x86_64" or "avx512f" in machine.instruction_sets
    if device == "cpu" and not wide and quantized:
        # Measured: the AVX2 library in the wheel of 0.32.0 has no `cpu_gemm_wna16`, and loading succeeds.
        raise RuntimeUnavailableError(
            f"vLLM {environment.record.version} has no kernels for quantized weights on a processor without "
            f"AVX-512, so {', '.join(quantized)} cannot be run here",
            where="runtime vllm",
            hint="Measure on a processor with AVX-512 or on a GPU; `runtime.name: torch`, without gate.speed "
            "and gate.memory, works here.",
        )
    packages = json.dumps(environment.record.packages, sort_keys=True).encode()
    return ServingParams(
        environment=f"{environment.name} {hashlib.sha256(packages).hexdigest()[:12]}",
        device=device,
        dtype=_dtype(recipe.runtime.vllm.dtype, device, wide=wide),
        cache_bytes=recipe.runtime.vllm.cache_bytes,
        threads=threads_asked(),
    )


def threads_asked() -> int:
    """Threads that OMP_NUM_THREADS asks for, of a list of them its first; one a core where it asks for none.

    What is no such number OpenMP leaves out of account, too.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else len(os.sched_getaffinity(0))


def _dtype(asked: ServedDtype, device: Device, *, wide: bool) -> ServedDtype:
    """Resolve `auto` on a CPU: without AVX-512 bfloat16 took twenty times as long as float32 there."""
    if asked != "auto" or device == "cuda":
        return asked
    return "bfloat16" if wide else "float32"


def served_params(recipe: Recipe, machine: Machine) -> ServedParams:
    """Parameters of the stages that measure in vLLM."""
    return ServedParams(serving=serving_params(recipe, machine), batch_tokens=recipe.runtime.batch_tokens)


def speed_stage(recipe: Recipe, artifact: TorchArtifact, machine: Machine) -> Stage:
    """The stage that times an artifact beside its baseline and takes their memory."""
    limits = recipe.gate.speed or SpeedLimits()
    return Stage(
        name=f"speed:{artifact.name}",
        function="quantflow.measure.speed:run",
        params=SpeedParams(
            serving=serving_params(recipe, machine),
            batch_tokens=recipe.runtime.batch_tokens,
            concurrency=limits.concurrency,
            prompt_tokens=limits.prompt_tokens,
            output_tokens=limits.output_tokens,
            rounds=limits.rounds,
        ),
        inputs={"source": "source", "assemble": f"assemble:{artifact.name}"},
        on_device=True,
        artifact=artifact.name,
        again=True,
    )


def speed_margin(recipe: Recipe) -> SpeedMargin | None:
    """What the gate holds an artifact's speed to."""
    limits = recipe.gate.speed
    if limits is None or limits.min_speedup is None:
        return None
    return SpeedMargin(min_speedup=limits.min_speedup, metric=limits.metric)


def memory_margins(recipe: Recipe) -> MemoryMargins | None:
    """What the gate holds an artifact's memory to."""
    limits = recipe.gate.memory
    if limits is None:
        return None
    return MemoryMargins(max_ratio=limits.max_ratio, max_bytes=limits.max_bytes)

"""ONNX Runtime on this machine: which package, with which options, and what graphs are asked in it."""

import os
from importlib.metadata import PackageNotFoundError, version

from quantflow.errors import RuntimeUnavailableError
from quantflow.formats.onnx.params import SessionOptions
from quantflow.measure.onnx_params import OnnxGenerationParams, OnnxMeasureParams
from quantflow.pipeline.asked import Asking, prompts_of, task_list
from quantflow.pipeline.machine import Machine
from quantflow.recipe.schema import Recipe
from quantflow.tasks.params import OnnxTasksParams

BASE = "onnx-base"
"""The stage that makes the lossless graph."""
PACKAGES = {"cpu": ("onnxruntime", "onnxruntime-gpu"), "cuda": ("onnxruntime-gpu",)}
BUILDERS = {"cpu": ("onnxruntime-genai", "onnxruntime-genai-cuda"), "cuda": ("onnxruntime-genai-cuda",)}
# Products of 8 bits with 8 bits, the fastest first: INT8 figures hold for the one they were measured with.
INT8_SETS = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2")


def graph_params(recipe: Recipe, machine: Machine) -> OnnxMeasureParams:
    """Parameters of measuring a graph.

    Raises:
        RuntimeUnavailableError: ONNX Runtime, or its build for the device, is not installed.
    """
    options = recipe.runtime.onnx
    return OnnxMeasureParams(
        session=SessionOptions(
            provider=machine.device,
            version=installed(PACKAGES[machine.device], machine),
            threads=options.threads or _threads(),
            optimization=options.optimization,
            accuracy_level=options.accuracy_level,
        ),
        instruction_set=next((name for name in INT8_SETS if name in machine.instruction_sets), "other"),
    )


def _threads() -> int:
    """What OMP_NUM_THREADS says, of several levels the outermost; all cores where it says no number."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(said) if said.isdecimal() and int(said) else len(os.sched_getaffinity(0))


def asked_in_onnx(recipe: Recipe, machine: Machine) -> Asking:
    """What ONNX artifacts are asked, and by which stages.

    Raises:
        RecipeError: The folder of tasks is not there.
        RuntimeUnavailableError: ONNX Runtime is not installed.
    """
    session = graph_params(recipe, machine).session
    tasks, prompts = task_list(recipe), prompts_of(recipe)
    return Asking(
        tasks=None if tasks is None else OnnxTasksParams(**dict(tasks), session=session),
        generation=None if prompts is None else OnnxGenerationParams(**dict(prompts), session=session),
        baseline={"source": "source", "base": BASE},
        artifact={"source": "source"},
        tasks_module="quantflow.tasks.graph_stage",
        generation_module="quantflow.measure.onnx_generation",
        mark="-onnx",
    )


def installed(packages: tuple[str, ...], machine: Machine) -> str:
    """The first of the packages that is installed, with its version.

    Raises:
        RuntimeUnavailableError: None is.
    """
    for package in packages:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    raise RuntimeUnavailableError(
        f"{packages[0]} is not installed, which ONNX artifacts are made and measured with on "
        f"{'a GPU' if machine.device == 'cuda' else 'a processor'}",
        where="format: onnx",
        hint=f"Install QuantFlow with its extra `{'gpu' if machine.device == 'cuda' else 'cpu'}`"
        + (", or set runtime.device to cpu." if machine.device == "cuda" else "."),
    )

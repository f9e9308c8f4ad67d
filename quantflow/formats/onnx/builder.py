"""The ONNX Runtime GenAI builder: a checkpoint in, a graph with a key-value cache out.

It is a program of its own here: it holds the model in memory, prints, writes caches and may die; none of that
is to happen to the run.
"""

import os
import subprocess
import sys
from pathlib import Path

from quantflow.errors import ArtifactError, QuantizationError, RuntimeUnavailableError
from quantflow.formats.onnx.params import GRAPH_FILE, OnnxBaseParams

ARCHITECTURES = frozenset(
    {
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "GraniteForCausalLM",
        "InternLM2ForCausalLM",
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "NemotronForCausalLM",
        "OlmoForCausalLM",
        "Phi3ForCausalLM",
        "PhiForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "SmolLM3ForCausalLM",
    }
)
"""Dense decoders among those that the builder of onnxruntime-genai 0.18 takes."""
MODULE = "onnxruntime_genai.models.builder"
# A model of 70 billion parameters from a slow disk, with room.
TIMEOUT = 6 * 3600.0
_LAST_LINES, _WIDTH = 6, 300
_FULL = ("No space left on device", "Disk quota exceeded")


def build_graph_folder(params: OnnxBaseParams, checkpoint: Path, folder: Path, work: Path) -> None:
    """Let the builder make the graph of a checkpoint.

    Args:
        params: Precision and provider.
        checkpoint: The model's folder.
        folder: Where model.onnx, model.onnx.data and genai_config.json are to be; does not exist yet.
        work: An empty folder for what it writes besides, and what it says.

    Raises:
        QuantizationError: It does not take the model.
        RuntimeUnavailableError: It is not installed.
        ArtifactError: It dies or leaves no graph.
        OSError: The disk is full.
    """
    cache, clean, log = work / "cache", work / "clean", work / "builder.log"
    clean.mkdir()  # its working directory comes first on the path: what lies there could be imported
    command = [sys.executable, "-m", MODULE, "-i", str(checkpoint), "-o", str(folder)]
    command += ["-p", params.precision, "-e", params.provider, "-c", str(cache)]
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(cache)}
    with log.open("wb") as file:
        try:
            ended = subprocess.run(
                command,
                cwd=clean,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as cause:
            raise ArtifactError(
                f"the ONNX Runtime GenAI builder did not finish within {TIMEOUT / 3600:.0f} hours",
                where=str(checkpoint),
            ) from cause
    said = log.read_text(encoding="utf-8", errors="replace")
    if ended.returncode or not (folder / GRAPH_FILE).is_file():
        raise _explained(said, ended.returncode, checkpoint)


def _explained(said: str, code: int, checkpoint: Path) -> Exception:
    if any(words in said for words in _FULL):
        return OSError(28, "No space left on device")
    if f"No module named '{MODULE.partition('.')[0]}'" in said:
        return RuntimeUnavailableError(
            "onnxruntime-genai is not installed, whose builder makes the graph",
            where="format: onnx",
            hint="Install QuantFlow with its extra `cpu` or `gpu`.",
        )
    if "is not currently supported" in said:
        return QuantizationError(
            "the ONNX Runtime GenAI builder does not take this model's architecture", where=str(checkpoint)
        )
    if code == -9:
        return ArtifactError(
            "the ONNX Runtime GenAI builder was killed, as the system does where memory runs out",
            where=str(checkpoint),
            hint="It holds the model in float32 (float16 for a GPU); give the machine more memory.",
        )
    lines = [line.strip()[:_WIDTH] for line in said.splitlines() if line.strip()]
    last = " | ".join(lines[-_LAST_LINES:]) or "it said nothing"
    return ArtifactError(f"the ONNX Runtime GenAI builder failed: {last}", where=str(checkpoint))

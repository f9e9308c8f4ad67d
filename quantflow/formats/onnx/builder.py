"""The ONNX Runtime GenAI builder: a checkpoint in, a graph with a key-value cache out."""

from importlib.util import find_spec
from pathlib import Path

from quantflow.errors import RuntimeUnavailableError
from quantflow.formats.onnx.maker import Maker, run_maker
from quantflow.formats.onnx.params import OnnxBaseParams

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
BUILDER = Maker(
    name="the ONNX Runtime GenAI builder",
    module="onnxruntime_genai.models.builder",
    refuses="is not currently supported",
)


def build_graph_folder(
    params: OnnxBaseParams, checkpoint: Path, folder: Path, work: Path, builder: Maker = BUILDER
) -> None:
    """Let the builder make the graph of a checkpoint.

    Args:
        params: Precision and provider.
        checkpoint: The model's folder.
        folder: Where model.onnx, model.onnx.data and genai_config.json are to be; does not exist yet.
        work: An empty folder for what it writes besides, and what it says.
        builder: The program.

    Raises:
        QuantizationError: It does not take the model.
        RuntimeUnavailableError: It is not installed.
        ArtifactError: It dies or leaves no graph.
        OSError: The disk is full.
    """
    if find_spec(builder.module.partition(".")[0]) is None:
        raise RuntimeUnavailableError(
            "onnxruntime-genai is not installed, whose builder makes the graph",
            where="format: onnx",
            hint="Install QuantFlow with its extra `cpu` or `gpu`.",
        )
    arguments = ["-i", str(checkpoint), "-o", str(folder), "-c", str(work / "cache")]
    arguments += ["-p", params.precision, "-e", params.provider]
    run_maker(builder, arguments, checkpoint, folder, work)

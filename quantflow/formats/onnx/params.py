"""What the stages that make ONNX graphs need to know."""

from collections.abc import Mapping
from typing import Literal

from pydantic import PositiveInt

from quantflow.formats.params import ImportParams
from quantflow.pipeline.stage import StageParams

OnnxScheme = Literal["fp32", "fp16", "w8a8", "w8", "w8-block", "w4-block", "dynamic"]
Precision = Literal["fp32", "fp16"]
Provider = Literal["cpu", "cuda"]
OnnxBlock = Literal[32, 64, 128]
AccuracyLevel = Literal[0, 4]
Optimization = Literal["basic", "extended", "all"]

GRAPH_FILE, DATA_FILE, GENAI_CONFIG = "model.onnx", "model.onnx.data", "genai_config.json"
"""What the ONNX Runtime GenAI builder calls the graph, its tensors and the settings of its own runtime."""


class SessionOptions(StageParams):
    """ONNX Runtime's pinned options: whatever it would choose by itself and could change a figure.

    Attributes:
        provider: Execution provider: where the graph is computed.
        version: The package and its version, e.g. `onnxruntime 1.32.0`.
        threads: Threads within an operator.
        optimization: How far the graph is optimised after loading.
        accuracy_level: What weight-only INT8 and INT4 are multiplied in: 4 rounds activations to 8 bits by
            block, 0 leaves them as they are.
    """

    provider: Provider
    version: str
    threads: PositiveInt
    optimization: Optimization = "all"
    accuracy_level: AccuracyLevel = 4

    @property
    def entries(self) -> dict[str, str]:
        """ONNX Runtime's own names for what an artifact's figures hang on, wherever it is run."""
        return {
            # Weights are shifted to be unsigned where the processor has no VNNI, whose sums of products of
            # unsigned and signed 8 bits would overflow 16 bits; elsewhere it does nothing.
            "session.x64quantprecision": "1",
            "session.qdq_matmulnbits_accuracy_level": str(self.accuracy_level),
        }


class PlannedOnnx(StageParams):
    """What is asked of an ONNX artifact, as far as the model's shapes decide whether it can be.

    Attributes:
        keep: Names or patterns of units that stay as they are.
        block_size: Input channels that share a scale; None where blocks are not ours to choose.
    """

    keep: tuple[str, ...] = ()
    block_size: OnnxBlock | None = None


class OnnxCheckParams(StageParams):
    """Parameters of the onnx-check stage.

    Attributes:
        artifacts: Key of the recipe, e.g. `artifacts[0]` → what it asks for.
    """

    artifacts: Mapping[str, PlannedOnnx]


class OnnxBaseParams(StageParams):
    """Parameters of the stage that makes the lossless graph.

    Attributes:
        precision: What its weights are in and it computes in.
        provider: What it is made for: fused operators differ.
        builder: The package that makes it, and its version.
    """

    precision: Precision
    provider: Provider
    builder: str


class OnnxImportParams(ImportParams):
    """Parameters of the stage that looks at somebody else's graph.

    Attributes:
        session: ONNX Runtime's options, with which it is tried.
    """

    session: SessionOptions


class OnnxAssembleParams(StageParams):
    """Parameters of the assemble stage of an ONNX artifact.

    Attributes:
        name: The artifact's name.
        scheme: How its linears are stored and computed.
        keep: Names or patterns of units that stay as they are, e.g. `lm_head` or `*.down`.
        weights_only: Full names of units whose inputs stay in floating point although the scheme is w8a8.
        block_size: Input channels that share a scale in the schemes by block.
        session: ONNX Runtime's options, which its genai_config.json repeats.
    """

    name: str
    scheme: OnnxScheme
    keep: tuple[str, ...] = ()
    weights_only: tuple[str, ...] = ()
    block_size: OnnxBlock = 32
    session: SessionOptions

"""What the stages that measure in ONNX Runtime need to know."""

from pydantic import PositiveInt

from quantflow.formats.onnx.params import SessionOptions
from quantflow.measure.params import MeasuredSplit, PromptParams
from quantflow.pipeline.stage import StageParams


class OnnxMeasureParams(StageParams):
    """Parameters of measuring in ONNX Runtime, of the lossless graph and of an artifact alike.

    Attributes:
        session: Pinned options.
        instruction_set: What the processor multiplies 8 bits with: figures of INT8 hold for it alone.
        split: The documents it is measured on.
        min_documents: Fewest documents, near duplicates counted once, that are of use.
    """

    session: SessionOptions
    instruction_set: str
    split: MeasuredSplit = "evaluation"
    min_documents: PositiveInt = 1


class OnnxSpeedParams(StageParams):
    """Parameters of the speed stage of an ONNX artifact.

    Attributes:
        session: Pinned options.
        instruction_set: As in `OnnxMeasureParams`.
        contexts: Tokens of the prompts that are timed, one length after the other.
        output_tokens: Tokens to generate after each.
        rounds: How often lossless graph and artifact are timed.
    """

    session: SessionOptions
    instruction_set: str
    contexts: tuple[PositiveInt, ...]
    output_tokens: PositiveInt
    rounds: PositiveInt


class OnnxFidelityParams(StageParams):
    """Parameters of the stage that holds the lossless graph against the model in torch.

    Attributes:
        session: Pinned options.
        device: Where torch computes.
        windows: Windows that are compared, at most.
        tokens: Tokens of each, at most.
    """

    session: SessionOptions
    device: str
    windows: PositiveInt
    tokens: PositiveInt


class OnnxNoiseParams(StageParams):
    """Parameters of the noise stage of the lossless graph.

    Attributes:
        session: Pinned options.
        windows: Evaluation windows that are run again, at most.
    """

    session: SessionOptions
    windows: PositiveInt


class OnnxGenerationParams(PromptParams):
    """Parameters of the stages that let graphs generate, the lossless one's and artifacts' alike.

    Attributes:
        session: Pinned options.
    """

    session: SessionOptions

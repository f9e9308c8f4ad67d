"""The sections of a recipe about ONNX: artifacts, how ONNX Runtime is run, and what its census decides."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from quantflow.recipe.section import Name, Section
from quantflow.recipe.sensitivity import Assigning

BY_BLOCK = ("w8-block", "w4-block")
LOSSLESS = ("fp32", "fp16")
PER_CHANNEL = ("w8a8", "w8")
_BITS = {"fp32": 16, "fp16": 16, "w4-block": 4}
MOST_THREADS = 1024


class OnnxArtifact(Section):
    """A graph for ONNX Runtime."""

    name: Name = Field(
        description="Name of the artifact and of its folder: a-z, 0-9, `.`, `_`, `-`. Unique in the recipe."
    )
    format: Literal["onnx"] = Field(
        description="File format: onnx (a graph for ONNX Runtime and ONNX Runtime GenAI)."
    )
    scheme: Literal["fp32", "fp16", "w8a8", "w8", "w8-block", "w4-block", "dynamic"] = Field(
        description="How linear layers are stored and computed: fp32 (the model itself; on a GPU fp16), "
        "w8a8 (weights INT8 per channel, inputs INT8 with static scales, made accurate on the selection "
        "documents), w8 (weights INT8 per channel, made accurate alike), w8-block and w4-block (weights INT8 "
        "or INT4 by block, MatMulNBits), or dynamic (onnxruntime's quantize_dynamic per channel, for "
        "comparison: it rounds activations as they come and costs most models their quality)."
    )
    keep: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        strict=False,
        default=(),
        description="Units that stay in floating point, by name or pattern: model.layers.0.down, *.down, "
        "lm_head. A block's units are qkv, o, gate_up and down; lm_head is one, too. Default: [].",
    )
    block_size: Literal[32, 64, 128] = Field(
        default=32,  # the size that kernels of MatMulNBits are best at on CPUs
        description="Input channels that share one scale in the schemes by block: 32, 64 or 128. Has to "
        "divide the input width of every layer. Default: 32.",
    )
    codes_from: Name | None = Field(
        default=None,
        description="For w4-block: name of an awq or gptq artifact of this recipe whose own codes are taken, "
        "so that one quantization serves both runtimes. Default: null, weights are rounded to nearest.",
    )

    remedy: bool = Field(
        default=True,
        description="For w8a8 and w8: whether what is done for each unit (channels apart in floating point, "
        "smoothing, ranges) is chosen by its effect on the logits of the selection documents; false for INT8 "
        "as it comes, with ranges from the least to the largest value. Default: true.",
    )
    max_floating: float = Field(
        default=0.1,  # more gives away what INT8 is for: a tenth in floating point is a third of the time
        ge=0,
        le=1,
        description="For w8a8 and w8 with `remedy`: share of all linear weights that may be multiplied in "
        "floating point, units in `keep` counted in: outlier channels go apart within it. An input in two "
        "INT8 products counts a quarter of its unit. Default: 0.1.",
    )
    sensitivity: Assigning | None = Field(
        default=None,
        description="For w8a8, and w8 with `remedy`: how units of this artifact are chosen to be spared, in "
        "place of all that the recipe's own `sensitivity` says of that. Default: null, the recipe's.",
    )
    reduce_range: bool = Field(
        default=False,
        description="For w8a8 with `remedy`: whether weights keep to the codes -64 to 64, so that nothing "
        "overflows on processors without VNNI in sessions that do not ask for exact products. "
        "Default: false.",
    )

    @property
    def bits(self) -> int:
        """Bits per weight of what is quantized; 16 where nothing is."""
        return _BITS.get(self.scheme, 8)

    @property
    def has_codes(self) -> bool:
        """Whether INT8 values of its own are made for it, which can be scanned and spared unit by unit."""
        return self.scheme == "w8a8" or (self.scheme == "w8" and self.remedy)

    @model_validator(mode="after")
    def _without_idle_keys(self) -> Self:
        """Refuse keys that the scheme does not look at: who sets them expects something of them."""
        idle = {
            "keep": self.scheme in LOSSLESS or self.codes_from is not None,
            "block_size": self.scheme not in BY_BLOCK or self.codes_from is not None,
            "codes_from": self.scheme != "w4-block",
            "remedy": self.scheme not in PER_CHANNEL,
            "sensitivity": not self.has_codes,
            "max_floating": self.scheme not in PER_CHANNEL or not self.remedy,
            "reduce_range": self.scheme != "w8a8" or not self.remedy,
        }
        for key in self.model_fields_set:
            if idle.get(key):
                beside = self._beside(key)
                raise PydanticCustomError(
                    "idle_key",
                    "it does nothing with {beside}",
                    {"key": key, "beside": beside, "hint": "Remove it."},
                )
        return self

    def _beside(self, key: str) -> str:
        """What makes a key idle."""
        if self.codes_from is not None and key != "codes_from":
            return "codes_from"
        return "remedy: false" if not self.remedy and key != "remedy" else f"scheme {self.scheme}"


class OnnxOptions(Section):
    """How ONNX Runtime is run, wherever ONNX artifacts are measured."""

    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = Field(
        default=None,
        description="Threads within an operator. Default: null, OMP_NUM_THREADS or else all cores.",
    )
    optimization: Literal["basic", "extended", "all"] = Field(
        default="all",
        description="How far ONNX Runtime optimises a graph: basic leaves INT8 linears apart, which then are "
        "computed in floating point, exactly and slowly; all is its own default. Default: all.",
    )
    accuracy_level: Literal[0, 4] = Field(
        default=4,
        description="What weight-only INT8 and INT4 are multiplied in: 4 rounds activations to 8 bits by "
        "block, which is fast; 0 leaves them in floating point, several times slower. The artifact's "
        "genai_config.json repeats it. Default: 4.",
    )


class CensusRule(Section):
    """Whether what ONNX Runtime makes of a graph is judged."""

    required: bool = Field(
        default=True,
        description="Whether a unit that is stored as INT8 or INT4 and that ONNX Runtime computes otherwise "
        "fails its artifact. Default: true.",
    )

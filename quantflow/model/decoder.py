"""A decoder whose weights are in memory only while they are used.

The model is built without weights. What comes before its first block and after its last is its own forward:
with the blocks' `forward` replaced it says what each block is called with, or is given the hidden states that
it would have computed. The caller runs blocks one at a time, with weights loaded for just that long.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from quantflow.errors import SourceError
from quantflow.model.block_call import CACHE_ARGUMENTS, BlockCall
from quantflow.model.build import attention_of, build_empty
from quantflow.model.config import load_config
from quantflow.model.embedding import rows_in_place
from quantflow.model.families import FAMILIES, Family
from quantflow.model.replaced import forwards_replaced
from quantflow.model.unlisted import inspect_blocks
from quantflow.model.weights import SafetensorsReader, WeightReader, read_table


class StreamedDecoder:
    """A causal language model, run block by block.

    Args:
        folder: Hugging Face folder whose config.json describes the model; a `quantization_config` in it is
            left to the reader.
        reader: Gives the weights.
        device: Where to compute, e.g. `cpu` or `cuda`.
        dtype: What to compute in; weights are converted to it.

    Raises:
        RecipeError: If the model is no decoder of uniform dense blocks.
        SourceError: If config.json cannot be read, or describes what cannot be built.
    """

    def __init__(
        self, folder: Path, reader: WeightReader, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        """Build the model without weights; only its buffers are real."""
        self.folder = folder
        self.reader = reader
        self.device = torch.device(device)
        self.dtype = dtype
        self.config = load_config(folder)
        torch.set_float32_matmul_precision("highest")  # an environment can ask for TF32 under float32's name
        self._model = build_empty(self.config, folder, dtype, buffers=True)
        listed = FAMILIES.get(self.config.model_type)
        self.family: Family = listed or inspect_blocks(self._model, self.config)
        self._base: nn.Module = self._model.base_model
        self._blocks: Sequence[Any] = self._model.get_submodule(self.family.blocks)
        for module in self._model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.to(self.device))

        parameters = [name for name, _ in self._model.named_parameters(remove_duplicate=False)]
        base = {name for name in parameters if name.startswith(f"{self._model.base_model_prefix}.")}
        inside = {name for name in parameters if name.startswith(f"{self.family.blocks}.")}
        self._table: Any = self._model.get_input_embeddings()
        embedding = {id(parameter) for parameter in self._table.parameters()}
        self._head_names = [name for name in parameters if name not in base]
        self._before_names = [name for name in parameters if name in base - inside]
        self._after_names = [
            name for name in self._before_names if id(self._model.get_parameter(name)) not in embedding
        ]

    @property
    def num_blocks(self) -> int:
        """Number of decoder blocks."""
        return len(self._blocks)

    @property
    def attention(self) -> str:
        """Which of transformers' implementations of attention computes: `sdpa` or `eager`."""
        return attention_of(self.config)

    @property
    def hidden_size(self) -> int:
        """Width d of the hidden states."""
        return int(self.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Number of logits per position."""
        return int(self.config.vocab_size)

    @property
    def ties(self) -> Mapping[str, str]:
        """Tensors that are another one under a second name, e.g. `lm_head.weight` → the embedding."""
        ties: Mapping[str, str] = self._model.all_tied_weights_keys
        return ties

    def expected_tensors(self) -> Mapping[str, tuple[int, ...]]:
        """What the weights have to hold, by the names they are stored under: the shape of each tensor.

        Of tensors that are tied to one another, one is expected.
        """
        return {
            self._stored_name(name): tuple(parameter.shape)
            for name, parameter in self._model.named_parameters(remove_duplicate=False)
        }

    @contextmanager
    def loaded_embedding(self) -> Iterator[None]:
        """Keep the whole embedding in memory, of which `embed` by itself reads the rows that it needs."""
        with self._loaded(self._before_names):
            yield

    @contextmanager
    def loaded_around(self) -> Iterator[None]:
        """Keep in memory what is around the blocks, embedding and head aside, for calls of `embed`."""
        with self._loaded(self._after_names):
            yield

    @contextmanager
    def loaded_head(self) -> Iterator[None]:
        """Keep the head in memory over several calls of `logits`."""
        with self._loaded(self._head_names):
            yield

    @contextmanager
    def loaded_block(self, index: int) -> Iterator[nn.Module]:
        """One block with its weights, which are freed afterwards.

        Raises:
            SourceError: If a weight is missing or has another shape than the model's.
        """
        prefix = f"{self.family.block_name(index)}."
        block: nn.Module = self._blocks[index]
        with self._loaded(prefix + name for name, _ in block.named_parameters(remove_duplicate=False)):
            yield block

    @torch.no_grad()
    def embed(self, ids: Tensor) -> tuple[Tensor, tuple[BlockCall, ...]]:
        """What the model does before its first block.

        Args:
            ids: Token ids `[B, T]`.

        Returns:
            The hidden states `[B, T, d]` that enter the first block, and how each block is called.
        """
        wrapped = self._blocks_give_tuples
        calls: list[BlockCall] = []
        entering: list[Tensor] = []

        def record(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor]:
            entering.append(hidden_states)
            kept = {name: value for name, value in kwargs.items() if name not in CACHE_ARGUMENTS}
            calls.append(BlockCall(args, kept))
            return (hidden_states,) if wrapped else hidden_states

        around = self._loaded(self._before_names)
        with self._loaded_rows(ids), around, forwards_replaced(self._blocks, record):
            self._base(input_ids=ids.to(self.device), use_cache=False)
        return entering[0], tuple(calls)

    def final(self, hidden: Tensor) -> Tensor:
        """What the model does between its last block and the head, differentiable: `[B, T, d]` → the same."""
        result: Tensor | tuple[Tensor] = (hidden,) if self._blocks_give_tuples else hidden

        def inject(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor]:
            return result

        with self._loaded(self._after_names), forwards_replaced(self._blocks, inject):
            final: Tensor = self._base(inputs_embeds=hidden, use_cache=False).last_hidden_state
        return final

    def logits(self, final: Tensor) -> Tensor:
        """The model's logits from final hidden states, by its own forward: `[..., d]` → `[..., vocab]`."""
        rows: Any = final.to(self.device, self.dtype).reshape(1, -1, final.shape[-1])

        def inject(*args: Any, **kwargs: Any) -> BaseModelOutputWithPastAndCrossAttentions:
            return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=rows)

        with self._loaded(self._head_names), forwards_replaced([self._base], inject):
            logits: Tensor = self._model(inputs_embeds=rows, use_cache=False).logits
        return logits.reshape(*final.shape[:-1], -1)

    @contextmanager
    def whole(self) -> Iterator[Any]:
        """The model itself, whose blocks load their weights as its forward comes to them."""

        def loading(index: int) -> Any:
            own = self._blocks[index].forward

            def run(*args: Any, **kwargs: Any) -> Any:
                with self.loaded_block(index):
                    return own(*args, **kwargs)

            return run

        with ExitStack() as stack:
            stack.enter_context(self._loaded([*self._before_names, *self._head_names]))
            for index, block in enumerate(self._blocks):
                stack.enter_context(forwards_replaced([block], loading(index)))
            yield self._model

    @torch.no_grad()
    def plain_logits(self, ids: Tensor) -> Tensor:
        """The logits of the model's own forward, to hold running block by block against: `[B, T, vocab]`."""
        with self.whole() as model:
            logits: Tensor = model(input_ids=ids.to(self.device), use_cache=False).logits
        return logits

    @cached_property
    def _blocks_give_tuples(self) -> bool:
        """Whether the model expects tuples of its blocks: found out by running the first one once.

        Those of listed families give tensors.
        """
        if self.family.listed:
            return False
        first, own = self._blocks[0], self._blocks[0].forward
        outputs: list[Any] = []

        def run(*args: Any, **kwargs: Any) -> Any:
            outputs.append(own(*args, **kwargs))
            raise _FirstBlockDoneError

        ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        with (
            torch.no_grad(),
            self.loaded_block(0),
            self._loaded(self._before_names),
            forwards_replaced([first], run),
            suppress(_FirstBlockDoneError),
        ):
            self._base(input_ids=ids, use_cache=False)
        return isinstance(outputs[0], tuple)

    @contextmanager
    def _loaded(self, names: Iterable[str]) -> Iterator[None]:
        """Give parameters their weights; those that have them already are left alone, here and at the end."""
        loaded: list[tuple[nn.Module, str, nn.Parameter]] = []
        try:
            for name in names:
                owner, _, attribute = name.rpartition(".")
                module = self._model.get_submodule(owner)
                empty = module.get_parameter(attribute)
                if empty.is_meta:
                    weight = self._read(name, empty.shape)
                    module.register_parameter(attribute, nn.Parameter(weight, requires_grad=False))
                    loaded.append((module, attribute, empty))
            yield
        finally:
            for module, attribute, empty in loaded:
                module.register_parameter(attribute, empty)

    @contextmanager
    def _loaded_rows(self, ids: Tensor) -> Iterator[None]:
        """Give the embedding the rows that some tokens need, unless it has all of them."""
        whole = self._table.weight
        if not whole.is_meta:
            yield
            return
        name = next(n for n in self._before_names if self._model.get_parameter(n) is whole)
        stored, needed = self._stored_name(name), torch.unique(ids)
        self._check_shape(name, self.reader.shape(stored), whole.shape)
        rows = self.reader.rows(stored, needed.tolist())
        with rows_in_place(self._table, needed, rows.to(self.device, self.dtype)):
            yield

    def _read(self, name: str, shape: torch.Size) -> Tensor:
        stored = self._stored_name(name)
        if name in (*self._before_names, *self._head_names) and isinstance(self.reader, SafetensorsReader):
            self._check_shape(name, self.reader.shape(stored), shape)
            return read_table(self.reader, stored, self.device, self.dtype)
        weight = self.reader.read(stored)
        self._check_shape(name, tuple(weight.shape), shape)
        return weight.to(self.device, self.dtype)

    def _check_shape(self, name: str, stored: tuple[int, ...], shape: torch.Size) -> None:
        if stored != tuple(shape):
            raise SourceError(
                f"the tensor {name} has shape {list(stored)}, config.json says {list(shape)}",
                where=str(self.folder),
                hint="Weights and config.json do not belong together.",
            )

    def _stored_name(self, name: str) -> str:
        """The name a weight is stored under: its own or, as in transformers, that of one it is tied to."""
        names = self.reader.names()
        if name in names:
            return name
        ties = self.ties
        others = [target for target, source in ties.items() if source == name]
        partners = [ties[name]] if name in ties else others
        return next((partner for partner in partners if partner in names), name)


class _FirstBlockDoneError(Exception):
    """Ends a forward after its first block."""

"""The lossless model's hidden states before every block, on disk: where a swapped unit's run restarts."""

from pathlib import Path

import torch
from torch import Tensor

from quantflow.errors import SourceError, StoreError
from quantflow.model.block_call import BlockCall
from quantflow.model.decoder import StreamedDecoder
from quantflow.model.safetensors_file import SafetensorsFile, TensorSpec, write_safetensors
from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.text import ScanText


class Boundaries:
    """What enters every block, and what leaves the last, of all batches of a text.

    They are needed, not merely kept in case of an interruption: a disk that does not take them is an error.

    Args:
        decoder: The model.
        text: The text.
        reporter: Its progress folder keeps them.
    """

    def __init__(self, decoder: StreamedDecoder, text: ScanText, reporter: Reporter) -> None:
        self.decoder = decoder
        self.text = text
        self._folder = reporter.progress_folder / "boundaries"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ids = [torch.from_numpy(batch.ids) for batch in text.batches]
        # Masks and rotary angles depend on a batch's shape alone.
        self._calls: dict[torch.Size, tuple[BlockCall, ...]] = {}

    def fill(self, reporter: Reporter, what: str) -> None:
        """Run the lossless model over the text, from where an interrupted run had come to.

        Raises:
            SourceError: A block's output is not finite.
        """
        done = self._done()
        with reporter.track(what, self.decoder.num_blocks) as advance, self.decoder.loaded_around():
            embedded = self._embed(keep=done == 0)
            if done == 0:
                self._write(0, embedded)
                done = 1
            advance(done - 1)
            for index in range(done - 1, self.decoder.num_blocks):
                self._run_block(index)
                advance(1)

    def state(self, block: int, number: int) -> Tensor:
        """What enters a block, of one batch, or leaves the last where `block` is their count, `[B, T, d]`."""
        state = SafetensorsFile(self._path(block), StoreError).read(f"{number}")
        return state.to(self.decoder.device, self.decoder.dtype)

    def call(self, block: int, number: int) -> BlockCall:
        """How the model calls a block with batch `number`."""
        return self._calls[self._ids[number].shape][block]

    @torch.no_grad()
    def _run_block(self, index: int) -> None:
        outputs = []
        with self.decoder.loaded_block(index) as block:
            for number in range(len(self._ids)):
                output = self.call(index, number).run(block, self.state(index, number))
                if not bool(torch.isfinite(output).all()):
                    raise SourceError(
                        "its output on the text of the scan is NaN or infinite", where=f"block {index}"
                    )
                outputs.append(output)
        self._write(index + 1, outputs)

    def _embed(self, *, keep: bool) -> list[Tensor]:
        states = []
        for ids in self._ids:
            if keep or ids.shape not in self._calls:
                state, self._calls[ids.shape] = self.decoder.embed(ids)
                states.append(state)
        return states

    def _write(self, index: int, states: list[Tensor]) -> None:
        specs = [TensorSpec(f"{n}", state.dtype, tuple(state.shape)) for n, state in enumerate(states)]
        named = ((f"{n}", state) for n, state in enumerate(states))
        write_safetensors(self._path(index), specs, named, {})

    def _done(self) -> int:
        """Files there are, from the first on."""
        index = 0
        while self._path(index).exists():
            index += 1
        return index

    def _path(self, index: int) -> Path:
        return self._folder / f"input-{index:05d}.safetensors"

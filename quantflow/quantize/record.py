"""What the quantize stage remembers of each block that is done, and the events that come of it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quantflow.pipeline.events import Reporter
from quantflow.quantize.block import Notice, QuantizedBlock

MESSAGES: Mapping[str, str] = {
    "dead-channels": "{units} units have input channels ({sum} in all) that are zero on every calibration "
    "token; their weights are rounded to nearest, as the text says nothing of them.",
    "constant-columns": "{units} units have weights that are the same for all outputs of an input ({sum} "
    "inputs in all), as pruned or damaged ones are; they are quantized like all others.",
    "fewer-tokens-than-inputs": "{units} units have more inputs (up to {max}) than there are calibration "
    "tokens; where these say nothing GPTQ goes by its damping alone.",
    "dead-input-channels": "{units} units have input channels ({sum} in all) that are zero on every "
    "calibration token: the ranges of their inputs say nothing of them.",
    "range-of-zero": "The inputs of {units} units are zero on every calibration token, which leaves no range "
    "to quantize them in: their weights are INT8 and their inputs stay in floating point.",
    "damping-raised": "The Hessian of {units} units would not factor until GPTQ's damping was raised (to as "
    "much as {max:g}).",
}
"""Code of a notice → what its event says."""


class BlockRecords:
    """One small file for each block that is done, among what lets an interrupted stage go on.

    Args:
        folder: The stage's progress folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(
        self,
        index: int,
        prefix: str,
        results: Mapping[str, QuantizedBlock],
        notices: Sequence[Notice],
        bytes_read: int,
    ) -> None:
        """Remember a block.

        Args:
            index: Its position.
            prefix: Its full name.
            results: Id of a scheme → what came of it.
            notices: What is to be said of its units.
            bytes_read: Bytes of its weights.
        """
        searches = {
            scheme: {
                f"{prefix}.{unit}": {"exponent": choice.exponent, "loss": choice.loss}
                for unit, choice in result.choices.items()
            }
            for scheme, result in results.items()
        }
        record = {"searches": searches, "notices": [asdict(n) for n in notices], "bytes_read": bytes_read}
        partial = self._path(index).with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(record))
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave a block that is done with an empty record
        partial.replace(self._path(index))

    def done(self) -> int:
        """Blocks that are done, from the first on."""
        index = 0
        while self._path(index).exists():
            index += 1
        return index

    def load(self, blocks: int) -> list[dict[str, Any]]:
        """What was remembered of so many blocks."""
        return [json.loads(self._path(index).read_text(encoding="utf-8")) for index in range(blocks)]

    def _path(self, index: int) -> Path:
        return self._folder / f"block-{index:05d}.json"


def report_notices(notices: Sequence[Mapping[str, Any]], reporter: Reporter) -> None:
    """Raise one event for each kind of notice."""
    for code, message in MESSAGES.items():
        figures = {notice["unit"]: notice["figure"] for notice in notices if notice["code"] == code}
        if figures:
            values = figures.values()
            text = message.format(units=len(figures), sum=sum(values), max=max(values))
            reporter.event(code, text, units=figures)

"""What a scan found out, for assignments and reports: read without torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

SCAN_FILE = "scan.json"

ScanMethod = Literal["auto", "exact", "fisher", "activation"]
ScoreMethod = Literal["exact", "fisher", "activation"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UnitScore(_Record):
    """What one unit in one precision costs, all else as in the lossless model.

    Attributes:
        unit: Full name, e.g. `model.layers.0.qkv`.
        precision: Id of the scheme whose codes were swapped in.
        kl: Mean KL of the next-token distributions on calibration text, nats per token; of the method
            `activation` the KL of histograms of its outputs, nats, which is another quantity.
        ci_low: Lower end of the 90 % interval of `kl`; None where a single cluster of text shows no spread.
        ci_high: Upper end of it.
        method: How `kl` was found.
        kl_by_half: `kl` on each half of the text.
        weights: Elements of its weights.
        bytes_quantized: Bytes of its weights in this precision, scales and zero points included.
        bytes_source: Bytes of its weights in the source's dtype.
        kl_selection: The same on selection text, by Fisher's estimate; None where there is none.
        selection_ci_low: Lower end of the 90 % interval of `kl_selection`.
        selection_ci_high: Upper end of it.
    """

    unit: str
    precision: str
    kl: float
    ci_low: float | None
    ci_high: float | None
    method: ScoreMethod
    kl_by_half: tuple[float, float]
    weights: int
    bytes_quantized: int
    bytes_source: int
    kl_selection: float | None = None
    selection_ci_low: float | None = None
    selection_ci_high: float | None = None


class ScanControls(_Record):
    """What shows that a scan measured what it says.

    Attributes:
        nothing_swapped_kl: KL of a stream in which nothing was swapped, nats per token: 0 but for rounding.
        no_op_swaps: `unit @ precision` whose codes give exactly the weights of the source, so that swapping
            them in changed nothing.
        halves_rank_correlation: Precision → Spearman's correlation of the units' order on the two halves of
            the text; None where it cannot be told.
        selection_rank_correlation: Precision → the same between calibration and selection text.
        default_rank_correlation: Precision → the same between this method's order and that of Fisher's
            estimate, the default's; empty where that was not made beside it.
    """

    nothing_swapped_kl: float
    no_op_swaps: tuple[str, ...] = ()
    halves_rank_correlation: Mapping[str, float | None]
    selection_rank_correlation: Mapping[str, float | None] = {}
    default_rank_correlation: Mapping[str, float | None] = {}


class ScanRecord(_Record):
    """A scan of all units in some precisions.

    Attributes:
        method: As asked for.
        precisions: Ids of the schemes.
        scores: One of every unit in every precision that it has codes in, in the order of the model.
        controls: See there.
        forwards: Whole forwards over the scan's tokens, as the share of the arithmetic that was done.
        cost_by_step: Step → its part of `forwards`.
        tokens: Calibration tokens that the scan ran on.
        selection_tokens: Selection tokens that it was confirmed on.
        selection_forwards: Whole forwards over those.
        settled: Whether what is chosen by the scores no longer hangs on estimates; None but for `auto`.
    """

    method: ScanMethod
    precisions: tuple[str, ...]
    scores: tuple[UnitScore, ...]
    controls: ScanControls
    forwards: float
    cost_by_step: Mapping[str, float]
    tokens: int
    selection_tokens: int = 0
    selection_forwards: float = 0.0
    settled: bool | None = None

    def of(self, precision: str) -> tuple[UnitScore, ...]:
        """The scores in one precision."""
        return tuple(score for score in self.scores if score.precision == precision)


def save_scan(output: Path, record: ScanRecord) -> None:
    """Write scan.json."""
    text = json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True)
    (output / SCAN_FILE).write_text(text + "\n", encoding="utf-8")


def load_scan(stage_output: Path) -> ScanRecord:
    """Read what the scan stage wrote."""
    return ScanRecord.model_validate_json((stage_output / SCAN_FILE).read_text(encoding="utf-8"))

"""How calibration text and production text differ: drift.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

DRIFT_FILE = "drift.json"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Difference(_Value):
    """The Jensen-Shannon divergence of two texts' token distributions, in bits.

    Attributes:
        js: As counted: 0 where all tokens are as frequent in both, 1 where no token is in both.
        floor: What samples of these sizes differ by on average though they come from one text.
        floor_high: What one in twenty such pairs exceeds.
        p_value: How often documents dealt out at random differ by as much; 1/(permutations + 1) at least.
        excess: js − floor, which is judged: it is 0 on average where nothing has changed.
        std_error: Of it, documents being the sample; None where one side is a single document.
        ci_low: Lower end of its 90 % interval, likewise.
        ci_high: Upper end, likewise; it takes no more off js than the jackknife does, as the floor is too
            high where the texts differ.
        n: Tokens of both.
        n_clusters: Documents of the side that has fewer, near duplicates counted once.
    """

    js: float
    floor: float
    floor_high: float
    p_value: float
    excess: float
    std_error: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    n_clusters: int

    @property
    def is_found(self) -> bool:
        """Whether chance does not explain it (one-sided, 5 %)."""
        return self.js > self.floor_high


class TextSide(_Value):
    """One of the two texts.

    Attributes:
        documents: Documents.
        groups: The same, near duplicates counted once.
        tokens: Their tokens.
        length_p10: Tokens of a document, 10 % quantile; median and 90 % follow.
        scripts: Writing system → share of documents that have more letters of it than of any other.
        slices: Slice → share of documents.
        read_documents: Documents whose beginnings the baseline was run on.
        read_tokens: Scored tokens of them.
        perplexity: The baseline's on them.
        perplexity_low: Lower end of its 90 % interval, by document; None where there is no such end.
        perplexity_high: Upper end, likewise.
    """

    documents: int
    groups: int
    tokens: int
    length_p10: float
    length_median: float
    length_p90: float
    scripts: Mapping[str, float]
    slices: Mapping[str, float]
    read_documents: int
    read_tokens: int
    perplexity: float
    perplexity_low: float | None
    perplexity_high: float | None


class OutsideRange(_Value):
    """Inputs of one unit, or of all, beyond what calibration has seen.

    Attributes:
        unit: Such as `model.layers.0.down`; empty for all together.
        outside: Share of production's values beyond the range of their channel in calibration.
        floor: Share of other calibration documents' values beyond the range of some of them.
        clipped: Share of production's values beyond the range of the whole input.
        reach: Largest magnitude in production as a multiple of calibration's.
    """

    unit: str = ""
    outside: float
    floor: float
    clipped: float
    reach: float


class Activations(_Value):
    """What inputs of linear layers range over, in production against calibration.

    Attributes:
        ranges: `calibration` where ranges are those that INT8 artifacts are made from, of all calibration
            tokens; `sample` where they were taken here, from some calibration documents.
        range_tokens: Tokens that ranges are of.
        total: All units together.
        worst: Units with the largest shares outside, the worst first.
    """

    ranges: Literal["calibration", "sample"]
    range_tokens: int
    total: OutsideRange
    worst: tuple[OutsideRange, ...]


class DriftRecord(_Value):
    """Calibration text beside a sample of production text.

    Attributes:
        tokens: Their token distributions.
        calibration: The documents that calibration windows are packed from.
        reference: The sample of production text.
        activations: What layers get of either.
        unseen_slices: Share of production documents whose slice no calibration document has.
        unseen_tokens: Share of production tokens that no calibration document has.
    """

    tokens: Difference
    calibration: TextSide
    reference: TextSide
    activations: Activations
    unseen_slices: float
    unseen_tokens: float


def save_drift(output: Path, record: DriftRecord) -> None:
    """Write drift.json."""
    text = json.dumps(
        record.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False
    )
    (output / DRIFT_FILE).write_text(text + "\n", encoding="utf-8")


def load_drift(stage_output: Path) -> DriftRecord:
    """Read what the drift stage wrote."""
    return DriftRecord.model_validate_json((stage_output / DRIFT_FILE).read_text(encoding="utf-8"))

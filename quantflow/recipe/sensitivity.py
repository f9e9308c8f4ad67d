"""The sections about sensitivity: what is scanned, which units are spared, and how long to search."""

import re
from typing import Annotated, Literal, LiteralString, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from quantflow.recipe.section import Section
from quantflow.sensitivity.params import DEFAULT_TOKENS

DEFAULT_MAX_SPARED = 0.1
"""Of four bits per weight a tenth spared makes five and a half: still a third of the size."""
DEFAULT_MAX_ROUNDS = 8
"""A round aims at the margins by what the one before measured: more than a few mean they are out of reach."""
POLICY_KEYS = {"threshold": "threshold", "top_k": "top_k"}
"""Policy → the key that it needs, and that only it looks at."""
BUDGET_KEYS = ("effective_bits", "max_bytes")
IDLE_HINT = "See docs/sensitivity.md for which keys go together."

Pattern = Annotated[str, Field(min_length=1)]


def _duration(text: str) -> str:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?[smhd]", text):
        raise PydanticCustomError("duration", "this is no duration")
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class Assigning(Section):
    """Which units of an artifact are spared."""

    policy: Literal["budget", "threshold", "top_k"] = Field(
        default="budget",
        description="How units are chosen to be spared, which is to say left in the model's own type: budget "
        "(least KL in all within max_spared, effective_bits and max_bytes), threshold (each that costs more "
        "KL than `threshold`) or top_k (the `top_k` that cost most). Default: budget.",
    )
    max_spared: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Largest share of the weights that may be spared, of those that the artifact would "
        "otherwise quantize; for policy budget and for a search. Default: null, which is "
        f"{DEFAULT_MAX_SPARED} unless effective_bits or max_bytes is given; with w8a8 also then, as a unit "
        "there can give up integer arithmetic, which counts half, and keep its size.",
    )
    effective_bits: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Most bits per weight of the units, spared ones at 16, scales and zero points counted; "
        "for policy budget. Default: null, no limit.",
    )
    max_bytes: int | None = Field(
        default=None,
        gt=0,
        description="Most bytes of the artifact's tensors, embeddings and all; for policy budget. "
        "Default: null, no limit.",
    )
    threshold: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Nats per token that a unit may cost at most and stay quantized; for policy threshold. "
        "Default: null.",
    )
    top_k: int | None = Field(
        default=None,
        ge=1,
        description="How many units are spared; for policy top_k. Default: null.",
    )
    until: Literal["gate"] | None = Field(
        default=None,
        description="gate: search for the fewest weights to spare: round by round more units are spared, in "
        "the order of KL per weight, until the gate's perplexity and KL hold with room on the selection "
        "documents, or max_spared, max_rounds or time_limit is reached; the best candidate is kept "
        "whatever happens. Default: null, no search.",
    )
    max_rounds: int | None = Field(
        default=None,
        ge=1,
        description="Most candidates of a search beside the artifact with nothing spared. "
        f"Default: null, which is {DEFAULT_MAX_ROUNDS} with `until`.",
    )
    time_limit: Duration | None = Field(
        default=None,
        description="Time after which a search begins no further round: 90s, 30m, 6h or 1d. What it then "
        "has hangs on how fast the machine is. Default: null, no limit.",
    )

    @model_validator(mode="after")
    def _of_one_policy(self) -> Self:
        """Refuse keys that nothing looks at: who sets them expects something of them."""
        given = self.model_fields_set
        for policy, key in POLICY_KEYS.items():
            if self.policy == policy and getattr(self, key) is None:
                raise _idle("policy", "policy {policy} needs a {other}", policy=policy, other=key)
            if self.policy != policy and key in given:
                raise _idle(key, "it does nothing with policy {policy}", policy=self.policy)
        for key in BUDGET_KEYS:
            if self.policy != "budget" and key in given:
                raise _idle(key, "it does nothing with policy {policy}", policy=self.policy)
            if self.until is not None and key in given:
                raise _idle(key, "a search goes by max_spared alone")
        if self.policy != "budget" and self.until is not None:
            raise _idle("policy", "a search chooses by itself, without policy {policy}", policy=self.policy)
        if self.policy != "budget" and "max_spared" in given:
            raise _idle("max_spared", "it does nothing with policy {policy}", policy=self.policy)
        for key in ("max_rounds", "time_limit"):
            if self.until is None and key in given:
                raise _idle(key, "it does nothing without `until: gate`")
        return self

    @property
    def spared(self) -> float | None:
        """Largest share of the weights that may be spared; None is no limit."""
        if self.max_spared is None and (self.effective_bits is None and self.max_bytes is None):
            return DEFAULT_MAX_SPARED
        return self.max_spared


class Sensitivity(Assigning):
    """Which units cost most when they are quantized, and which of them are spared because of it."""

    method: Literal["auto", "exact", "fisher", "activation"] = Field(
        default="auto",
        description="How the KL that each unit costs is found: fisher (estimated, all units in one pass), "
        "exact (each unit swapped in by itself), auto (fisher for all, exact for those whose place decides), "
        "or activation (histograms of outputs, as articles describe; ranks worse). Default: auto.",
    )
    tokens: int = Field(
        default=DEFAULT_TOKENS,
        ge=1,
        description="Calibration tokens to scan on, and selection tokens to confirm on, at most. Default: "
        f"{DEFAULT_TOKENS}.",
    )
    keep: tuple[Pattern, ...] = Field(
        strict=False,
        default=(),
        description="Units of every artifact that stay in the model's own type whatever they cost, by name "
        "or pattern as in artifacts[].keep. Default: [].",
    )
    force: tuple[Pattern, ...] = Field(
        strict=False,
        default=(),
        description="Units that are quantized whatever they cost, by name or pattern. Default: [].",
    )


def _idle(key: str, message: LiteralString, **context: str) -> PydanticCustomError:
    return PydanticCustomError("idle_key", message, {"key": key, "hint": IDLE_HINT, **context})

"""What an artifact may lose where nobody says otherwise, by the bits of its weights."""

from collections.abc import Mapping
from typing import Literal

# 8 bits are expected to be indistinguishable in use. With 4 bits in groups of 128, published perplexities of
# LLaMA-7B and 13B rise by 2 to 3 %: what costs more is a quantization gone wrong or a model too small for it.
# An export to 16 bits only rounds: to bfloat16, the coarser one, it moved a model of 135 million parameters
# by 0.03 % in perplexity and 6e-5 in KL. Some times that leaves room for noise and none for a mistake.
# Fewer bits than 4 are held to what 4 may lose: they cost more, and whether a use can bear it is for its
# recipe to say.
DEFAULT_MAX_INCREASE = {16: 0.001, 8: 0.01, 4: 0.03, 3: 0.03, 2: 0.03}
# Nats per token. llama.cpp publishes, on Llama-3-8B, 0.031 for its usual 4-bit format (q4_K_M) and 0.0014 for
# 8 bits (q8_0), which must not pass for lossless.
DEFAULT_MAX_MEAN_KL = {16: 0.0005, 8: 0.05, 4: 0.05, 3: 0.05, 2: 0.05}
UNQUANTIZED = max(DEFAULT_MAX_INCREASE)
"""Width from which on nothing counts as quantized."""
MarginName = Literal["max_increase", "max_mean_kl"]
"""A margin, as `GateParams` calls it."""
DEFAULTS: Mapping[MarginName, Mapping[int, float]] = {
    "max_increase": DEFAULT_MAX_INCREASE,
    "max_mean_kl": DEFAULT_MAX_MEAN_KL,
}


def default_margin(defaults: Mapping[int, float], bits: int) -> float:
    """The default for a width: its own, else that of the next wider one, which is tighter.

    Args:
        defaults: Width → margin.
        bits: Bits per weight; `UNQUANTIZED` or more for what is not quantized.
    """
    return defaults[min((width for width in defaults if width >= bits), default=max(defaults))]

"""What the searches try: read by them, and by the plan, which counts it before anything runs."""

from typing import Literal

# Exponents tried for the channel scales |x|^α: first every 0.15, then the neighbours of the best at 0.05.
COARSE_EXPONENTS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
FINE_STEPS = (-0.1, -0.05, 0.05, 0.1)
# Output rows that vote on the exponent, evenly spaced: the loss costs rows · in · min(in, tokens), and this
# many rank the exponents well enough.
SAMPLED_ROWS = 512
RangeMethod = Literal["minmax", "percentile", "mse", "entropy"]
# Parts of an input's range that MSE and entropy try: below a third nothing was ever chosen.
RANGE_SHRINKS = tuple(1 - 0.05 * step for step in range(15))
# Calibration tokens that vote, at most, where a unit has more inputs than there are of them; else the Gram
# matrix speaks for all. A few tokens, the first of a text above all, are louder than the rest by orders of
# magnitude: 1,024 tokens of 16,384 chose other exponents for half of SmolLM2-135M's `down` units, and worse
# ones.
SAMPLED_TOKENS = 8192
# Parts of a group's range tried by the clip and MSE searches; AutoAWQ stops at half the range too.
SHRINKS = tuple(1 - 0.05 * step for step in range(11))
# Clipping query and key weights moves attention logits as a whole, which their outputs' error does not show;
# AutoAWQ leaves them alone for the same reason.
NEVER_CLIPPED = ("q_proj", "k_proj", "qkv_proj")
# Part of the correlations between inputs that GPTQ leaves out of account: they hang on the text more than how
# loud each input is does; making up for errors by them fits the calibration text at the cost of other text.
# On SmolLM2-135M (4 bits, groups of 64, calibrated on contracts) 0, 0.2, 0.35 and 0.5 gave a KL of .274,
# .194, .191 and .191 on wikitext; the last three .126, .120 and .128 on other contracts.
SHRINKAGE = 0.35

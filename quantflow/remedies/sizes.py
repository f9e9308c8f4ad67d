"""What the remedies try: read by them, and by the plan, which counts it before anything runs."""

from quantflow.quantize.search_space import RangeMethod

EXPONENTS = (0.0, 0.3, 0.5, 0.7)
"""α of the smoothing that are tried; 0 is none, and 1 would leave the weights as hard as the inputs were."""

CHANNELS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""How many channels apart are tried: twice as many each time, as the next one does less than the last."""

MOST_APART = 1 / 4
"""Of a unit's input channels: with more apart it were better kept in floating point as a whole."""

OTHER_RANGES: tuple[RangeMethod, ...] = ("percentile", "mse", "entropy")
"""Ways to find a range that are tried beside MinMax."""

RANGE_VALUES = 1 << 16
"""Values of an input's sample that ranges are found on."""

HEAD_POSITIONS = 256
"""Positions that the head's options are scored at: each costs as much as the vocabulary is wide."""

TRIAL_TOKENS = 2048
"""Selection tokens that options are estimated and whole models measured on."""

TWICE_COST = 1 / 4
"""What a second INT8 product costs of one in floating point: processors with VNNI do four times as many."""

TWICE_HEADROOM = 2.0
"""How much wider than calibration saw the range of an input is that is multiplied twice: a bit of its 16, for
text with larger outliers."""

MODELS_MEASURED = 7
"""Whole models that are measured, at most: four rules that look at no score, three ways to choose."""

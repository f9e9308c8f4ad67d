"""How much quantizing works on at once: read by it, and by the plan, which counts it before it runs."""

PANEL = 256
"""Columns of a Gram matrix that are summed up or moved together: wide enough for matrix products, and what
they need beside the matrix stays small."""

CORNER = 128
"""Columns that are factorised together. LAPACK leaves a corner of this size to one thread; a larger one it
cuts up by the number of threads, and ends in other last bits."""

BLOCK = 128
"""Columns that GPTQ brings up to date together, in one matrix product, where groups are no smaller."""

RANGE_TOKENS = 512
"""Calibration tokens that are kept to find ranges on: one tensor of them has hundreds of thousands of values;
what only a longer text shows is in the extremes, which are of all tokens. Histograms would be no smaller, as
there had to be one for every channel: which are apart, and what each is divided by, is chosen afterwards."""

SPILL_BYTES = 256 << 20
"""Hidden states of the calibration tokens beyond this are on disk rather than in memory: reading and writing
them takes a second per block, whose forward over so many tokens takes minutes."""

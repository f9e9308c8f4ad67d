"""How much a model is tried: read by the trial, and by the plan, which counts it before anything runs."""

GENERATED_TOKENS = 8
"""Enough to tell words from one token over and over; each costs one reading of all the weights."""

RESIDENT_BYTES = 2 << 30
"""Largest model that is kept in memory while it is tried: what any machine that runs QuantFlow has to
spare."""

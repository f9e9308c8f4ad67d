"""Sizes that a scan works with, where plans can read them without torch."""

SCAN_LENGTH = 512
"""Most tokens of a window that a scan runs on: for the same work more windows say more than longer ones do,
as what they share, their document, varies most."""

STREAM_BYTES = 512 << 20
"""Hidden states of all streams of a wave: reading the weights once more is cheaper than a model's memory."""

AUTO_SHARE = 0.15
"""Most that `auto` may cost of what scoring every unit exactly would."""

LEAST_EXACT = 4
"""Units that `auto` may make exact whatever that share comes to: in a model of few layers Fisher's pass alone
costs more than it."""

"""Sizes that a scan works with, where plans can read them without torch."""

SCAN_LENGTH = 512
"""Most tokens of a window that a scan runs on: for the same work more windows say more than longer ones do,
as what they share, their document, varies most."""

LEAST_WINDOWS = 2
"""So that there are two halves of the text to compare."""
TOO_FEW_WINDOWS = "there are fewer than two calibration windows to scan on"
TOO_FEW_HINT = "The scan compares two halves of the text: ask for more windows, or give more text."

STREAM_BYTES = 256 << 20
"""Hidden states of all streams of a wave: reading the weights once more is cheaper than a model's memory."""

AUTO_SHARE = 0.15
"""Most that `auto` may cost of what scoring every unit exactly would."""

LEAST_EXACT = 4
"""Units that `auto` may make exact whatever that share comes to: in a model of few layers Fisher's pass alone
costs more than it."""

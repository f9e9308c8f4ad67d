"""Grids, AWQ and rounding: pure functions from weights and statistics to codes."""

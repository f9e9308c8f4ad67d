"""Streaming passes over the blocks that collect statistics of the lossless activations."""

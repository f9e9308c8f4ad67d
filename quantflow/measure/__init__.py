"""Perplexity and KL divergence of what was read back, against the baseline."""

"""How much of either text the lossless model is run on to compare it with the other."""

READ_DOCUMENTS = 64
"""Documents of either side: twice the 30 that a verdict takes, and some to spare."""

READ_TOKENS = 512
"""Tokens of the beginning of each: activations range as widely there as anywhere, and a long document is one
document still."""

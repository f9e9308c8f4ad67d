"""How much goes through a graph at once; apart from `ort`, for those that only reckon with it."""

LOGITS_BYTES = 256 << 20
"""Most bytes of float32 logits of one call: products of fewer tokens at a time would be slower."""
MOST_CHUNK = 2048
"""Most tokens of one call, whatever the vocabulary."""

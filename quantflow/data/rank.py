"""Numbers drawn for contents: the only chance there is in the data stage."""

import hashlib


def rank(seed: int, purpose: str, content: str) -> str:
    """A number drawn for a content: SHA-256 of seed, purpose and content.

    Args:
        seed: The recipe's seed.
        purpose: What it orders, so that two orders of the same contents have nothing to do with one another.
        content: What is ordered.
    """
    return hashlib.sha256(f"{purpose}:{seed}:{content}".encode()).hexdigest()

"""Which items of a task are run where a recipe wants fewer than there are."""

import random
from collections import Counter
from collections.abc import Sequence


def draw_items(clusters: Sequence[str], limit: int | None, seed: int, name: str) -> list[int]:
    """Draw items at random, over as many clusters as there can be.

    The first N of a task, which lm-eval's own limit takes, are one subject or one author's more often than
    not. One item of each cluster is drawn before any cluster gives a second: a second one says less.

    Args:
        clusters: Cluster of every item.
        limit: How many to draw; None for all.
        seed: Equal seeds draw the same.
        name: Of the task, so that tasks are drawn independently.

    Returns:
        Indices, ascending.
    """
    if limit is None or limit >= len(clusters):
        return list(range(len(clusters)))
    order = list(range(len(clusters)))
    random.Random(f"{seed}/{name}").shuffle(order)
    turn: Counter[str] = Counter()
    turns = []
    for place, index in enumerate(order):
        turns.append((turn[clusters[index]], place, index))
        turn[clusters[index]] += 1
    return sorted(index for _, _, index in sorted(turns)[:limit])

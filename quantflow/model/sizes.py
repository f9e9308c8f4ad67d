"""Shapes of a block's linears by their names, as all listed families have them."""


def linear_sizes(*, hidden: int, intermediate: int, query: int, key_value: int) -> dict[str, tuple[int, int]]:
    """Last part of a linear's name → (outputs, inputs).

    Args:
        hidden: Width d of the hidden states.
        intermediate: Width of the feed-forward layer.
        query: Query heads times their size.
        key_value: Key or value heads times their size.
    """
    return {
        "q_proj": (query, hidden),
        "k_proj": (key_value, hidden),
        "v_proj": (key_value, hidden),
        "qkv_proj": (query + 2 * key_value, hidden),
        "o_proj": (hidden, query),
        "gate_proj": (intermediate, hidden),
        "up_proj": (intermediate, hidden),
        "gate_up_proj": (2 * intermediate, hidden),
        "down_proj": (hidden, intermediate),
    }

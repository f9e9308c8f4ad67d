"""How well next-token distributions predict what came, and how far two of them are apart.

Log-probabilities are float32; sums over the vocabulary are float64, so that the many small terms of a KL do
not drown each other.
"""

import torch
from torch import Tensor


def token_nll(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of the tokens that came.

    Args:
        log_probabilities: [positions, vocab].
        targets: Token ids, [positions].

    Returns:
        Nats, [positions].
    """
    return -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ p (log p − log q) over the vocabulary.

    Args:
        log_p: Log-probabilities of the baseline, [positions, vocab].
        log_q: Log-probabilities of the artifact, [positions, vocab].

    Returns:
        Nats, float64, [positions]; rounding may leave it a little below zero.
    """
    return (log_p.exp() * (log_p - log_q)).sum(-1, dtype=torch.float64)


def likeliest(log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of the tokens that two models find likeliest: [positions, vocab] twice → int32 [positions]."""
    return log_p.argmax(-1).to(torch.int32), log_q.argmax(-1).to(torch.int32)

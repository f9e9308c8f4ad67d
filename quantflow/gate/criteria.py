"""The criteria on a model's own samples, each a pure function of them and a margin."""

from quantflow.gate.baseline import baseline_criterion
from quantflow.gate.bound import kl_bound_criterion
from quantflow.gate.kl import kl_criterion, kl_p99_criterion, top1_criterion
from quantflow.gate.perplexity import perplexity_criterion
from quantflow.gate.result import CriterionResult, GateResult

__all__ = [
    "CriterionResult",
    "GateResult",
    "baseline_criterion",
    "kl_bound_criterion",
    "kl_criterion",
    "kl_p99_criterion",
    "perplexity_criterion",
    "top1_criterion",
]

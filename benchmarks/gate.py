"""How often the gate's verdicts are wrong, on synthetic paired runs whose truth is known.

    python benchmarks/gate.py [--runs 10000] [--documents 60]

The code that judges artifacts is what runs here, on thousands of samples at once: documents of unequal
length, tokens that share a part of their variance within a document, divergences with a long tail. One JSON
object is printed last; see benchmarks/README.md.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from quantflow.gate.proportions import paired_proportions
from quantflow.gate.sequential import RESOLVED, level_factor, look_levels
from quantflow.gate.statistics import ONE_SIDED_LEVEL, t_quantile, tails_of
from quantflow.gate.studentized import Clusters
from quantflow.measure.looks import look_sizes

Floats = NDArray[np.float64]

DOCUMENTS = 60
# Twice the fewest that a verdict takes. What they are like is harsher than documents measured so far, whose
# means of KL differ by a standard deviation of 0.1 in logarithms, and their tokens by 1.0 to 1.2.
LENGTH_MEDIAN, LENGTH_SPREAD, SHORTEST, LONGEST = 150, 0.6, 16, 512
KL_DOCUMENT_SPREAD, KL_TOKEN_SPREAD = 0.5, 1.5
# ΔNLL: shared within a document, and tokens of Student's t with 3 degrees of freedom, both in nats.
DELTA_DOCUMENT_SPREAD, DELTA_TOKEN_SPREAD, TAIL_FREEDOM = 0.05, 0.3, 3
# Items in groups that share a passage; flips are rare and come together.
ITEMS_IN_GROUP, FLIPS, FLIPS_TOGETHER = 4, 0.08, 0.3
TASK_MARGIN = 0.03
EFFECTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # times the margin
POWER = 0.8
LOOKS_DOCUMENTS = 240
KL_LOOKS_FEWER = 10  # its tails take 150 times as long as those of ΔNLL
BATCH = 500


def main() -> None:
    """Run everything and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    asked = parser.parse_args()
    rng = np.random.default_rng(20_261_130)
    result: dict[str, Any] = {}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "perplexity": lambda: perplexity(rng, asked.runs, asked.documents),
        "kl": lambda: kl(rng, asked.runs, asked.documents),
        "tasks": lambda: tasks(rng, asked.runs),
        "adaptive": lambda: adaptive(rng, asked.runs),
    }
    for name, part in parts.items():
        start = time.process_time()
        result[name] = part()
        seconds = time.process_time() - start
        print(f"{name}: {json.dumps(result[name])} ({seconds:.0f} s)", flush=True)
    result["naive"] = {name: result[name].pop("naive") for name in ("perplexity", "kl", "tasks", "adaptive")}
    result["runs"] = asked.runs
    result["documents"] = asked.documents
    result["standard_error"] = round(math.sqrt(0.05 * 0.95 / asked.runs), 5)
    print(json.dumps(result))


def lengths(rng: np.random.Generator, runs: int, documents: int) -> Floats:
    """Tokens of each document, [runs, documents]."""
    drawn = np.exp(rng.normal(math.log(LENGTH_MEDIAN), LENGTH_SPREAD, (runs, documents)))
    return np.clip(drawn, SHORTEST, LONGEST).round()


def token_sums(tokens: Floats, draw: Callable[[int], Floats]) -> Floats:
    """Sum over the tokens of each document, [runs, documents]."""
    ends = np.cumsum(tokens.astype(np.int64).ravel())
    values = draw(int(ends[-1]))
    return np.add.reduceat(values, np.concatenate([[0], ends[:-1]])).reshape(tokens.shape)


def delta_sums(rng: np.random.Generator, tokens: Floats) -> Floats:
    """Sums of ΔNLL around a true mean of 0."""
    scale = DELTA_TOKEN_SPREAD / math.sqrt(TAIL_FREEDOM / (TAIL_FREEDOM - 2))
    own = token_sums(tokens, lambda size: scale * rng.standard_t(TAIL_FREEDOM, size))
    return own + DELTA_DOCUMENT_SPREAD * rng.standard_normal(tokens.shape) * tokens


def kl_sums(rng: np.random.Generator, tokens: Floats) -> Floats:
    """Sums of KL around a true mean of 1; every divergence scales with its mean."""

    def draw(size: int) -> Floats:
        normal = rng.standard_normal(size, dtype=np.float32)
        logs = np.float32(KL_TOKEN_SPREAD) * normal - np.float32(KL_TOKEN_SPREAD**2 / 2)
        return np.asarray(np.exp(logs), dtype=np.float64)

    shared = rng.normal(-(KL_DOCUMENT_SPREAD**2) / 2, KL_DOCUMENT_SPREAD, tokens.shape)
    return token_sums(tokens, draw) * np.exp(shared)


class Bounds:
    """Estimates of many runs with the bounds that the gate would give them.

    Attributes:
        value: Estimates, [runs].
        std_error: Their standard errors.
        below: Reach of the lower bound, in standard errors.
        above: Reach of the upper bound.
    """

    def __init__(self, clusters: Clusters, *, skewed: bool, level: float = ONE_SIDED_LEVEL) -> None:
        parts = [
            tails_of(
                Clusters(clusters.sums[i : i + BATCH], clusters.weights[i : i + BATCH]),
                skewed=skewed,
                level=level,
            )
            for i in range(0, len(clusters.sums), BATCH)
        ]
        self.value, self.std_error = clusters.ratio, clusters.std_error
        self.below = np.concatenate([part.below for part in parts])
        self.above = np.concatenate([part.above for part in parts])

    @property
    def low(self) -> Floats:
        """Lower bounds."""
        return self.value - self.below * self.std_error

    @property
    def high(self) -> Floats:
        """Upper bounds."""
        return self.value + self.above * self.std_error


Look = tuple[Floats, Floats, Bounds]
"""Lower bounds, upper bounds at the look's level, and the bounds that they grew from, [runs] each."""


def perplexity(rng: np.random.Generator, runs: int, documents: int) -> dict[str, Any]:
    """ΔNLL; an effect shifts every run alike, so that one set of runs serves all effects."""
    clusters, tokens_alone = simulate(rng, runs, documents, delta_sums)
    bounds = Bounds(clusters, skewed=False)
    margin = (float(ndtri(0.95)) + float(ndtri(POWER))) * float(np.median(bounds.std_error))
    power = {
        str(effect): {
            "pass": share(bounds.high + effect * margin < margin),
            "fail": share(bounds.low + effect * margin > margin),
        }
        for effect in EFFECTS
    }
    return {
        "false_pass": share(bounds.high < 0),
        "false_fail": share(bounds.low > 0),
        "coverage": farther(share(bounds.low < 0), share(bounds.high > 0)),
        "power": power,
        "naive": naive(clusters, tokens_alone, 0.0),
    }


def kl(rng: np.random.Generator, runs: int, documents: int) -> dict[str, Any]:
    """KL; an effect scales every run alike."""
    clusters, tokens_alone = simulate(rng, runs, documents, kl_sums)
    bounds = Bounds(clusters, skewed=True)
    power = {
        str(effect): {"pass": share(bounds.high * effect < 1), "fail": share(bounds.low * effect > 1)}
        for effect in EFFECTS
    }
    return {
        "false_pass": share(bounds.high < 1),
        "false_fail": share(bounds.low > 1),
        "coverage": farther(share(bounds.low < 1), share(bounds.high > 1)),
        "power": power,
        "naive": naive(clusters, tokens_alone, 1.0),
    }


def simulate(
    rng: np.random.Generator,
    runs: int,
    documents: int,
    sums: Callable[[np.random.Generator, Floats], Floats],
) -> tuple[Clusters, Floats]:
    """Runs, and the standard error that each would have if its tokens were independent."""
    tokens = lengths(rng, runs, documents)
    parts = [sums(rng, tokens[i : i + BATCH]) for i in range(0, runs, BATCH)]
    total = tokens.sum(axis=1)
    shared, alone = (
        (DELTA_DOCUMENT_SPREAD, DELTA_TOKEN_SPREAD)
        if sums is delta_sums
        else (0.0, math.sqrt(math.exp(KL_TOKEN_SPREAD**2 + KL_DOCUMENT_SPREAD**2) - 1))
    )
    return Clusters(np.concatenate(parts), tokens), np.sqrt((shared**2 + alone**2) / total)


def naive(clusters: Clusters, tokens_alone: Floats, truth: float) -> dict[str, float]:
    """What other intervals at the same 5 % do at the margin: independent tokens, Student's t, percentiles."""
    value, std_error = clusters.ratio, clusters.std_error
    z, t = float(ndtri(0.95)), t_quantile(clusters.count - 1)
    draws = np.random.default_rng(1).multinomial(clusters.count, [1 / clusters.count] * clusters.count, 400).T
    ends = [
        np.quantile(
            (clusters.sums[i : i + BATCH] @ draws) / (clusters.weights[i : i + BATCH] @ draws),
            [0.05, 0.95],
            axis=1,
        )
        for i in range(0, len(value), BATCH)
    ]
    low, high = np.concatenate(ends, axis=1)
    return {
        "independent_tokens_false_pass": share(value + z * tokens_alone < truth),
        "independent_tokens_false_fail": share(value - z * tokens_alone > truth),
        "estimate_alone_false_pass": share(value < truth),
        "student_t_false_pass": share(value + t * std_error < truth),
        "student_t_false_fail": share(value - t * std_error > truth),
        "percentile_bootstrap_false_pass": share(high < truth),
        "percentile_bootstrap_false_fail": share(low > truth),
    }


def tasks(rng: np.random.Generator, runs: int) -> dict[str, Any]:
    """Right and wrong answers in groups, at each effect; 400 items."""
    groups = 100
    at_margin = [task_run(rng, groups, TASK_MARGIN) for _ in range(runs)]
    found = [paired_proportions(*run) for run in at_margin]
    alone = [paired_proportions(run[0], run[1]) for run in at_margin]
    fewer = max(1, runs // 10)
    power = {}
    for effect in EFFECTS:
        judged = [paired_proportions(*task_run(rng, groups, effect * TASK_MARGIN)) for _ in range(fewer)]
        power[str(effect)] = {
            "pass": share(np.array([one.ci_high < TASK_MARGIN for one in judged])),
            "fail": share(np.array([one.ci_low > TASK_MARGIN for one in judged])),
        }
    low = np.array([one.ci_low for one in found])
    high = np.array([one.ci_high for one in found])
    drop = np.array([one.drop for one in found])
    flips = np.array([(one.lost + one.gained) / one.n for one in found])
    wald = float(ndtri(0.95)) * np.sqrt((flips - drop**2) / (groups * ITEMS_IN_GROUP))
    unpaired = float(ndtri(0.95)) * np.sqrt(
        np.array([one.baseline * (1 - one.baseline) + one.artifact * (1 - one.artifact) for one in found])
        / (groups * ITEMS_IN_GROUP)
    )
    return {
        "false_pass": share(high < TASK_MARGIN),
        "false_fail": share(low > TASK_MARGIN),
        "coverage": farther(share(low < TASK_MARGIN), share(high > TASK_MARGIN)),
        "power": power,
        "naive": {
            "tango_without_groups_false_pass": share(np.array([one.ci_high for one in alone]) < TASK_MARGIN),
            "tango_without_groups_false_fail": share(np.array([one.ci_low for one in alone]) > TASK_MARGIN),
            "wald_false_pass": share(drop + wald < TASK_MARGIN),
            "wald_false_fail": share(drop - wald > TASK_MARGIN),
            "unpaired_false_fail": share(drop - unpaired > TASK_MARGIN),
            "estimate_alone_false_pass": share(drop < TASK_MARGIN),
        },
    }


def task_run(
    rng: np.random.Generator, groups: int, drop: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """Answers of both models: a group that flips at all does so the same way for some of its items."""
    lost, gained = (FLIPS + drop) / 2, (FLIPS - drop) / 2
    uniform = rng.random((groups, ITEMS_IN_GROUP))
    together = rng.random((groups, ITEMS_IN_GROUP)) < math.sqrt(FLIPS_TOGETHER)
    uniform = np.where(together, rng.random((groups, 1)), uniform)
    is_lost, is_gained = (uniform < lost).ravel(), (uniform > 1 - gained).ravel()
    right = rng.random(groups * ITEMS_IN_GROUP) < 0.6
    baseline = np.where(is_lost, True, np.where(is_gained, False, right))
    artifact = np.where(is_lost, False, np.where(is_gained, True, right))
    return baseline, artifact, np.repeat(np.arange(groups), ITEMS_IN_GROUP)


def adaptive(rng: np.random.Generator, runs: int) -> dict[str, Any]:
    """ΔNLL looked at as documents come in, beside the fixed sample with 80 % power at no effect; and KL."""
    sizes = look_sizes(LOOKS_DOCUMENTS)
    at = looked(rng, runs, sizes, delta_sums)
    whole = at[-1][2]
    margin = (float(ndtri(0.95)) + float(ndtri(POWER))) * float(np.median(whole.std_error))
    savings, power = {}, {}
    for name, effect in (("0", 0.0), ("half", 0.5), ("twice", 2.0), ("margin", 1.0)):
        passed, failed, used = stopped(at, sizes, effect * margin, margin)
        savings[name] = round(1 - float(used.mean()) / LOOKS_DOCUMENTS, 4)
        power[name] = {"pass": share(passed), "fail": share(failed)}
    at_margin = power.pop("margin")
    del savings["margin"]
    repeated = np.array([[b.low > 0, b.high < 0] for _, _, b in at])
    return {
        "false_pass": at_margin["pass"],
        "false_fail": at_margin["fail"],
        "saving": savings,
        "power": power,
        "fixed_power": {
            "0": {"pass": share(whole.high < margin)},
            "half": {"pass": share(whole.high + margin / 2 < margin)},
            "twice": {"fail": share(whole.low + 2 * margin > margin)},
        },
        "looks": list(sizes),
        "kl": adaptive_kl(rng, max(1, runs // KL_LOOKS_FEWER), sizes),
        "naive": {
            "5_percent_at_every_look_false_fail": share(np.asarray(repeated[:, 0].any(axis=0))),
            "5_percent_at_every_look_false_pass": share(np.asarray(repeated[:, 1].any(axis=0))),
        },
    }


def adaptive_kl(rng: np.random.Generator, runs: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    """KL looked at in the same way, at its margin: tails of every look of every run are simulated."""
    at = looked(rng, runs, sizes, kl_sums)
    passed, failed, _ = stopped(at, sizes, 0.0, 1.0)
    return {"false_pass": share(passed), "false_fail": share(failed), "runs": runs}


def looked(
    rng: np.random.Generator,
    runs: int,
    sizes: tuple[int, ...],
    sums: Callable[[np.random.Generator, Floats], Floats],
) -> list[Look]:
    """Lower and upper bounds of every run at every look, and the bounds at 5 %."""
    clusters, _ = simulate(rng, runs, sizes[-1], sums)
    levels = look_levels([size / sizes[-1] for size in sizes])
    return [
        look(Clusters(clusters.sums[:, :size], clusters.weights[:, :size]), level, skewed=sums is kl_sums)
        for size, level in zip(sizes, levels, strict=True)
    ]


def look(seen: Clusters, level: float, *, skewed: bool) -> Look:
    """One look at what has come in of every run, as the gate takes it."""
    found_at = max(level, RESOLVED) if skewed else 1 - ONE_SIDED_LEVEL
    bounds = Bounds(seen, skewed=skewed, level=1 - found_at)
    reach = level_factor(seen.count - 1, level, found_at) * bounds.std_error
    return bounds.value - reach * bounds.below, bounds.value + reach * bounds.above, bounds


def stopped(
    looks: list[Look], sizes: tuple[int, ...], effect: float, margin: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """What each run is decided as, and after how many documents it ends."""
    runs = len(looks[0][0])
    passed, failed = np.zeros(runs, dtype=np.bool_), np.zeros(runs, dtype=np.bool_)
    used = np.full(runs, sizes[-1], dtype=np.int64)
    for size, (low, high, _) in zip(sizes, looks, strict=True):
        waiting = ~(passed | failed)
        passes, fails = waiting & (high + effect < margin), waiting & (low + effect > margin)
        used[passes | fails] = size
        passed |= passes
        failed |= fails
    return passed, failed, used


def share(which: NDArray[np.bool_]) -> float:
    """Share of runs, to four digits."""
    return round(float(which.mean()), 4)


def farther(*coverages: float) -> float:
    """The coverage that is farther from 95 %."""
    return max(coverages, key=lambda one: abs(one - 0.95))


if __name__ == "__main__":
    main()

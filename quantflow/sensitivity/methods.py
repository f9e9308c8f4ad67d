"""The scan's methods: from the lossless states and the codes to a score of every unit in every precision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quantflow.model.units import HEAD
from quantflow.pipeline.events import Reporter
from quantflow.sensitivity.boundaries import Boundaries
from quantflow.sensitivity.exact import block_of_unit, exact_cost, exact_scores
from quantflow.sensitivity.fisher import fisher_scores
from quantflow.sensitivity.measured import Key, Measured, merged
from quantflow.sensitivity.scores import Found, found_by
from quantflow.sensitivity.settle import Choose, settle
from quantflow.sensitivity.sizes import AUTO_SHARE, LEAST_EXACT
from quantflow.sensitivity.spent import ForwardParts
from quantflow.sensitivity.stored import StoredCodes


@dataclass(frozen=True)
class Scored:
    """What a method found on one text.

    Attributes:
        found: Unit and precision → its score.
        default: The same by Fisher's estimate, where that is not the method's own.
        measured: What all passes found, with their cost.
        settled: Whether the choices no longer hang on estimates; None where that was no question.
    """

    found: Mapping[Key, Found]
    measured: Measured
    default: Mapping[Key, Found] = field(default_factory=dict)
    settled: bool | None = None


@dataclass(frozen=True)
class Ground:
    """What a method works on.

    Attributes:
        boundaries: The lossless states before every block, all there.
        codes: Precision → its codes.
        reporter: Of this text's part of the scan.
    """

    boundaries: Boundaries
    codes: Mapping[str, StoredCodes]
    reporter: Reporter

    @property
    def keys(self) -> list[Key]:
        """Every unit in every precision that it has codes in, in the order of the model."""
        family, blocks = self.boundaries.decoder.family, range(self.boundaries.decoder.num_blocks)
        keys: list[Key] = []
        for precision, own in self.codes.items():
            keys += [(f"{family.block_name(i)}.{unit}", precision) for i in blocks for unit in own.units(i)]
            keys += [(HEAD, precision)] if own.open_head() is not None else []
        return keys

    def cost(self, keys: Sequence[Key]) -> float:
        """Whole forwards that scoring units exactly takes, at once."""
        decoder = self.boundaries.decoder
        parts, blocks = ForwardParts.of(decoder), block_of_unit(self.boundaries)
        return parts.head + exact_cost([blocks[unit] for unit, _ in keys], decoder.num_blocks, parts)

    def lossless(self) -> Measured:
        """The lossless forward, which has been run, as a part of the cost."""
        return Measured({}, {"forward": 1 - ForwardParts.of(self.boundaries.decoder).head})


def exact(ground: Ground) -> Scored:
    """Every unit swapped by itself."""
    measured = exact_scores(ground.boundaries, ground.codes, ground.keys, ground.reporter, control=0)
    text = ground.boundaries.text
    found = {key: found_by(text, measured.sums[key], "exact") for key in ground.keys}
    return Scored(found, merged([ground.lossless(), measured]))


def fisher(ground: Ground, what: str = "Estimating every unit's KL") -> Scored:
    """Fisher's estimate of every unit."""
    measured = fisher_scores(ground.boundaries, ground.codes, ground.reporter, what)
    return Scored(_estimates(ground, measured), merged([ground.lossless(), measured]))


def activation(ground: Ground) -> Scored:
    """The KL of histograms of every unit's outputs; Fisher's estimate, which comes with it, beside it."""
    measured = fisher_scores(
        ground.boundaries, ground.codes, ground.reporter, "Comparing histograms", histograms=True
    )
    found = {
        key: Found(whole, None, (first, second), "activation")
        for key, (whole, first, second) in ((key, measured.outputs[key]) for key in ground.keys)
    }
    return Scored(found, merged([ground.lossless(), measured]), default=_estimates(ground, measured))


def auto(ground: Ground, estimated: Scored, choices: Sequence[Choose]) -> Scored:
    """Fisher's estimate of every unit, and exact scores of those that decide what is chosen.

    Args:
        ground: What to work on; the lossless model is run where its states are not there yet.
        estimated: Of `fisher`.
        choices: What is chosen by the scores.
    """
    text, rounds = ground.boundaries.text, list[Measured]()
    last = ground.boundaries.decoder.num_blocks - 1

    def measure(keys: Sequence[Key]) -> Mapping[Key, float]:
        if not rounds:
            ground.boundaries.fill(ground.reporter, "Running the lossless model")
        control = None if rounds else last
        rounds.append(exact_scores(ground.boundaries, ground.codes, keys, ground.reporter, control=control))
        return {key: text.mean(rounds[-1].sums[key]) for key in keys}

    known = {key: own.kl for key, own in estimated.found.items() if own.method == "exact"}
    estimates = {key: own.kl for key, own in estimated.found.items() if key not in known}
    state = settle(
        estimates, choices, measure, ground.cost, allowance(ground, estimated), ground.reporter, known
    )
    found: dict[Key, Found] = {}
    exact_ones = merged(rounds)
    for key in ground.keys:
        if key in exact_ones.sums:
            found[key] = found_by(text, exact_ones.sums[key], "exact")
        elif key in known:
            found[key] = estimated.found[key]
        else:
            found[key] = estimated.found[key].times(state.ratio(key[1]))
    return Scored(found, merged([estimated.measured, *rounds]), settled=state.settled)


def allowance(ground: Ground, estimated: Scored) -> float:
    """Forwards that `auto` may spend on exact scores."""
    decoder, parts = ground.boundaries.decoder, ForwardParts.of(ground.boundaries.decoder)
    whole = 1 - parts.head + ground.cost(ground.keys)
    control = parts.suffix(decoder.num_blocks - 1, decoder.num_blocks)
    left = AUTO_SHARE * whole - sum(estimated.measured.forwards.values()) - control
    return max(left, LEAST_EXACT * ground.cost(ground.keys[:1]))


def _estimates(ground: Ground, measured: Measured) -> dict[Key, Found]:
    """Fisher's scores; the head's are exact."""
    text = ground.boundaries.text
    return {
        key: found_by(text, measured.sums[key], "exact" if key[0] == HEAD else "fisher")
        for key in ground.keys
    }

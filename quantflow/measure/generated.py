"""What two models generated for the same prompts, side by side."""

import difflib
import math
from collections.abc import Sequence
from statistics import fmean, median

from pydantic import BaseModel, ConfigDict

from quantflow.measure.generation_record import Generated, GenerationRecord

# The one-sided 95 % quantile of the normal distribution.
Z = 1.6448536269514722
# Pairs that a report shows side by side: those that diverge earliest are the ones to look at.
SHOWN = 20


class Pair(BaseModel):
    """What both sides went on with after one prompt.

    Attributes:
        document: Index of the prompt's document.
        slice: Its slice.
        prompt: Text of the prompt.
        baseline: The baseline's text.
        artifact: The artifact's.
        diverges_at: Place of the first token that differs; None where none does.
        margin: How far the baseline's likeliest token was above the second there, in logits: a small one says
            that it was a near tie.
        similarity: Ratio of matching characters, 1 for equal texts.
        similarity_without_space: The same without white space.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    document: int
    slice: str
    prompt: str
    baseline: str
    artifact: str
    diverges_at: int | None
    margin: float | None
    similarity: float
    similarity_without_space: float


class GenerationValue(BaseModel):
    """Generated text of an artifact beside its baseline's.

    Attributes:
        prompts: How many.
        documents: Documents they come from, near duplicates counted once.
        identical: Share with identical tokens.
        ci_low: Lower end of its 90 % interval.
        ci_high: Upper end.
        noise_floor: Share with identical tokens of the baseline against itself in other batches.
        first_divergence: Median place of the first token that differs, over prompts where one does.
        margin_at_divergence: Median of the baseline's logit margin there.
        similarity: Mean ratio of matching characters.
        similarity_without_space: The same without white space.
        shown: Pairs to look at, those that diverge earliest first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts: int
    documents: int
    identical: float
    ci_low: float
    ci_high: float
    noise_floor: float | None
    first_divergence: float | None
    margin_at_divergence: float | None
    similarity: float
    similarity_without_space: float
    shown: tuple[Pair, ...]


def compare_generation(
    baseline: GenerationRecord, measured: GenerationRecord, clusters: Sequence[int]
) -> GenerationValue | None:
    """Put two models' texts side by side; None where they did not have the same prompts.

    Args:
        baseline: The lossless model's.
        measured: The artifact's.
        clusters: Document → what stands for it and its near duplicates, [documents].
    """
    if [(s.document, s.prompt) for s in baseline.samples] != [
        (s.document, s.prompt) for s in measured.samples
    ]:
        return None
    pairs = [_pair(b, m) for b, m in zip(baseline.samples, measured.samples, strict=True)]
    same = sum(pair.diverges_at is None for pair in pairs)
    documents = len({int(clusters[pair.document]) for pair in pairs})
    low, high = wilson_interval(same / len(pairs), documents)
    differing = sorted(
        (pair for pair in pairs if pair.diverges_at is not None),
        key=lambda pair: (pair.diverges_at, pair.document),
    )
    margins = [pair.margin for pair in differing if pair.margin is not None]
    floor = baseline.other_batches
    return GenerationValue(
        prompts=len(pairs),
        documents=documents,
        identical=same / len(pairs),
        ci_low=low,
        ci_high=high,
        noise_floor=None if floor is None else sum(floor) / len(floor),
        first_divergence=median(p.diverges_at for p in differing if p.diverges_at is not None)
        if differing
        else None,
        margin_at_divergence=median(margins) if margins else None,
        similarity=fmean(pair.similarity for pair in pairs),
        similarity_without_space=fmean(pair.similarity_without_space for pair in pairs),
        shown=tuple(differing[:SHOWN]),
    )


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """90 % score interval of a share (Wilson 1927, Journal of the American Statistical Association 22).

    Args:
        share: What was observed.
        n: Independent observations: documents, where several prompts of one are not.
    """
    spread = Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def _pair(before: Generated, after: Generated) -> Pair:
    at = _divergence(before.tokens, after.tokens)
    return Pair(
        document=before.document,
        slice=before.slice,
        prompt=before.prompt_text,
        baseline=before.text,
        artifact=after.text,
        diverges_at=at,
        margin=before.margins[at] if at is not None and at < len(before.margins) else None,
        similarity=_similarity(before.text, after.text),
        similarity_without_space=_similarity("".join(before.text.split()), "".join(after.text.split())),
    )


def _divergence(before: Sequence[int], after: Sequence[int]) -> int | None:
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return place
    return None if len(before) == len(after) else min(len(before), len(after))


def _similarity(before: str, after: str) -> float:
    return difflib.SequenceMatcher(None, before, after, autojunk=False).ratio()

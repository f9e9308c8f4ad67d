"""How often both sides say the very same, where they part, and how near a tie it was."""

from collections.abc import Sequence

import pytest

from quantflow.gate.asked import GenerationMargin
from quantflow.gate.generation import generation_criterion
from quantflow.gate.verdict import Verdict
from quantflow.measure.generated import GenerationValue, compare_generation, wilson_interval
from quantflow.measure.generation_record import Generated, GenerationRecord


def said(
    tokens: Sequence[tuple[int, ...]], *, floor: float | None = None, per_document: int = 1
) -> GenerationRecord:
    samples = tuple(
        Generated(
            document=n // per_document,
            slice="chat",
            prompt=(1, 2, n),
            prompt_text=f"prompt {n}",
            tokens=ids,
            margins=tuple(0.5 + place for place in range(len(ids))),
            text=" ".join(map(str, ids)),
        )
        for n, ids in enumerate(tokens)
    )
    other = None if floor is None else tuple(n < floor * len(tokens) for n in range(len(tokens)))
    return GenerationRecord(samples=samples, other_batches=other)


def compared(
    same: int, count: int = 200, clusters: Sequence[int] | None = None, **settings: int
) -> GenerationValue:
    before = [(5, 6, 7)] * count
    after = [(5, 6, 7) if n < same else (5, 9, 7) for n in range(count)]
    value = compare_generation(
        said(before, floor=0.99, **settings), said(after, **settings), clusters or range(count)
    )
    assert value is not None
    return value


def judge(value: GenerationValue | None, min_identical: float | None = 0.8) -> Verdict | None:
    result = generation_criterion("int4", GenerationMargin(min_identical=min_identical, required=True), value)
    return None if result is None else result.verdict


@pytest.mark.parametrize(
    ("same", "verdict"), [(190, Verdict.PASS), (100, Verdict.FAIL), (160, Verdict.INCONCLUSIVE)]
)
def test_the_identical_rate_is_held_against_what_is_asked_for(same: int, verdict: Verdict) -> None:
    assert judge(compared(same)) is verdict


def test_few_documents_are_inconclusive_however_many_prompts_they_give() -> None:
    assert judge(compared(200, per_document=10)) is Verdict.INCONCLUSIVE


def test_copies_of_one_letter_are_one_document() -> None:
    assert judge(compared(200)) is Verdict.PASS
    value = compared(200, clusters=[n % 20 for n in range(200)])
    assert (value.prompts, value.documents) == (200, 20)
    assert judge(value) is Verdict.INCONCLUSIVE


def test_nothing_is_judged_where_nothing_is_asked_for() -> None:
    assert judge(compared(100), None) is None


def test_texts_after_other_prompts_are_an_error() -> None:
    before, after = said([(5,)] * 40), said([(5,)] * 39)
    assert compare_generation(before, after, range(40)) is None
    assert judge(None) is Verdict.ERROR


def test_the_first_divergence_and_the_margin_there_are_told() -> None:
    value = compared(190)
    assert value.first_divergence == 1
    assert value.margin_at_divergence == 1.5
    assert value.noise_floor == pytest.approx(0.99)
    assert value.shown[0].prompt == "prompt 190"
    assert 0.5 < value.shown[0].similarity < 1


def test_a_text_that_ends_earlier_diverges_where_it_ends() -> None:
    value = compare_generation(said([(5, 6, 7)] * 40), said([(5, 6)] * 40), range(40))
    assert value is not None
    assert (value.identical, value.first_divergence) == (0, 2)


def test_white_space_alone_is_told_from_other_words() -> None:
    before, after = said([(5, 6)] * 40), said([(5, 6, 8)] * 40)
    spaced = tuple(s.model_copy(update={"text": "5  6"}) for s in after.samples)
    value = compare_generation(before, GenerationRecord(samples=spaced), range(40))
    assert value is not None
    assert value.similarity < value.similarity_without_space == 1


def test_the_interval_is_wilsons() -> None:
    # Newcombe (1998), table I, has 0.0 to 0.1611 for 0 of 20 at 95 %; at 90 % the upper end is z²/(n + z²).
    low, high = wilson_interval(0.0, 20)
    assert low == 0
    assert high == pytest.approx(1.6448536**2 / (20 + 1.6448536**2))

"""What two models said, to render: invented, in the shape of a real run."""

from quantflow.measure.generated import GenerationValue, Pair
from quantflow.measure.measurement import Measurement
from quantflow.tasks.value import Flip, TaskValue
from tests.report.samples import measurement

SECRET = "Jane Miller, 14 Elm Street, account 77319-33"


def pair(document: int, before: str, after: str) -> Pair:
    return Pair(
        document=document,
        slice="billing",
        prompt=f"Dear support, I am {SECRET}. My invoice is wrong. Reply:",
        baseline=before,
        artifact=after,
        diverges_at=7,
        margin=0.42,
        similarity=0.81,
        similarity_without_space=0.83,
    )


def generation(*pairs: Pair) -> GenerationValue:
    return GenerationValue(
        prompts=200,
        documents=60,
        identical=0.41,
        ci_low=0.35,
        ci_high=0.47,
        noise_floor=0.97,
        first_divergence=11.0,
        margin_at_divergence=0.3,
        similarity=0.78,
        similarity_without_space=0.8,
        shown=pairs,
    )


def task() -> TaskValue:
    return TaskValue(
        metric="exact_match",
        higher_is_better=True,
        baseline=0.62,
        value=0.585,
        chance=0.25,
        n=200,
        n_clusters=40,
        items_in_task=1319,
        num_fewshot=0,
        lost=12,
        gained=5,
        flips=(
            Flip(id="reading/17", baseline="in March", artifact=f"{SECRET}", wanted="in March", lost=True),
            Flip(id="reading/90", baseline="no", artifact="yes", wanted="yes", lost=False),
        ),
    )


def measured() -> Measurement:
    """A measurement with outputs side by side and a task."""
    pairs = (
        pair(
            3,
            "Thank you for writing. We have corrected the invoice and sent it again.",
            "Thank you for writing. We have corrected the amount and will send it again soon.",
        ),
        pair(8, "The refund takes five days.", f"The refund of {SECRET} takes days days days days."),
    )
    update = {"generation": generation(*pairs), "tasks": {"reading": task()}}
    return measurement(1.0, kl=True).model_copy(update=update)

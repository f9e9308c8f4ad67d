"""What a recipe says of the report."""

from pydantic import Field

from quantflow.recipe.section import Section
from quantflow.report.text import TextLevel
from quantflow.report.wording import Language


class ReportOptions(Section):
    """What the report says beside the results."""

    title: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Title of the report. Default: null, the recipe's name.",
    )
    language: Language = Field(
        default="en",
        description="Language of report.html: en, or zh (Chinese). report.json is in English either way, "
        "and so are the messages of events. Default: en.",
    )
    text: TextLevel | None = Field(
        default=None,
        description="What the report holds of prompts, outputs and answers, report.json included: full; "
        "redacted, in which a number stands for every word, the same for the same word; or none. "
        "Default: null, full in the run's own folder and none in what is published.",
    )

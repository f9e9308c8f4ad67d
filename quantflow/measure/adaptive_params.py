"""What the measure stage that stops early is asked."""

from quantflow.gate.adaptive import SequentialMargins
from quantflow.measure.params import MeasureParams


class AdaptiveParams(MeasureParams):
    """Resolved parameters of an artifact's adaptive measure stage.

    Attributes:
        look_seed: Of the order of documents; the baseline's.
        margins: What is judged at every look.
    """

    look_seed: int
    margins: SequentialMargins

"""What the leakage stage is asked."""

from quantflow.pipeline.stage import StageParams


class LeakageParams(StageParams):
    """Nothing: what counts is the same for everyone."""

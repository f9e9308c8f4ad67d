"""Errors a user can cause or mend: what is wrong, where, and what to do. Shown without a traceback."""


class QuantFlowError(Exception):
    """Base of every expected error.

    Args:
        message: What is wrong, in plain words.
        where: The recipe line, file, tensor or layer it concerns; empty where there is none.
        hint: What the user can do about it; empty where the message says it.
    """

    exit_code = 2

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """Message, place and remedy on up to three lines."""
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class RecipeError(QuantFlowError):
    """The recipe, an override or the command line asks for something that is not allowed or not there."""

    exit_code = 4


class SourceError(QuantFlowError):
    """The model's files are incomplete, damaged or of a kind that cannot be a lossless baseline."""


class DataError(QuantFlowError):
    """The business text cannot be read or is not enough."""


class QuantizationError(QuantFlowError):
    """A layer cannot be quantized as asked."""


class ArtifactError(QuantFlowError):
    """An artifact on disk cannot be read back."""


class StoreError(QuantFlowError):
    """The workspace cannot be read or written."""


class FitError(QuantFlowError):
    """The run needs more memory or disk than there is now; elsewhere, or with room made, it could do."""


class RuntimeUnavailableError(QuantFlowError):
    """A runtime that models are to be measured in is not installed, cannot be, or does not start."""


class TaskError(QuantFlowError):
    """An lm-eval task, a prompt set or a scorer of one's own cannot be run as asked."""

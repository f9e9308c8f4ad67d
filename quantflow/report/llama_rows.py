"""llama.cpp's block of figures as rows, under its own names."""

from collections.abc import Iterator, Mapping

from quantflow.measure.llama_cpp import LlamaCppBlock, WithError
from quantflow.report.figures import NONE


def llama_rows(block: LlamaCppBlock) -> Iterator[tuple[str, str, str]]:
    """Name, figure and standard error of each; a dash where it has no error."""
    for name, value in block:
        if isinstance(value, WithError):
            yield name, f"{value.value:.6g}", f"{value.error:.2g}"
        elif isinstance(value, Mapping):
            yield from ((f"{name} {share}", f"{figure:.6g}", NONE) for share, figure in value.items())
        else:
            yield name, f"{value:.6g}", NONE

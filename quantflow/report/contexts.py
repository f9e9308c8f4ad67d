"""The texts at which an artifact's next-token distributions diverge most from its baseline's."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from quantflow.measure.divergence_detail import WorstPosition

TOKENIZER_FILE = "tokenizer.json"


class DivergentContext(BaseModel):
    """One such position, in words.

    Attributes:
        before: The text before it, its end.
        came: The token that came.
        baseline: The token that the baseline finds likeliest; None where the runtime does not tell.
        artifact: The one that the artifact finds likeliest, likewise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    before: str
    came: str
    baseline: str | None
    artifact: str | None


def divergent_contexts(worst: tuple[WorstPosition, ...], checkpoint: Path) -> tuple[DivergentContext, ...]:
    """The positions' texts, in their order; none where the model has no tokenizer.json to decode with.

    Special tokens are kept: where a turn of a chat ends is what these positions are often about.

    Args:
        worst: Positions with their tokens.
        checkpoint: Folder of the lossless model.
    """
    file = checkpoint / TOKENIZER_FILE
    if not worst or not file.is_file():
        return ()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))

    def text(*tokens: int) -> str:
        decoded: str = tokenizer.decode(list(tokens), skip_special_tokens=False)
        return decoded

    def one(token: int | None) -> str | None:
        return None if token is None else text(token)

    return tuple(
        DivergentContext(
            before=text(*position.context),
            came=one(position.target) or "",
            baseline=one(position.likeliest_before),
            artifact=one(position.likeliest),
        )
        for position in worst
    )

"""What the drift stage is asked."""

from pydantic import PositiveInt

from quantflow.data.params import FilesParams


class DriftParams(FilesParams):
    """Resolved parameters of the drift stage; `files` are the sample of production text.

    Attributes:
        tokens: Tokens of production text that are held, about: as many as calibration asks for.
        seed: Documents are drawn by it.
        device: Where to compute: `cpu` or `cuda`.
        batch_tokens: Most tokens of a batch, padding included.
    """

    tokens: PositiveInt
    seed: int
    device: str
    batch_tokens: PositiveInt

"""What the source stage needs to know."""

from collections.abc import Mapping

from quantflow.pipeline.stage import StageParams


class SourceParams(StageParams):
    """Resolved parameters of the source stage; built by `quantflow.source.identify.source_params`.

    Attributes:
        uri: Where the model comes from: absolute path of a folder or GGUF file, hub id, or `wheel://…`.
        revision: Commit of a hub repository (40 hex digits); None for every other kind.
        identity: Hash that tells this source's content from any other's.
        files: File name → SHA-256 of a local folder, where the caller has hashed it already; empty otherwise.
        allow_pickle: Whether pickled weights may be read where there are no others.
    """

    uri: str
    revision: str | None = None
    identity: str
    files: Mapping[str, str] = {}
    allow_pickle: bool = False

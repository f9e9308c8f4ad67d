"""The certificates that the user's environment names, for the hub's HTTP client."""

import os
import ssl
from pathlib import Path

from huggingface_hub import close_session

from quantflow.errors import SourceError

# The hub's client reads the first two; requests and curl, and so many an environment, the others.
FILE_VARIABLE, FOLDER_VARIABLE = "SSL_CERT_FILE", "SSL_CERT_DIR"
BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def prepare_session() -> None:
    """Let the hub's client trust the certificates that REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE name.

    They are passed on as SSL_CERT_FILE, for this process and what it starts, unless that is set already.

    Raises:
        SourceError: A variable names what is not there or holds no certificates.
    """
    if not any(os.environ.get(name) for name in (FILE_VARIABLE, FOLDER_VARIABLE)):
        for name in BUNDLE_VARIABLES:
            if bundle := os.environ.get(name):
                os.environ[FOLDER_VARIABLE if Path(bundle).is_dir() else FILE_VARIABLE] = bundle
                close_session()  # a client made before would not know them
                break
    if bundle := os.environ.get(FILE_VARIABLE):
        _require_certificates(Path(bundle))


def _require_certificates(bundle: Path) -> None:
    try:
        ssl.create_default_context(cafile=bundle)
    except OSError as error:  # which ssl.SSLError is, too
        raise SourceError(
            f"the certificates to trust cannot be read: {error.strerror or error}",
            where=str(bundle),
            hint=f"{FILE_VARIABLE} and {BUNDLE_VARIABLES[0]} have to name a PEM file of certificates.",
        ) from error

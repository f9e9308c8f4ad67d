"""What goes wrong between here and the hub, in plain words; addresses and tokens stay out of them."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from quantflow.errors import QuantFlowError, RecipeError, SourceError

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, PROXY_LOGIN, TOO_MANY = 401, 403, 404, 407, 429
FIRST_SERVER_ERROR = 500

_REACH = "Check the network, HF_ENDPOINT, HTTPS_PROXY and HF_HUB_OFFLINE, or name a local folder instead."


@contextmanager
def plain_errors(repository: str, revision: str | None) -> Iterator[None]:
    """Turn what the hub's client raises into errors that say what to do.

    Raises:
        RecipeError: The hub has no such repository or revision, or does not show it to this user.
        SourceError: The hub cannot be reached, refuses the token, is out of order, or is no hub.
    """
    where = repository if revision is None else f"{repository} at {revision}"
    try:
        yield
    except (QuantFlowError, KeyboardInterrupt):
        raise
    except HFValidationError as error:
        raise RecipeError("this is not a hub id", where=where, hint="Write org/name.") from error
    except (
        HfHubHTTPError,
        RevisionResolutionError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        httpx.HTTPError,
        httpx.InvalidURL,
        ssl.SSLError,
    ) as error:
        raise _described(error, where) from error
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(
            "what answers is not a model hub: its answer cannot be understood",
            where=where,
            hint="Check HF_ENDPOINT; a network that wants a login may answer in the hub's place, too.",
        ) from error


def _described(error: BaseException, where: str) -> QuantFlowError:
    for cause in _chain(error):
        if isinstance(cause, GatedRepoError):
            return RecipeError(
                "this model of the hub is gated: its owner has to grant you access",
                where=where,
                hint="Accept its conditions on its page, then run `hf auth login` or set HF_TOKEN.",
            )
        if isinstance(cause, RepositoryNotFoundError):
            return RecipeError(
                "the hub has no such model, or does not show it to you",
                where=where,
                hint="Check the spelling; for a private model run `hf auth login` or set HF_TOKEN. "
                "A local folder that is not there is taken for a hub id too: start its path with ./ or /.",
            )
        if isinstance(cause, RevisionNotFoundError):
            return RecipeError(
                "the hub has this model but no such revision",
                where=where,
                hint="Write a branch, a tag or a commit of the repository, or leave model.revision out.",
            )
        if isinstance(cause, OfflineModeIsEnabled):
            return SourceError(
                "HF_HUB_OFFLINE is set and the model is not complete in the local cache",
                where=where,
                hint="Unset it, or fetch the model where there is a network and set HF_HOME to that cache.",
            )
        if isinstance(cause, HfHubHTTPError):
            return _by_status(cause.response.status_code, where)
        if isinstance(cause, ssl.SSLError):
            return SourceError(
                "the hub's certificate is not trusted here",
                where=where,
                hint="Behind a proxy that signs anew, set SSL_CERT_FILE or REQUESTS_CA_BUNDLE to its "
                "certificate, a PEM file.",
            )
        if isinstance(cause, httpx.ProxyError):
            return SourceError(
                "the proxy does not let us through to the hub",
                where=where,
                hint="Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY, and the proxy's user and password.",
            )
    return SourceError(
        "the hub cannot be reached and the model is not complete in the local cache", where=where, hint=_REACH
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it came from, the first cause last."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _by_status(status: int, where: str) -> QuantFlowError:
    if status == UNAUTHORIZED:
        return SourceError(
            "the hub does not accept your token",
            where=where,
            hint="It is wrong or has expired: set HF_TOKEN anew, or run `hf auth login`.",
        )
    if status == FORBIDDEN:
        return SourceError(
            "the hub forbids access to this model with your token",
            where=where,
            hint="Take a token that may read it, or ask its owner.",
        )
    if status == NOT_FOUND:
        return SourceError(
            "the hub says that there is no such file or address",
            where=where,
            hint="Check HF_ENDPOINT; a mirror may not have this model.",
        )
    if status == PROXY_LOGIN:
        return SourceError(
            "the proxy wants a user and a password",
            where=where,
            hint="Write them into HTTPS_PROXY: http://user:password@host:port.",
        )
    if status == TOO_MANY:
        return SourceError(
            "the hub has had too many requests from here",
            where=where,
            hint="Wait some minutes and run again: what was fetched is kept. HF_TOKEN raises the limit.",
        )
    if status >= FIRST_SERVER_ERROR:
        return SourceError(
            f"the hub is out of order for the moment (it answers {status})",
            where=where,
            hint="Run again later: what was fetched is kept.",
        )
    return SourceError(f"the hub refuses the request (it answers {status})", where=where, hint=_REACH)

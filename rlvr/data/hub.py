"""The Hugging Face hub, without its patience: where it cannot be reached, only what
was kept here is looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from rlvr.errors import foreign_code

__all__ = ["at_once"]

# For which the hub is asked whether it is there; its own library would try for half a minute.
_PATIENCE_S = 2.5


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Within it, loading from the hub takes what was kept here, or fails at once, where the hub
    does not answer.

    Its library tries for half a minute otherwise; a hub that answers is used as ever.
    """
    try:
        from datasets import config
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    if constants.HF_HUB_OFFLINE or _answers():
        yield
        return
    with (
        # Both libraries have read the variable at import, so setting it would change nothing.
        mock.patch.object(constants, "HF_HUB_OFFLINE", True),
        mock.patch.object(config, "HF_HUB_OFFLINE", True),
    ):
        yield


def _answers() -> bool:
    """Whether the hub answers, by the way that its library takes: mirrors and proxies are
    respected."""
    from huggingface_hub import constants, get_session

    with foreign_code() as errors:  # of requests or of httpx, whichever it uses
        # Any answer will do, also one of an HTTP error.
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE_S)
    return not errors

"""Fixtures of the HTTP service's tests."""

import pytest

from rlvr.http.serve import Service
from tests.serve.serving import ENVS


@pytest.fixture(scope="module")
def service():
    """Two environments with one worker each."""
    with Service(ENVS, workers=1) as service:
        yield service

"""Fixtures of the HTTP service's tests."""

import io
import logging

import pytest

from rlvr.http.serve import Service, queue
from tests.serve.serving import ENVS


@pytest.fixture(scope="module")
def service():
    """Two environments with one worker each."""
    with Service(ENVS, workers=1) as service:
        yield service


@pytest.fixture
def log(monkeypatch):
    """What queues log, whatever other tests have done to the loggers of this process."""
    text = io.StringIO()
    logger = logging.Logger("queues")
    logger.addHandler(logging.StreamHandler(text))
    monkeypatch.setattr(queue, "_log", logger)
    return text

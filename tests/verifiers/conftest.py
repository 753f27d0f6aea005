"""Fixtures of the verifiers' tests."""

import logging

import pytest

from rlvr.verifiers.math import engine


@pytest.fixture
def loaded_engine(monkeypatch):
    """The engine as its worker starts it; loggers go on, as this process is also that of other tests."""
    monkeypatch.setattr(logging, "disable", lambda level: None)
    engine.start()

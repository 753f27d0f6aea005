"""The hub, where it does not answer."""

import time

import pytest
from huggingface_hub import constants

from rlvr.data import hub
from rlvr.data.rows import load_dataset
from rlvr.errors import DataError


@pytest.fixture(autouse=True)
def _online(monkeypatch):
    """As far as settings go; the tests may run where they say otherwise."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_a_hub_that_does_not_answer_costs_no_retries(monkeypatch):
    """Its library tries for half a minute; what was kept here would still be found."""
    monkeypatch.setattr(hub, "_answers", lambda: False)
    began = time.process_time()
    with pytest.raises(DataError, match=r"Couldn't reach .*a local \.jsonl or \.parquet file"):
        load_dataset("nobody/has-this", "test")
    assert time.process_time() - began < 10
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_that_answers_is_used_as_ever(monkeypatch):
    monkeypatch.setattr(hub, "_answers", lambda: True)
    with hub.at_once():
        assert not constants.HF_HUB_OFFLINE

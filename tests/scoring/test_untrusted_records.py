"""A file of records is data: replaying it runs no code that the file names."""

import json

import pytest

import rlvr
from rlvr.errors import UntrustedPlace
from rlvr.scoring.records import provenance, record, replay
from tests.environments import PLACE

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("OWNED").write_text("code of a data file ran")
def nothing(): pass
class Evil: pass
"""


@pytest.fixture
def row(tmp_path):
    """A record of an environment of rlvr."""
    env = rlvr.make("arithmetic-v1")
    with rlvr.Scorer(env, workers=0) as scorer:
        [one] = scorer.stream([{"id": "a", "task": 0, "completion": "\\boxed{4}"}])

    return json.loads(json.dumps(record(one, provenance(env, "arithmetic-v1"))))


@pytest.mark.parametrize(
    "change",
    [
        {"env": "{evil}:Evil", "config": {}},
        {"env": "{evil}:nothing", "config": {}},
        {"env": "rows-v4", "config": {"verifier": "{evil}:nothing"}},
        {"env": "{evil}:Evil:0.5 gsm8k-v4:0.5", "config": {}},
        {"env": "mixture-v1", "config": {"envs": "{evil}:Evil:0.5 gsm8k-v4:0.5"}},
        {"env": "os:abort", "config": {}},
        {"env": "evil_module:Evil", "config": {}},
    ],
)
def test_a_record_runs_no_code_that_it_names(row, change, tmp_path, monkeypatch):
    """A script, a module, a function without arguments: all of them ran, before a score was compared."""
    (tmp_path / "evil_module.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    text = json.dumps(change).replace("{evil}", str(tmp_path / "evil_module.py"))
    with pytest.raises(UntrustedPlace, match="pass --allow"):
        list(replay([{**row, **json.loads(text)}], workers=0))
    assert not (tmp_path / "OWNED").exists()


def test_a_record_gives_up_no_guarantee_of_the_sandbox(row):
    """Its completion is a program, and would run with the network that the file asks for."""
    config = {"verifier": "code", "settings": {"allow_missing": ["network"]}}
    with pytest.raises(UntrustedPlace, match="allow_missing"):
        list(replay([{**row, "env": "rows-v4", "config": config}], workers=0))


def test_code_that_the_user_names_is_run():
    """The place as it stands in the records."""
    env = rlvr.make(PLACE)
    with rlvr.Scorer(env, workers=0) as scorer:
        [one] = scorer.stream([{"id": "a", "task": 1, "completion": "1"}])

    rows = [json.loads(json.dumps(record(one, provenance(env, PLACE))))]
    assert list(replay(rows, workers=0, allow=[PLACE])) == [[]]
    with pytest.raises(UntrustedPlace):
        list(replay(rows, workers=0))
    assert rlvr.make(PLACE).id == env.id  # outside of a replay nothing is refused

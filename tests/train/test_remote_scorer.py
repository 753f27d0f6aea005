"""A trainer whose rewards are computed by services on other machines, of which one dies inside a step."""

import os
import threading
import time
from pathlib import Path

import pytest

from rlvr.train.metrics import read_metrics
from tests.processes import PATIENCE_S
from tests.serve.serving import served
from tests.train import bandit
from tests.train.bandit import trainer

_VERIFIED = (
    "RLVR_TEST_VERIFIED"  # names a file that grows with every completion that the services verify
)
_PLACE = "tests.train.test_remote_scorer:Noted"
_COMPLETIONS = (
    20  # of 16 in each of six steps, over two services: it dies in the second or third step
)


class Noted(bandit.Bandit):
    """Leaves a byte for every completion, and takes its time, so that some are under way when it is killed."""

    def verify(self, task, completion):
        if path := os.environ.get(_VERIFIED):
            with Path(path).open("ab") as file:
                file.write(b".")
        time.sleep(0.01)
        return super().verify(task, completion)


@pytest.mark.slow
def test_a_service_that_dies_inside_a_step_costs_a_retry(tmp_path, monkeypatch):
    """The steps, their rewards and the weights are those of a run that scores here."""
    from tests.train.test_remote_scorer import Noted  # by the name that the services know

    with trainer(tmp_path / "here", env=Noted(), steps=6) as run:
        run.run()
        expected = {name: weight.clone() for name, weight in run.policy.model.state_dict().items()}
    seen = tmp_path / "seen"
    monkeypatch.setenv(
        _VERIFIED, str(seen)
    )  # judging reads it, so it has to be the same everywhere
    same = {_VERIFIED: str(seen)}
    with (
        served(place=_PLACE, **same) as (one, port),
        served(place=_PLACE, **same) as (_, other),
    ):
        killer = threading.Thread(target=_kill_after, args=(one, seen))
        killer.start()
        both = f"http://127.0.0.1:{port},http://127.0.0.1:{other}"
        with trainer(tmp_path / "there", env=Noted(), steps=6, scorer=both, workers=None) as run:
            run.run()
            got = run.policy.model.state_dict()
        killer.join()
    assert one.returncode == -9
    assert all((got[name] == weight).all() for name, weight in expected.items())
    rewards = [
        [row["reward"] for row in read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in ("here", "there")
    ]
    assert rewards[0] == rewards[1]
    assert len(rewards[0]) == 6


def _kill_after(process, seen):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and (not seen.exists() or seen.stat().st_size < _COMPLETIONS):
        time.sleep(0.001)
    process.kill()
    process.wait()

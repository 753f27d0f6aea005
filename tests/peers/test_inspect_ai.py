"""inspect_ai plays and scores; the scores of ours come from a service that is killed midway."""

import math

import pytest

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

from inspect_ai.solver import solver  # noqa: E402

from rlvr.interop import to_inspect  # noqa: E402
from tests.peers.digits import completion_of  # noqa: E402


@solver
def scripted(service):
    """What a model said, without one; the service is replaced once."""

    async def solve(state, generate):
        index = int(state.sample_id.rpartition("/")[2])
        if index == 250:
            service.replace()
        state.output.completion = completion_of(index)
        return state

    return solve


def test_the_scores_of_samples_are_those_of_the_command(service, env, totals, tmp_path):
    """What we fail at is unscored, and no zero."""
    task = to_inspect(env, scorer=service.url)
    task.solver = scripted(service)
    [log] = inspect_ai.eval(task, model=None, display="none", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    found = {}
    for sample in log.samples:
        [score] = sample.scores.values()
        value = float(score.value)
        found[int(sample.id.rpartition("/")[2])] = None if math.isnan(value) else value
    assert found == totals
    assert service.kills == 1

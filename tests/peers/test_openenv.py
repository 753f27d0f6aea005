"""OpenEnv's server and client over an environment of one turn; the scores come from services."""

import pytest

pytest.importorskip("openenv.core", reason="openenv-core is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

from openenv.core.generic_client import GenericEnvClient  # noqa: E402

from rlvr.http.server import ServerThread, listen, url_of  # noqa: E402
from rlvr.interop import to_openenv  # noqa: E402
from tests.peers.digits import COUNT, UNSCORED, completion_of  # noqa: E402


@pytest.fixture
def url(service, env):
    """Its protocol on our server, in a thread."""
    app = to_openenv(env, scorer=service.url).app()
    with listen("127.0.0.1", 0) as listening, ServerThread(app, listening, "openenv"):
        yield url_of(listening)


def test_the_rewards_of_steps_are_those_of_the_command(service, totals, url):
    """The service is killed midway; what we fail at is an error of the step, and never a reward."""
    rewards = dict.fromkeys(UNSCORED)
    with GenericEnvClient(base_url=url, message_timeout_s=120).sync() as client:
        for index in range(COUNT):
            if index == COUNT // 2:
                service.replace()
            if index in UNSCORED:
                continue
            client.reset(index=index)
            result = client.step({"text": completion_of(index)})
            assert result.done
            rewards[index] = result.reward
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset(index=min(UNSCORED))
        with pytest.raises(Exception, match="the verifier failed"):
            client.step({"text": completion_of(min(UNSCORED))})
    assert rewards == totals
    assert service.kills == 1

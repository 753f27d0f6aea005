"""OpenEnv's server and client over an environment of one turn; the scores come from services."""

import socket
import threading
import time

import pytest

pytest.importorskip("openenv.core", reason="openenv-core is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

import uvicorn  # noqa: E402
from openenv.core.generic_client import GenericEnvClient  # noqa: E402

from rlvr.interop import to_openenv  # noqa: E402
from tests.peers.digits import COUNT, UNSCORED, completion_of  # noqa: E402


@pytest.fixture
def url(service, env):
    """OpenEnv's server, in a thread."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = to_openenv(env, scorer=service.url).app()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=30)


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

"""A resources server of NeMo Gym, asked by the client of its agents; the scores come from a service."""

import asyncio
import json

import pytest

pytest.importorskip("nemo_gym", reason="nemo-gym is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

from aiohttp import ClientResponseError  # noqa: E402
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse  # noqa: E402
from nemo_gym.config_types import BaseServerConfig  # noqa: E402
from nemo_gym.server_utils import (  # noqa: E402
    GlobalAIOHTTPAsyncClientConfig,
    ServerClient,
    get_response_json,
    raise_for_status,
    set_global_aiohttp_client,
)
from omegaconf import OmegaConf  # noqa: E402

from tests.peers.digits import COUNT, UNSCORED, completion_of  # noqa: E402


def client_of(port: int) -> ServerClient:
    """As the configuration of a run names its servers."""
    place = {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}
    named = {"digits": {"resources_servers": {"rlvr": place}}}
    return ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create(named),
    )


def request_of(index: int) -> BaseVerifyRequest:
    """A line of a data set and the response of a model."""
    text = {"type": "output_text", "text": completion_of(index), "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    return BaseVerifyRequest.model_validate(
        {
            "responses_create_params": {"input": f"Say {7 * index}."},
            "response": {
                "id": "r", "created_at": 0.0, "model": "none", "object": "response",
                "output": [{**message, "content": [text]}],
                "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
            },
        }
    )  # fmt: skip


async def reward(client: ServerClient, index: int) -> float:
    body = json.loads(request_of(index).model_dump_json(exclude_unset=True)) | {"task": index}
    seeded = await client.post(server_name="digits", url_path="/seed_session", json=body)
    await raise_for_status(seeded)
    response = await client.post(server_name="digits", url_path="/verify", json=body)
    await raise_for_status(response)
    return BaseVerifyResponse.model_validate(await get_response_json(response)).reward


def test_rewards_are_those_of_the_command(service, totals):
    """The service is killed midway; what we fail at is an error of the request, and no reward."""

    async def scored():
        connections = set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
        client, rewards, errors = client_of(service.port), {}, {}
        for index in range(COUNT):
            if index == 250:
                await asyncio.to_thread(service.replace)
            try:
                rewards[index] = await reward(client, index)
            except ClientResponseError as error:
                rewards[index], errors[index] = None, error.response_content
        await connections.close()
        return rewards, errors

    rewards, errors = asyncio.run(scored())
    assert errors.keys() == UNSCORED
    assert all(b"the verifier failed" in error for error in errors.values())
    assert rewards == totals
    assert service.kills == 1

"""WebSockets on the HTTP foundation: who may open one, how large a message is, and that it counts as a connection."""

import time

import httpx
import pytest

client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")

from websockets.exceptions import ConnectionClosedError, InvalidStatus  # noqa: E402

from rlvr.http.application import Application, HttpState, standard_routes  # noqa: E402
from rlvr.http.keys import Keys  # noqa: E402
from rlvr.http.limits import HttpLimits  # noqa: E402
from rlvr.http.server import ServerThread, listen, url_of  # noqa: E402
from tests.processes import PATIENCE_S  # noqa: E402

KEY = {"authorization": "Bearer a-key-of-the-tests"}


async def echo(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"].upper()})


@pytest.mark.parametrize("converses", [True, False])
def test_a_conversation_is_a_request_that_lasts(converses):
    """Without a key, or where nothing converses, it is refused; its messages have the limit of bodies."""
    state = HttpState(HttpLimits(body_mib=1, held_mib=2), Keys("a-key-of-the-tests"))
    app = Application(state, standard_routes(state), websockets=echo if converses else None)
    with listen("127.0.0.1", 0) as listening, ServerThread(app, listening, "test") as server:
        url, connections = url_of(listening), server._server._connections
        place = url.replace("http", "ws") + "/ws"
        for headers in [{}, *([] if converses else [KEY])]:
            with pytest.raises(InvalidStatus, match=r"HTTP (403|401|404)"):
                client.connect(place, additional_headers=headers)
        if converses:
            with client.connect(place, additional_headers=KEY) as open_one:
                open_one.send("abc")
                assert open_one.recv() == "ABC"
                assert (state.under_way, connections.open) == (1, 1)
                assert httpx.get(f"{url}/health").json() == {"ready": True}
                open_one.send("x" * (2 << 20))
                with pytest.raises(ConnectionClosedError, match="too big"):
                    open_one.recv()
        until = time.monotonic() + PATIENCE_S
        while state.under_way or connections.open:
            assert time.monotonic() < until
            time.sleep(0.01)

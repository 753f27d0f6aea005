"""What each path of the service does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from rlvr.environment import Environment
from rlvr.errors import DataError
from rlvr.http.application import Application, Route, standard_routes
from rlvr.http.body import Body
from rlvr.http.memory import MemoryShare
from rlvr.http.openapi import with_docs
from rlvr.http.refused import Refused
from rlvr.http.request import HttpRequest, read_typed
from rlvr.http.responses import Response, json_response, while_connected
from rlvr.http.serve.interface import (
    ABOUT,
    GymReply,
    GymRequest,
    ObserveRequest,
    OpenRLHFReply,
    OpenRLHFRequest,
    RewardLine,
    RewardsRequest,
    ScoreRequest,
    ScoresReply,
    SeenRow,
)
from rlvr.http.serve.limits import ServiceLimits
from rlvr.http.serve.nemo_gym import nemo_reply, row_of
from rlvr.http.serve.openrlhf import items_of, response_of
from rlvr.http.serve.queue import EnvironmentQueue
from rlvr.http.serve.responses import ScoresResponse
from rlvr.http.serve.rewards import RewardLines, RewardModelQueue
from rlvr.http.serve.service import Service
from rlvr.scoring.identity import IDENTITY_HEADER
from rlvr.scoring.items import COLUMNS
from rlvr.scoring.wire import decoded_item

__all__ = ["app_of"]


def app_of(service: Service) -> Application:
    """The service as an ASGI application.

    Args:
        service: what the routes score with.
    """
    paths = _Paths(service)
    openrlhf = functools.partial(
        Route,
        "POST",
        handler=paths.openrlhf,
        right="score",
        reads=OpenRLHFRequest,
        answers=OpenRLHFReply,
        label="/openrlhf",
        example={
            "query": ["What is 1 + 1? It is \\boxed{2}."],
            "prompts": ["What is 1 + 1?"],
            "labels": ["2"],
        },
    )
    routes = [
        Route(
            "POST",
            "/score",
            paths.score,
            "Score completions: one entry per row, in order; as NDJSON if that is accepted.",
            right="score",
            reads=ScoreRequest,
            answers=ScoresReply,
            lines=True,
            example={
                "env": "gsm8k-v4",
                "rows": [{"completion": "It is \\boxed{1234}.", "reference": "1234"}],
            },
        ),
        Route(
            "POST",
            "/observe",
            paths.observe,
            "For scorers on other machines (rlvr.scoring.engines): what is seen of each "
            "completion.",
            right="score",
            reads=ObserveRequest,
            answers=SeenRow,
            lines=True,
        ),
        Route(
            "GET",
            "/envs",
            paths.envs,
            "What is served, in which version and with which options.",
            right="score",
            answers=dict[str, Any],
        ),
        openrlhf(
            path="/openrlhf",
            summary="The remote reward model of OpenRLHF: its --remote_rm_url.",
        ),
        openrlhf(path="/openrlhf/{env}", summary="The same, for one of several environments."),
        Route(
            "POST",
            "/verify",
            paths.verify,
            "A resources server of NeMo Gym: the reward of a response.",
            right="score",
            reads=GymRequest,
            answers=GymReply,
        ),
        Route(
            "POST",
            "/seed_session",
            paths.seed_session,
            "Asked by agents of NeMo Gym before each response; nothing is kept for it.",
            right="score",
            answers=dict[str, Any],
        ),
        Route(
            "POST",
            "/rewards",
            paths.rewards,
            "What the reward model says of completions, in [0, 1]: a line of NDJSON per row.",
            right="score",
            reads=RewardsRequest,
            answers=RewardLine,
            lines=True,
            example={"rows": [{"prompt": "What is 1 + 1?", "completion": "It is 2."}]},
        ),
        Route(
            "GET",
            "/reward-model",
            paths.reward_model,
            "Which reward model there is.",
            right="score",
            answers=dict[str, str],
        ),
        *standard_routes(
            service.http, readiness=service.readiness, update_metrics=service.update_metrics
        ),
    ]
    return Application(
        service.http,
        with_docs("rlvr", ABOUT, routes, wants_key=service.keys.any),
        update_metrics=service.update_metrics,
        on_abort=service.abort,
    )


class _Paths:
    """The handlers of the routes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def _read(self, request: HttpRequest) -> Body:
        """The body of a request that starts work."""
        self._service.http.require_accepting()
        return await self._service.http.bodies.read(request)

    async def score(self, request: HttpRequest) -> Response:
        """Score rows; with the header `Accept: application/x-ndjson` a line comes as soon as it is
        there."""
        body = await self._read(request)
        score_request = read_typed(body.asked, ScoreRequest)
        queue = self._service.queue(score_request.env)
        rows = self._take_rows(body, score_request.rows)
        # With the usual way of finding a task, only known columns are read.
        if type(queue.scorer.env).task_of is Environment.task_of:
            _drop_unread(rows)
        stream = "application/x-ndjson" in request.header(b"accept")
        return self._scores(
            request, queue, rows, score_request.request_id, body.digest, stream=stream
        )

    async def observe(self, request: HttpRequest) -> Response:
        """Look at the completions of a scorer on another machine, which combines the scores itself;
        NDJSON."""
        body = await self._read(request)
        observe_request = read_typed(body.asked, ObserveRequest)
        queue = self._service.queue_of(observe_request.identities)
        rows = self._take_rows(body, observe_request.rows)
        try:
            items = [decoded_item(row, number) for number, row in enumerate(rows, 1)]
        except DataError as error:
            raise Refused(422, "bad-item", str(error)) from None
        return self._scores(
            request,
            queue,
            items,
            observe_request.request_id,
            body.digest,
            stream=True,
            combines=False,
        )

    def _scores(
        self,
        request: HttpRequest,
        queue: EnvironmentQueue,
        rows: Sequence[object],
        request_id: str | None = None,
        digest: bytes = b"",
        *,
        stream: bool = False,
        combines: bool = True,
        shape: Callable[[Sequence[bytes]], object] | None = None,
    ) -> Response:
        """The response to rows; scorers of other machines hear beats meanwhile."""
        job = self._service.job(
            queue,
            rows,
            request.share,
            request_id=request_id,
            digest=digest,
            caller="" if request.caller is None else request.caller.name,
            combines=combines,
        )
        return ScoresResponse(
            job,
            queue,
            self._service.limits,
            stream=stream,
            shape=shape,
            beats=not combines,
            known=request.header(IDENTITY_HEADER),
            on_end=functools.partial(self._service.release, queue, job),
        )

    async def envs(self, request: HttpRequest) -> Response:
        """What is served: what scorers on other machines compare with what they have, and the
        number of workers."""
        queues = self._service.queues
        return json_response(
            {
                name: {
                    "env": queues[name].scorer.env.id,
                    "workers": queues[name].scorer.workers,
                    "identity": identity.as_dict(),
                }
                for name, identity in self._service.identities.items()
            }
        )

    async def openrlhf(self, request: HttpRequest) -> Response:
        """The remote reward model of OpenRLHF: give this address as its `--remote_rm_url`."""
        body = await self._read(request)
        queue: EnvironmentQueue = self._service.queue(request.path.get("env") or None)
        query = body.asked.get("query")
        self._require_few(query if isinstance(query, list) else [])
        items = items_of(queue.scorer.env, body.asked)
        return self._scores(request, queue, items, shape=response_of)

    async def verify(self, request: HttpRequest) -> Response:
        """What a resources server of NeMo Gym is asked."""
        body = await self._read(request)
        queue: EnvironmentQueue = self._service.queue(None)
        rows = [row_of(queue.scorer.env, body.asked)]
        return self._scores(request, queue, rows, shape=functools.partial(nemo_reply, body.asked))

    async def seed_session(self, request: HttpRequest) -> Response:
        """Tasks of one reply have no state."""
        await self._read(request)
        return json_response({})

    async def reward_model(self, request: HttpRequest) -> Response:
        """Which reward model there is, for those that ask for its scores."""
        queue = self._service.reward_queue(None)
        return json_response({"version": queue.version, "reads": queue.reads})

    async def rewards(self, request: HttpRequest) -> Response:
        """What the reward model says of completions."""
        body = await self._read(request)
        rewards_request = read_typed(body.asked, RewardsRequest)
        queue = self._service.reward_queue(rewards_request.version)
        rows = self._take_rows(body, rewards_request.rows)
        return _RewardsResponse(queue, rows, request.share, self._service.limits)

    def _take_rows(self, body: Body, rows: list[Any]) -> list[object]:
        """The rows, which the body lets go of.

        Raises:
            Refused: there are too many.
        """
        # The rows live in one list from here on, which shrinks as they are scored.
        body.asked.clear()
        self._require_few(rows)
        return rows

    def _require_few(self, rows: Sequence[object]) -> None:
        limit = self._service.limits.request_rows
        if len(rows) > limit:
            message = f"the request has {len(rows)} rows and the limit is {limit}; split it"
            raise Refused(413, "too-many-rows", message)


class _RewardsResponse:
    """Asks the reward model, and sends what it says."""

    def __init__(
        self, queue: RewardModelQueue, rows: list[object], share: MemoryShare, limits: ServiceLimits
    ) -> None:
        self._queue, self._rows, self._share, self._limits = queue, rows, share, limits
        self.status = 499

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with while_connected(receive):
            lines = RewardLines(await self._queue.lines(self._rows))
        self._share.add(sum(map(len, lines.lines)))
        # A stream, as rewards are lines.
        response = ScoresResponse(lines, None, self._limits, stream=True)
        try:
            await response(scope, receive, send)
        finally:
            self.status = response.status


def _drop_unread(rows: list[object]) -> None:
    """Drop the columns that scoring does not read, before the rows wait."""
    for row in rows:
        # Without a reference or a task the row has the columns of the environment's own data set.
        if (
            isinstance(row, dict)
            and ("reference" in row or "task" in row)
            and not row.keys() <= COLUMNS
        ):
            for name in row.keys() - COLUMNS:
                del row[name]

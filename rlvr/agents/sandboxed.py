"""Code of an agent in a session of the sandbox, which has no network: its requests
are carried over by calls.

    session: agent's thread ─▶ http://policy/v1, a Unix socket ─▶ queue ┐  a call of the session
                                                                        │  gives the
    host:    AgentEndpoint ◀── HTTP ── this module ◀────────────────────┘  requests and takes the
                                                                           answers

While the policy answers, the session stands still.  So its clocks count the agent's own work alone.
"""

from __future__ import annotations

import http.client
import json
import queue
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from rlvr.agents.programs import AgentCall, AgentFailed, require_names
from rlvr.errors import SandboxFailed, UsageError
from rlvr.sandbox import Ending, Limits, Sandbox
from rlvr.sandbox.sessions import Session, SessionReply
from rlvr.workers.thread import DaemonThread

__all__ = ["SandboxAgent"]

_MOST_AT_ONCE: Final = 64  # requests of a session that are under way
_LOOK_S: Final = 0.02  # that a call waits for further requests while others are under way
_ANSWER_BYTES: Final = 1 << 20
# A backstop: how long a policy may take is the endpoint's limit, not ours.
_ASK_S: Final = 3600.0

_GUEST: Final = r"""
import http.server, json, os, queue, socket, socketserver, sys, threading, traceback

_policy = type(sys)("_policy")

def _set_up(variables, files):
    path = os.path.abspath(".policy.sock")
    news, answers = queue.Queue(), {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode(
                "utf-8", "replace"
            )
            box = queue.Queue()
            answers[id(box)] = box
            news.put({"id": id(box), "method": self.command, "path": self.path, "body": body,
                      "authorization": self.headers.get("authorization", "")})
            status, kind, text = box.get()
            payload = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

        def get_request(self):
            request, _ = self.socket.accept()
            return request, ("policy", 0)

    class Unix(socket.socket):
        def setsockopt(self, *_):
            pass  # options of TCP

    connect = socket.create_connection

    def create_connection(address, *args, **kwargs):
        if address[0] != "policy":
            return connect(address, *args, **kwargs)
        made = Unix(socket.AF_UNIX)
        made.connect(path)
        return made

    server = Server(path, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    socket.create_connection = create_connection
    os.environ.update(variables)
    os.environ["POLICY_SOCKET"] = path
    for name, text in files.items():
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)

    def run(code):
        ended = {"ended": True, "why": ""}
        try:
            exec(compile(code, "agent.py", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            if end.code not in (None, 0):
                ended["why"] = "exit code %s" % (end.code,)
        except BaseException as error:
            traceback.print_exc()
            ended["why"] = "%s: %s" % (type(error).__name__, error)
        news.put(ended)

    def start(code):
        threading.Thread(target=run, args=(code,), daemon=True).start()

    def step(mark, given, wait_s):
        for key, answer in given:
            answers.pop(key).put(answer)
        found = []
        try:
            found.append(news.get(timeout=wait_s))
            while True:
                found.append(news.get_nowait())
        except queue.Empty:
            pass
        sys.stdout.flush()
        os.write(1, ("\n" + mark + json.dumps(found) + "\n").encode())

    _policy.start, _policy.step = start, step
    sys.modules["_policy"] = _policy

_set_up(*json.loads(SET_UP))
del _set_up
"""


@dataclass(frozen=True, kw_only=True)
class SandboxAgent:
    """Python code as an agent, in a session of the sandbox for each episode.

    It finds the variables `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `OPENAI_MODEL`, `RLVR_TASK` and
    `PROMPT` (a text, or chat messages as JSON), and a folder with `files`.  The base URL is
    http://policy/v1; what connects through `socket.create_connection` reaches it, as `urllib`,
    `http.client` and clients made of these do, and other programs by the Unix socket
    `POLICY_SOCKET`.  A stream arrives in one piece.

    Args:
        sandbox: opens the sessions.
        code: of the agent.
        files: texts that the folder begins with, by name.
        answer: what is scored: "last", the last completion; the name of a file in the folder; or a
            function of the session, which is read after the code has ended.  What the code left
            running may still change it.
        limits: of the session; its CPU and wall seconds hold for the code's own work between two
            requests.

    Raises:
        UsageError: the code is no text, or a name leaves the folder.
    """

    sandbox: Sandbox
    code: str
    files: Mapping[str, str] = field(default_factory=dict)
    answer: str | Callable[[Session], str] = "last"
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.code, str) or not self.code.strip():
            raise UsageError("code is empty; give the text of the agent's program")
        require_names([*self.files, *([self.answer] if isinstance(self.answer, str) else [])])

    def __call__(self, call: AgentCall) -> str | None:
        """Run one episode.

        Args:
            call: the episode.

        Raises:
            AgentFailed: the code raised, passed a limit, or left no answer.
            SandboxFailed: the sandbox failed.
        """
        with self.sandbox.session("python", limits=self.limits) as session:
            call.on_stop(session.kill)
            variables = {
                "OPENAI_BASE_URL": "http://policy/v1",
                "OPENAI_API_KEY": call.api_key,
                "OPENAI_MODEL": call.model,
                "RLVR_TASK": call.task,
                "PROMPT": call.prompt_text,
            }
            _ran(session, _GUEST.replace("SET_UP", repr(json.dumps([variables, dict(self.files)]))))
            _ran(session, f"import _policy\n_policy.start({self.code!r})")
            why = _Carrier(session, call).carry()
            if why:
                raise AgentFailed(why)
            if self.answer == "last":
                return None
            return self.answer(session) if callable(self.answer) else _read(session, self.answer)


class _Carrier:
    """Carries the requests of a session to the endpoint and the answers back."""

    def __init__(self, session: Session, call: AgentCall) -> None:
        self._session, self._call = session, call
        self._mark = secrets.token_hex(16)
        self._answers: queue.SimpleQueue[tuple[int, tuple[int, str, str]]] = queue.SimpleQueue()
        self._under_way = 0

    def carry(self) -> str:
        """Until the code ends; returns what went wrong with it, "" for nothing."""
        answers: list[tuple[int, tuple[int, str, str]]] = []
        while not self._call.stopped.is_set():
            wait_s = _LOOK_S if self._under_way else None
            reply = _ran(self._session, f"_policy.step({self._mark!r}, {answers!r}, {wait_s!r})")
            answers = []
            for news in self._news(reply):
                if news.get("ended"):
                    return str(news.get("why") or "")
                if self._under_way == _MOST_AT_ONCE:
                    raise AgentFailed(f"it has more than {_MOST_AT_ONCE} requests under way")
                self._under_way += 1
                DaemonThread(self._ask, news, name="agent-request", owner="agent")
            if self._under_way:
                answers.append(self._answers.get())
                while not self._answers.empty():
                    answers.append(self._answers.get())
                self._under_way -= len(answers)
        return "stopped"

    def _news(self, reply: SessionReply) -> list[dict[str, object]]:
        """What the session says; it is the agent's own word, and may be anything."""
        _, mark, text = reply.text.rpartition(self._mark)
        try:
            news = json.loads(text) if mark else None
        except (ValueError, RecursionError):
            news = None
        if not isinstance(news, list) or not all(isinstance(event, dict) for event in news):
            raise AgentFailed(f"the session no longer answers: {reply.text[-500:]}")
        return news

    def _ask(self, news: Mapping[str, object]) -> None:
        """Send a request on, with what the endpoint reads of it."""
        key, where = news.get("id"), urlsplit(self._call.base_url)
        try:
            connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=_ASK_S)
            headers = {
                "content-type": "application/json",
                "authorization": _header(news.get("authorization")),
            }
            body = str(news.get("body") or "").encode("utf-8", "replace")
            path = "/" + str(news.get("path") or "").encode("ascii", "replace").decode().lstrip("/")
            method = "GET" if news.get("method") == "GET" else "POST"
            with closing(connection):
                connection.request(
                    method, path[:500], body=None if method == "GET" else body, headers=headers
                )
                response = connection.getresponse()
                answer = (
                    response.status,
                    response.headers.get_content_type(),
                    response.read().decode("utf-8", "replace"),
                )
        except (OSError, ValueError, http.client.HTTPException) as error:
            answer = 502, "application/json", json.dumps({"error": {"message": str(error)}})
        self._answers.put((key if isinstance(key, int) else 0, answer))


def _header(value: object) -> str:
    return "".join(
        letter for letter in str(value or "") if letter.isascii() and letter.isprintable()
    )[:1000]


def _ran(session: Session, code: str) -> SessionReply:
    reply = session.run(code)
    if reply.ending is Ending.IE:
        if "killed here" in reply.why:
            raise AgentFailed("it was stopped")
        raise SandboxFailed(reply.why)
    if reply.ending is not Ending.OK:
        raise AgentFailed(f"{reply.ending.name}: {reply.why} {reply.text[-500:]}".strip())
    return reply


def _read(session: Session, name: str) -> str:
    """A file of the session's folder."""
    mark = secrets.token_hex(16)
    read = f"open({name!r}, 'rb').read({_ANSWER_BYTES}).decode('utf-8', 'replace')"
    reply = session.run(f"import os as _os\n_os.write(1, ({mark!r} + {read}).encode()) and None")
    _, separator, text = reply.text.partition(mark)
    if not separator or reply.ending is not Ending.OK:
        raise AgentFailed(f"it left no file {name!r} as its answer: {reply.text[-200:]}")
    return text

"""NeMo Gym's resources server: the responses that its agents send to `/verify` as rows
to score, and its replies.

An agent sends the fields of a line of its data set, what it asked the model in the form of OpenAI's
Responses, and the response.  Written against nemo-gym 0.4.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rlvr.environment import Environment
from rlvr.http.refused import Refused
from rlvr.types import JsonObject

__all__ = ["nemo_reply", "row_of"]

_ASKED, _RESPONSE = "responses_create_params", "response"
_ANSWER = "expected_answer"  # the column of most of its data sets
_ROLES = {"developer": "system"}
_TEXTS = ("text", "input_text", "output_text")


def row_of(env: Environment, body: Mapping[str, object]) -> dict[str, object]:
    """The row of a request.

    Args:
        env: the environment that scores it.
        body: the JSON object of the request.

    Raises:
        Refused: the reward compares completions, which come alone here, or a part has another form.
    """
    if env.reward.group_level:
        message = f"the reward {env.reward} compares completions of a group, and these come alone"
        raise Refused(422, "needs-group", message)
    asked, response = _object(body, _ASKED), _object(body, _RESPONSE)
    row = {name: value for name, value in body.items() if name not in (_ASKED, _RESPONSE)}
    # A data set's column; a row that says reference or task itself is as it is.
    if _ANSWER in row and not row.keys() & {"reference", "task"}:
        row["reference"] = row.pop(_ANSWER)
    row.pop("completion", None)
    if "reference" in row or "task" not in row:
        row.setdefault("prompt", _prompt_of(asked))
    # The reason of a cut, as OpenAI's Responses name it.
    incomplete = response.get("incomplete_details")
    row["completion"] = _completion_of(response)
    row["truncated"] = isinstance(incomplete, dict) and (
        incomplete.get("reason") == "max_output_tokens"
    )
    usage = response.get("usage")
    if isinstance(usage, dict) and isinstance(usage.get("output_tokens"), int):
        row["length_tokens"] = usage["output_tokens"]
    return row


def nemo_reply(body: Mapping[str, object], lines: Sequence[bytes]) -> dict[str, object]:
    """A request's reply: what came, `reward`, and how it was found under `rlvr`.

    Args:
        body: the JSON object of the request.
        lines: the scored row as JSON.

    Raises:
        Refused: the row could not be used, or is UNSCORED: a reply has a reward, and 0 would be
            one.
    """
    # A row of one completion gives one line.
    [score] = map(json.loads, lines)
    if "error" in score:
        raise Refused(422, "bad-row", score["error"])
    if score["total"] is None:
        message = f"the service failed at this response, so it has no reward: {score['why']}"
        raise Refused(500, "unscored", message)
    told = {name: score[name] for name in ("outcome", "why", "answer", "parts")}
    # The agent reads its own fields back, so they are repeated.
    return {**body, "reward": score["total"], "rlvr": told}


def _object(body: Mapping[str, object], name: str) -> dict[str, object]:
    value = body.get(name)
    if not isinstance(value, dict):
        kind = "missing" if value is None else f"a {type(value).__name__}"
        raise Refused(
            422, f"bad-{name}", f"{name!r} is {kind}; send an object of OpenAI's Responses"
        )
    return value


def _prompt_of(asked: JsonObject) -> list[dict[str, str]]:
    """What the model was asked as chat messages; calls of tools and their outputs are left out."""
    messages = []
    if isinstance(asked.get("instructions"), str):
        messages.append({"role": "system", "content": asked["instructions"]})
    given = asked.get("input")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for item in given if isinstance(given, list) else []:
        if isinstance(item, dict) and isinstance(item.get("role"), str):
            # "developer" is OpenAI's name of today for a system message.
            role = _ROLES.get(item["role"], item["role"])
            messages.append({"role": role, "content": _text_of(item.get("content"))})
    if not messages:
        raise Refused(422, "bad-input", "'input' has no message; send a text or a list of messages")
    return messages


def _completion_of(response: Mapping[str, object]) -> str:
    """The last message of the model; empty if it ended with a call or with nothing."""
    output = response.get("output")
    if not isinstance(output, list):
        raise Refused(422, "bad-output", "'response' has no list 'output'; send the whole response")
    for item in reversed(output):
        if isinstance(item, dict) and item.get("type") == "message":
            return _text_of(item.get("content"))
    return ""


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict)
        and part.get("type") in _TEXTS
        and isinstance(part.get("text"), str)
    )

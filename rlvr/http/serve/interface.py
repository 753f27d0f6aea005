"""What callers of the service send and get: the types of its bodies, from which
the documentation is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from rlvr.types import JsonDict

__all__ = [
    "ABOUT",
    "GymReply",
    "GymRequest",
    "MOST_ID_LETTERS",
    "ObserveRequest",
    "OpenRLHFReply",
    "OpenRLHFRequest",
    "RewardLine",
    "RewardRow",
    "RewardsRequest",
    "ScoreRequest",
    "ScoreRow",
    "ScoredRow",
    "ScoresReply",
    "SeenRow",
]

ABOUT = """Verifiable rewards over HTTP.

`total` is null exactly where `outcome` is `unscored`: the service failed, not the completion, \
and 0 would be a reward.
Every response is JSON; an error is `{"error": "…"}` and names the value, the rule and the fix."""

MOST_ID_LETTERS = 200
_ID_RULE = f"a text of 1 to {MOST_ID_LETTERS} letters"

_Name = Annotated[str, Field(min_length=1, max_length=MOST_ID_LETTERS)]


def _listed(documented: object) -> PlainValidator:
    """Checks that a value is a list, and no item of it: a row that cannot be used has an error of
    its own.

    Args:
        documented: what the documentation says of it.
    """
    return PlainValidator(_require_list, json_schema_input_type=documented)


def _require_list(value: object) -> object:
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "it must be a list")
    return value


class _Body(BaseModel):
    """A body: its frame is checked here, a row where its turn comes."""

    model_config = ConfigDict(strict=True, extra="ignore")


class ScoreRow(_Body):
    """A completion to score."""

    completion: str = Field(description="what the model wrote")
    reference: Any = Field(
        None, description="of the environment's kind; or task, or its own columns"
    )
    task: str | int = Field("", description="id or number of a task of the environment's own data")
    prompt: Any = Field(None, description="what the model was asked")
    id: str = Field(
        "", description=f"at most {MOST_ID_LETTERS} letters; by default line:1, line:2, …"
    )
    length_tokens: int = Field(0, description="for rewards that read it")
    truncated: bool = Field(False, description="whether it hit the limit of tokens")


class ScoredRow(BaseModel):
    """The score of a row, or only its id and an error."""

    id: str
    outcome: Literal["correct", "wrong", "unparsed", "unscored"]
    total: float | None = Field(description="null where unscored")
    parts: dict[str, float] = Field(description="what each part added to the total")
    value: float
    why: str = Field(description="'reason' or 'reason: text'")
    answer: str | None
    detail: dict[str, object]
    error: str = Field(
        "", description="why the row cannot be used; then only the id stands beside it"
    )


class ScoreRequest(_Body):
    """Rows to score."""

    env: _Name | None = Field(
        None, description=f"{_ID_RULE}; it may be left out where only one environment is served"
    )
    rows: Annotated[list[ScoreRow], _listed(list[ScoreRow])] = Field(
        description="a list of rows, each with its 'completion'"
    )
    request_id: _Name | None = Field(
        None, description=f"{_ID_RULE}: a request sent again with the same id is not scored again"
    )


class ScoresReply(BaseModel):
    """One entry for each row, in their order."""

    env: str
    scores: list[ScoredRow]


class ObserveRequest(_Body):
    """Items of a scorer on another machine."""

    identities: list[_Name] = Field(
        description=(
            "digests of the identities, see GET /envs, that the scorer has found to be its own"
        )
    )
    rows: Annotated[list[JsonDict], _listed(list[JsonDict])] = Field(description="a list of rows")
    request_id: _Name | None = Field(None, description=_ID_RULE)


class SeenRow(BaseModel):
    """What was seen of an item."""

    id: int
    seen: list[object]


class OpenRLHFRequest(_Body):
    """A request of OpenRLHF's remote reward model; prompts may be left out
    where queries have none."""

    query: Annotated[list[str], _listed(list[str])] = Field([], description="a list of texts")
    prompts: Annotated[list[str], _listed(list[str])] = Field([], description="a list of texts")
    labels: Annotated[list[Any], _listed(list[Any])] = Field([], description="a list of references")


class OpenRLHFReply(BaseModel):
    """Its reply; null where a row is unscored."""

    rewards: list[float | None]
    scores: list[float | None]
    extra_logs: dict[str, object]


class GymRequest(_Body):
    """A line of a data set of NeMo Gym, with the response of a model; its other fields
    are the columns of the row."""

    responses_create_params: dict[str, object] = Field(description="what the model was asked")
    response: dict[str, object] = Field(description="what it answered, as OpenAI's Responses")
    expected_answer: object = Field(
        None, description="the reference, unless there is a 'reference'"
    )


class GymReply(BaseModel):
    """The request's fields, and these; where the service fails there is an error and no reward."""

    reward: float
    rlvr: JsonDict = Field(description="outcome, why, answer and parts of the score")


class RewardRow(_Body):
    """A completion for the reward model."""

    prompt: Any
    completion: str = ""
    steps: list[str] = Field([], description="instead, for a model that judges steps")
    id: str = ""


class RewardsRequest(_Body):
    """Rows for the reward model."""

    rows: Annotated[list[RewardRow], _listed(list[RewardRow])] = Field(description="a list of rows")
    version: _Name | None = Field(
        None, description=f"{_ID_RULE}: of the model that is expected; another one answers 503"
    )


class RewardLine(BaseModel):
    """What the reward model says of a row."""

    id: str
    reward: float = Field(0.0, ge=0, le=1)
    rewards: list[float] = Field([], description="of each step")
    error: str = ""

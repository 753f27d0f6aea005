"""OpenRLHF: an environment as the `reward_func` of a file given to `--remote_rm_url`,
or behind a reward server.

    # reward.py
    import rlvr
    from rlvr.interop import to_openrlhf
    reward_func = to_openrlhf(rlvr.make("gsm8k-v4"))

The convention of OpenRLHF 0.9.3 and later: `f(queries, prompts, labels) -> {"rewards", "scores",
"extra_logs"}`, tensors of one value per query.  Earlier versions took plain functions only
(docs/using/openrlhf.md).  A query is the prompt and the completion, decoded with special tokens;
prompt and special tokens are cut off here.

The names of the request's and the reply's fields stand in this module alone: `work_of` reads a
request and `reply_of` makes a reply, for the reward function as well as for `rlvr serve`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rlvr.data.rows import as_dataset
from rlvr.environment import Environment
from rlvr.errors import DataError, brief
from rlvr.interop.adapter import (
    TASK,
    Adapter,
    CountTokens,
    completion_with_length,
    finite_tasks,
    refuse_group_reward,
    require_unscored,
    reward_value,
    score_batch,
    task_as_json,
    task_of,
)
from rlvr.scoring import MEMORY_MIB, WALL_S, Scorer
from rlvr.types import Completion, JsonDict, JsonObject, Outcome, Task

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = [
    "ENDS",
    "OpenRLHFReward",
    "completion_in_query",
    "remote_reply",
    "reply_of",
    "to_openrlhf",
    "work_of",
]

ENDS: Final = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<\N{FULLWIDTH VERTICAL LINE}end\u2581of\u2581sentence\N{FULLWIDTH VERTICAL LINE}>",
    "</s>",
    "<eos>",
    "<pad>",
    "<|pad|>",
    "[PAD]",
)
"""Special tokens for the end of a turn and for padding, of well-known models."""

# padding and the like, before the prompt
_BEFORE: Final = re.compile(r"(?:\s|<[^<>\s]{1,40}>|\[[A-Z_]{1,20}\])*")


def to_openrlhf(
    env: Environment,
    *,
    unscored: float | None = None,
    count_tokens: CountTokens | None = None,
    ends: Sequence[str] = ENDS,
    workers: int | None = 2,
    wall_s: float = WALL_S,
    memory_mib: int | None = MEMORY_MIB,
    scorer: str | None = None,
) -> OpenRLHFReward:
    """An environment as OpenRLHF's `reward_func`.

    Args:
        env: a single-turn environment whose reward does not compare the completions of a group:
            OpenRLHF asks for one completion at a time.
        unscored: the reward for UNSCORED completions, which OpenRLHF cannot mask.  None raises:
            OpenRLHF logs that, and its step then fails because the reward is missing.
        count_tokens: from a completion's text to its number of tokens, for a reward that reads the
            length; OpenRLHF passes on the text alone.
        ends: special tokens to cut off the end of a completion.
        workers, wall_s, memory_mib: see `rlvr.Scorer`.  Few workers by default, since the process
            of each vLLM engine has workers of its own.
        scorer: services that score instead of workers here, such as `"http://10.0.0.7:8000"`,
            as `--scorer` takes them.

    Raises:
        UsageError: the reward compares the completions of a group, or a setting cannot work.
    """
    refuse_group_reward(env, "OpenRLHF")
    settings: dict[str, object] = {"workers": workers, "wall_s": wall_s, "memory_mib": memory_mib}
    settings["scorer"] = scorer
    return OpenRLHFReward(env, unscored=unscored, count_tokens=count_tokens, ends=ends, **settings)


class OpenRLHFReward(Adapter):
    """OpenRLHF's `reward_func`; made by `to_openrlhf`.

    Args:
        env, unscored, count_tokens, ends, settings: see `to_openrlhf`; its other arguments are the
            settings.
    """

    def __init__(
        self,
        env: Environment,
        *,
        unscored: float | None,
        count_tokens: CountTokens | None,
        ends: Sequence[str],
        **settings: Any,
    ) -> None:
        super().__init__(env, **settings)
        self.__name__ = "reward_func"
        require_unscored(unscored)
        self._options: JsonDict = {
            "unscored": unscored,
            "count_tokens": count_tokens,
            "ends": tuple(ends),
        }

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: object
    ) -> dict[str, object]:
        """Score a batch of any size.

        Args:
            queries: prompt and completion of each, decoded with special tokens.
            prompts: the prompt of each.
            labels: what `rows` wrote for each, or its reference.

        Returns:
            `rewards`, the totals; `scores`, 1 for CORRECT, else 0, for dynamic filtering;
            `extra_logs`, the parts and outcomes.  All are float64 tensors of shape [queries], which
            hold the totals exactly.
        """
        import torch

        reply = remote_reply(
            self.scorer, {"query": queries, "prompts": prompts, "labels": labels}, **self._options
        )
        exact = partial(torch.tensor, dtype=torch.float64)
        logs = {name: exact(values) for name, values in reply["extra_logs"].items()}
        return {
            "rewards": exact(reply["rewards"]),
            "scores": exact(reply["scores"]),
            "extra_logs": logs,
        }

    def rows(self, *, tasks: int | None = None) -> Iterator[JsonDict]:
        """Rows for `--input_key prompt --label_key label`; with a chat template,
        `--apply_chat_template`.

        Args:
            tasks: number of tasks; None for all of a finite split.
        """
        for task in finite_tasks(self.env, tasks):
            yield {"prompt": task.prompt, "label": task_as_json(task)}

    def to_dataset(self, *, tasks: int | None = None) -> Dataset:
        """`rows` as a `datasets.Dataset`; its `to_json` writes what `--prompt_data` reads.

        Args:
            tasks: see `rows`.
        """
        return as_dataset(self.rows(tasks=tasks))


def remote_reply(
    scorer: Scorer,
    request: Mapping[str, object],
    *,
    unscored: float | None = None,
    count_tokens: CountTokens | None = None,
    ends: Sequence[str] = ENDS,
) -> JsonDict:
    """The reply of a remote reward server to OpenRLHF: lists where `reward_func` has tensors.

    Args:
        scorer: of the environment to score with.
        request: `query` (or `queries`), `prompts` and `labels`, lists of one length.
        unscored, count_tokens, ends: see `to_openrlhf`.

    Raises:
        DataError: the request does not have this shape, a query does not hold its prompt, or a
            label is no reference.
        UsageError: the reward compares the completions of a group, or `unscored` is no finite
            number.
        Unscored: a completion is UNSCORED and `unscored` is None.
    """
    env = scorer.env
    refuse_group_reward(env, "OpenRLHF")
    require_unscored(unscored)
    work = work_of(env, request, count_tokens=count_tokens, ends=ends)
    scores = score_batch(scorer, work)
    outcomes = {
        str(name): [float(score.verdict.outcome is name) for score in scores] for name in Outcome
    }
    return reply_of(
        rewards=[
            reward_value(task, score, unscored)
            for (task, _), score in zip(work, scores, strict=True)
        ],
        correct=outcomes[str(Outcome.CORRECT)],
        parts={name: [score.parts.get(name, 0.0) for score in scores] for name in env.reward.names},
        logs=outcomes,
    )


def reply_of(
    *,
    rewards: Sequence[float | None],
    correct: Sequence[float | None],
    parts: Mapping[str, Sequence[float]],
    logs: Mapping[str, Sequence[float]],
) -> dict[str, object]:
    """A reply in OpenRLHF's shape; each list has one value per query.

    Args:
        rewards: the numbers to train on.
        correct: 1 for CORRECT, else 0, for dynamic filtering.
        parts: of the reward, by the part's name.
        logs: further numbers to log, by name.
    """
    extra = {f"part/{name}": values for name, values in parts.items()}
    return {"rewards": rewards, "scores": correct, "extra_logs": {**extra, **logs}}


def work_of(
    env: Environment,
    request: Mapping[str, object],
    *,
    count_tokens: CountTokens | None = None,
    ends: Sequence[str] = ENDS,
) -> list[tuple[Task, Completion]]:
    """The tasks and completions of a request.

    Args:
        env: the environment to score with.
        request, count_tokens, ends: see `remote_reply`.

    Raises:
        DataError: see `remote_reply`.
        UsageError: the reward reads the length, and there is no `count_tokens`.
    """
    return [
        (
            _task(env, label, prompt),
            completion_with_length(env, completion_in_query(query, prompt, ends), count_tokens),
        )
        for query, prompt, label in _read_request_rows(request)
    ]


def _read_request_rows(request: JsonObject) -> Iterator[tuple[str, str, object]]:
    if not isinstance(request, Mapping):
        raise DataError(
            f"the request is {brief(request)}; it must map 'query', 'prompts' and 'labels' to lists"
        )
    queries = request.get("query", request.get("queries"))
    prompts, labels = request.get("prompts"), request.get("labels")
    for name, values in (("query", queries), ("prompts", prompts), ("labels", labels)):
        if not isinstance(values, (list, tuple)):
            raise DataError(
                f"{name!r} is {brief(values)}; it must be a list, with one entry for each "
                f"completion"
            )
    assert queries is not None
    assert prompts is not None
    assert labels is not None
    if not len(queries) == len(prompts) == len(labels):
        raise DataError(
            f"{len(queries)} queries, {len(prompts)} prompts and {len(labels)} labels; as many of "
            f"each"
        )
    for query, prompt, label in zip(queries, prompts, labels, strict=True):
        if not isinstance(query, str) or not isinstance(prompt, str):
            raise DataError(
                f"a query is {brief(query)}, its prompt {brief(prompt)}; both must be texts"
            )
        yield query, prompt, label


def _task(env: Environment, label: object, prompt: str) -> Task:
    """The label's task: `rows` wrote it, or the label is the reference in a data set of the user's
    own."""
    if isinstance(label, str) and label.startswith('{"id": ') and '"reference": ' in label:
        return task_of(env, {TASK: label})
    if label is None or label == "":
        raise DataError("a label is missing; name its column in --label_key")
    return task_of(env, {"reference": label, "prompt": prompt})


def completion_in_query(query: str, prompt: str, ends: Sequence[str] = ENDS) -> str:
    """The completion in a query: what follows the prompt, without the special tokens at its end.

    The tokenizer may have changed white space in the prompt and put tokens before it.  Any other
    difference is refused, since what is left of a prompt would be scored as the model's own words.

    Args:
        query: prompt and completion, decoded with special tokens.
        prompt: the prompt.
        ends: special tokens to cut off the end.

    Raises:
        DataError: the prompt is not there: OpenRLHF cut it short, or the tokenizer changes more
            than white space.
    """
    start = _end_of(prompt, query)
    if start is None:
        raise DataError(
            f"the query begins with {query[:60]!r} and does not hold its prompt, {prompt[:60]!r}…; "
            "raise --prompt_max_len (--max_len) if prompts are cut short"
        )
    stop = len(query)
    while True:
        at = stop
        while at > start and query[at - 1].isspace():
            at -= 1
        end = next((end for end in ends if end and query.endswith(end, start, at)), None)
        if end is None:
            return query[start:stop]
        stop = at - len(end)


def _end_of(prompt: str, query: str) -> int | None:
    """The position after the prompt at the query's beginning, white space and special tokens aside;
    None if absent."""
    at = query.find(prompt)
    if at >= 0:
        return at + len(prompt) if _BEFORE.fullmatch(query, 0, at) else None
    squeezed = "".join(prompt.split())
    places = [i for i, character in enumerate(query) if not character.isspace()]
    at = "".join(query[i] for i in places).find(squeezed)
    if at < 0 or not squeezed or not _BEFORE.fullmatch(query, 0, places[at]):
        return None
    return places[at + len(squeezed) - 1] + 1

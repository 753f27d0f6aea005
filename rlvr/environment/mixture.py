"""Several environments as one: each task comes from one of them, with its own
prompt, verifier and reward.

    env = rlvr.Mixture(envs={"arithmetic-v1": 0.5, "gsm8k-v4": 0.5}) env =
    rlvr.Mixture(envs=[Share("arithmetic-v1", 3, options={"difficulty": 4}, group_size=16),
    Share(my_env)]) env = rlvr.make("arithmetic-v1:0.5,difficulty=4 gsm8k-v4:0.5", temperature=2.0)

The environment itself only numbers the tasks of all, one of each in turn.  Which are sampled next,
by weights and by a curriculum, is decided by `rlvr.collect.mixing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from functools import cached_property
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from rlvr.environment.base import Environment
from rlvr.environment.episode import Episode, TurnsEpisode
from rlvr.environment.registry import SHARE, defaults_of, make, read_option, register
from rlvr.errors import DataError, UsageError, brief
from rlvr.rewards import Bounds, Observation, Reward
from rlvr.types import Completion, JsonDict, Score, Task, Verdict
from rlvr.validate import (
    nearest,
    require_number,
    require_one_of,
    require_optional_whole,
    require_whole,
)

if TYPE_CHECKING:
    from rlvr.data.lines import Row

__all__ = ["Curriculum", "Mixture", "Share", "shares_of"]


@dataclass(frozen=True, slots=True)
class Share:
    """One environment of a mixture.

    Args:
        env: the environment, or what `rlvr.make` takes to make it.
        weight: its part of the tasks, relative to the other weights; above 0.
        name: of the environment in task ids and metrics, unique in the mixture; None for the
            environment's id.
        options: of the environment, if `env` is an id.
        group_size: rollouts per task in training; None for that of the run.
        max_tokens: most tokens of a completion; None for that of the run.

    Raises:
        UsageError: a value is out of range.
    """

    env: str | Environment
    weight: float = 1.0
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    group_size: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        where = self.env if isinstance(self.env, str) else getattr(self.env, "id", brief(self.env))
        if not isinstance(self.env, (str, Environment)):
            raise UsageError(
                f"a mixture holds {brief(self.env)}; give ids of environments, or environments"
            )
        require_number(f"the weight of {where}", self.weight, above=0)
        require_optional_whole(f"group_size of {where}", self.group_size, 1, none="that of the run")
        require_optional_whole(f"max_tokens of {where}", self.max_tokens, 1, none="that of the run")
        if isinstance(self.env, Environment) and self.options:
            raise UsageError(
                f"{where} is made already and takes no options; give them where it is made, or its "
                f"id"
            )


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Which tasks come again, by the pass rate of their last group: the share of CORRECT
    among its scored rollouts.

    A solved task is dropped, until every task of the mixture is solved; then all begin anew.  A
    hopeless task is delayed and tried again later.  An environment all of whose recent groups were
    solved or hopeless keeps a part of its weight only, so that it is looked at again; this is what
    counts where tasks are generated without end.

    Args:
        solved: pass rate from which a task is solved, above `hopeless`.
        hopeless: pass rate up to which a task is hopeless.
        delay: further tasks of its environment before a hopeless task is tried again.  It doubles
            each time in a row.
        longest_delay: the delay grows no longer than this.
        window: number of an environment's last groups whose mean pass rate decides on its weight.
        rest: part of its weight that an environment keeps while that mean is solved or hopeless, in
            (0, 1].

    Raises:
        UsageError: a value is out of range.
    """

    solved: float = 1.0
    hopeless: float = 0.0
    delay: int = 100
    longest_delay: int = 10_000
    window: int = 32
    rest: float = 0.1

    def __post_init__(self) -> None:
        require_number("hopeless", self.hopeless, 0, 1)
        require_number("solved", self.solved, 0, 1)
        if self.solved <= self.hopeless:
            raise UsageError(
                f"solved is {self.solved:g} and hopeless is {self.hopeless:g}; solved must be the "
                f"greater"
            )
        require_whole("delay", self.delay, 1)
        require_whole("longest_delay", self.longest_delay, self.delay)
        require_whole("window", self.window, 1)
        require_number("rest", self.rest, 0, 1)
        if self.rest == 0:
            raise UsageError(
                "rest is 0, so that an environment which is left out never comes back; give 0.1, "
                "say"
            )


@register("mixture-v1")
class Mixture(Environment):
    """Several environments as one, of any number of turns, each with its own
    group size, tokens and tools.

    Task ids are those of the environments, with the name and a colon before them.  Task numbers go
    round: one of each environment that still has one.

    Options:
        envs: the environments: a mapping from id to weight; or a sequence of `Share` objects, of
            mappings with their fields, of (id, weight) or of ids.
        temperature: flattens the weights, to weight ** (1 / temperature): 1 keeps them, infinity
            makes all equal.
        curriculum: a `Curriculum`, or a mapping with its fields; None: every task comes once in
            each epoch.
    """

    domain = "several"
    envs: object = ()
    temperature: float = 1.0
    curriculum: Any = None

    def __post_init__(self) -> None:
        shares = [_share(share_like) for share_like in _list_envs(self.envs)]
        if not shares:
            raise UsageError(
                "a mixture needs environments: Mixture(envs={'arithmetic-v1': 0.5, 'gsm8k-v4': "
                "0.5})"
            )
        if self.temperature != float("inf"):
            require_number("temperature", self.temperature, above=0)
        if isinstance(self.curriculum, Mapping):
            self.curriculum = _make_part("curriculum", Curriculum, self.curriculum)
        if self.curriculum is not None and not isinstance(self.curriculum, Curriculum):
            raise UsageError(
                f"curriculum is {brief(self.curriculum)}; give rlvr.Curriculum(), or None"
            )
        self._set(_name_share(share, self.split) for share in shares)

    def _set(self, shares: Any) -> None:
        self._shares: dict[str, Share] = {}
        for share in shares:
            if share.name in self._shares:
                raise UsageError(
                    f"two environments of the mixture are named {share.name!r}; give one another "
                    f"name=…"
                )
            self._shares[share.name] = share
        members = self.members.values()
        single_turn = all(env.single_turn for env in members)
        self.plays = Episode if single_turn else TurnsEpisode  # type: ignore[misc]
        self.reward = _Routed(  # type: ignore[misc]
            tuple((name, self.env_of(name).reward) for name in self.shares)
        )
        self.max_concurrent = max(  # type: ignore[misc]
            (env.max_concurrent for env in members if env.is_async),
            default=64,
        )

    @property
    def config(self) -> JsonDict:
        """The options, as plain JSON; an environment that was given as an object stands there as
        its id and options."""
        described: JsonDict = {
            "envs": [self._describe_share(share) for share in _list_envs(self.envs)]
        }
        if self.split != "train":
            described["split"] = self.split
        if self.temperature != 1.0:
            described["temperature"] = self.temperature
        if self.curriculum is not None:
            described["curriculum"] = asdict(self.curriculum)
        if self._reward_text:
            described["reward"] = self._reward_text
        return described

    @staticmethod
    def _describe_share(given: object) -> dict[str, object]:
        share = _share(given)
        env, options = share.env, share.options
        if isinstance(env, Environment):
            options, env = env.config, env.id
        fields = {"env": env, "weight": share.weight, "name": share.name, "options": dict(options)}
        return fields | {"group_size": share.group_size, "max_tokens": share.max_tokens}

    @property
    def rows_left_out(self) -> Mapping[str, int]:
        by_member = {name: self.env_of(name).rows_left_out for name in self.shares}
        return {f"{name}: {why}": n for name, rows in by_member.items() for why, n in rows.items()}

    def stop_at_bad_rows(self) -> None:
        for name in self.shares:
            self.env_of(name).stop_at_bad_rows()

    @property
    def shares(self) -> Mapping[str, Share]:
        return self._shares

    @property
    def members(self) -> Mapping[str, Environment]:
        return {name: self.env_of(name) for name in self._shares}

    def env_of(self, name: str) -> Environment:
        """The environment with this name.

        Args:
            name: of a share.
        """
        env = self._shares[name].env
        assert isinstance(env, Environment)
        return env

    def each(self, change: Callable[[Share | None, Environment], Environment]) -> Mixture:
        """A copy in which each environment is replaced, for example by one with another reward.

        Args:
            change: a function of a share and its environment that gives the other environment.
        """
        copy = self._copy()
        copy._set(
            replace(share, env=change(share, self.env_of(name)))
            for name, share in self.shares.items()
        )
        return copy

    def with_reward(self, reward: Reward) -> Any:
        """Refused: each environment has its own reward; see `each`.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "a mixture has the rewards of its environments; change them by mixture.each(lambda "
            "share, env: env.with_reward(env.reward + …))"
        )

    def with_reward_text(self, text: str, load: Callable[[str], object]) -> Mixture:
        """A copy in which the reward of each environment is what the expression says.

        Args:
            text, load: see `parse_reward`; `reward` and `correct` are those of each environment.
        """
        copy = self.each(lambda _, env: env.with_reward_text(text, load))
        copy._reward_text = text  # type: ignore[misc]
        return copy

    @property
    def weights(self) -> dict[str, float]:
        """The part of each environment in the tasks, by name, after `temperature`; they sum to
        1."""
        raw = {name: share.weight ** (1 / self.temperature) for name, share in self.shares.items()}
        total = sum(raw.values())
        return {name: weight / total for name, weight in raw.items()}

    # ------------------------------------------------------------------------------ tasks by number

    @cached_property
    def _rounds(self) -> list[tuple[int, int | None, list[str]]]:
        """(first round, end, names that still have tasks) of each stretch of rounds; the end is
        None for ever."""
        sizes = {name: self.env_of(name).size for name in self.shares}
        empty = [name for name, size in sizes.items() if size == 0]
        if empty:
            raise UsageError(
                f"{empty[0]} has no tasks in split {self.split!r}; leave it out of the mixture"
            )
        ends = sorted({size for size in sizes.values() if size is not None})
        rounds: list[tuple[int, int | None, list[str]]] = []
        for first, end in zip([0, *ends], [*ends, None], strict=True):
            names = [name for name, size in sizes.items() if size is None or size > first]
            if names:
                rounds.append((first, end, names))
        return rounds

    @property
    def size(self) -> int | None:
        """Number of tasks of all environments; None if one of them generates tasks without end."""
        sizes = [self.env_of(name).size for name in self.shares]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def first(self, limit: int | None) -> int | None:
        """How many task numbers hold the first tasks of every environment.

        Args:
            limit: greatest number of tasks of each environment; None for all.

        Returns:
            The number; None without a limit if an environment generates tasks without end.
        """
        if limit is None:
            return self.size
        sizes = [self.env_of(name).size for name in self.shares]
        return sum(limit if size is None else min(limit, size) for size in sizes)

    def draw(self, count: int, rng: Random) -> Sequence[int]:
        return range(self.first(count) or 0)

    def locate(self, index: int) -> tuple[str, int]:
        """The environment's name and its own task number.

        Args:
            index: number of a task of the mixture, from 0.

        Raises:
            IndexError: there is no such task.
        """
        place_left = index
        for first, end, names in self._rounds:
            if place_left >= 0 and (end is None or place_left < (end - first) * len(names)):
                turn, place = divmod(place_left, len(names))
                return names[place], first + turn
            if end is not None:
                place_left -= (end - first) * len(names)
        raise IndexError(
            f"{self.id} has {self.size} tasks in split {self.split!r}; there is no task {index}"
        )

    def number(self, name: str, index: int) -> int:
        """The inverse of `locate`.

        Args:
            name: of the environment.
            index: of its task.
        """
        passed = 0
        for first, end, names in self._rounds:
            if end is None or index < end:
                return passed + (index - first) * len(names) + names.index(name)
            passed += (end - first) * len(names)
        raise IndexError(f"{name} has no task {index}")

    def task(self, index: int) -> Task:
        name, member_index = self.locate(index)
        return _outer(name, self.env_of(name).find(member_index))

    def tasks(self) -> Iterator[Task]:
        return map(self.task, count() if self.size is None else range(self.size))

    def find(self, task: str | int) -> Task:
        if not isinstance(task, str):
            return super().find(task)
        name, member_id = self._split(task)
        return _outer(name, self.env_of(name).find(member_id))

    def share_of(self, task: Task) -> Share:
        """The share whose environment a task comes from.

        Args:
            task: of this mixture.
        """
        return self.shares[self._split(task.id)[0]]

    def task_of(self, row: Row) -> Task:
        if not isinstance(row.get("task"), str):
            return super().task_of(row) if "reference" not in row else self._no_name(row)
        name, member_id = self._split(row["task"])
        return _outer(name, self.env_of(name).task_of({**row, "task": member_id}))

    def read_task(self, task: Task) -> None:
        env, inner = self.route(task)
        env.read_task(inner)

    def _no_name(self, row: Mapping[str, object]) -> Task:
        raise DataError(
            f"no column 'task', which says of which environment it is: {', '.join(self.shares)}"
        )

    def _split(self, id: str) -> tuple[str, str]:
        name, colon, member_id = id.partition(":")
        if not colon or name not in self.shares:
            raise DataError(
                f"task {id!r} is of none of {', '.join(self.shares)}; its id must begin with NAME:"
            )
        return name, member_id

    def name_of(self, task: Task) -> str:
        return self._split(task.id)[0]

    def example(self, task: Task) -> str | None:
        env, inner = self.route(task)
        return env.example(inner)

    def example_episode(self, task: Task) -> Any:
        env, inner = self.route(task)
        return env.example_episode(inner)

    def open(self, task: Task) -> Episode:
        env, inner = self.route(task)
        return env.open(inner)

    # --------------------------------------------------------------------------------------- scores

    def route(self, task: Task) -> tuple[Environment, Task]:
        name, member_id = self._split(task.id)
        return self.env_of(name), replace(task, id=member_id)

    def verify(self, task: Task, completion: str) -> Any:
        env, inner = self.route(task)
        return env.verify(inner, completion)

    @property
    def is_async(self) -> bool:
        return any(self.env_of(name).is_async for name in self.shares)

    async def aobserve(self, task: Task, completion: Completion) -> Observation:
        env, inner = self.route(task)
        return await env.aobserve(inner, completion)

    def without_tasks(self) -> Mixture:
        copy = super().without_tasks()
        copy.__dict__.pop("_rounds", None)
        members = {
            name: replace(share, env=self.env_of(name).without_tasks())
            for name, share in self.shares.items()
        }
        copy._shares, copy.envs = members, ()
        return copy


@dataclass(frozen=True)
class _Routed(Reward):
    """The rewards of a mixture's environments; a task's id says which one counts."""

    rewards: tuple[tuple[str, Reward], ...]

    @property
    def bounds(self) -> Bounds:
        bounds = [reward.bounds for _, reward in self.rewards]
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for _, reward in self.rewards for name in reward.names))

    @property
    def leaves(self) -> Any:
        return tuple(leaf for _, reward in self.rewards for leaf in reward.leaves)

    @property
    def primary(self) -> None:
        """None: each environment has its own."""
        return None

    def evaluate(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        raise UsageError(f"{self} cannot be evaluated without a task")

    async def acombine(
        self, task: Task, completions: Sequence[Completion], observations: Sequence[Observation]
    ) -> list[Score]:
        name, _, member_id = task.id.partition(":")
        return await dict(self.rewards)[name].acombine(
            replace(task, id=member_id), completions, observations
        )

    async def aobserve(self, task: Task, completion: Completion, verdict: Verdict) -> Observation:
        name, _, member_id = task.id.partition(":")
        return await dict(self.rewards)[name].aobserve(
            replace(task, id=member_id), completion, verdict
        )

    def __str__(self) -> str:
        return "{" + ", ".join(f"{name}: {reward}" for name, reward in self.rewards) + "}"


def _outer(name: str, task: Task) -> Task:
    return replace(task, id=f"{name}:{task.id}")


def _list_envs(envs: object) -> list[Any]:
    if isinstance(envs, Mapping):
        return list(envs.items())
    if isinstance(envs, str):
        return list(shares_of(envs))
    if not isinstance(envs, Sequence):
        raise UsageError(
            f"envs is {brief(envs)}; give a mapping from id to weight, or a list of rlvr.Share(…)"
        )
    return list(envs)


def _share(given: Any) -> Share:
    if isinstance(given, Share):
        return given
    if isinstance(given, Mapping):
        share: Share = _make_part("envs", Share, given)
        return share
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return Share(*given)
    return Share(given)


def _make_part(what: str, kind: Any, given: Mapping[str, object]) -> Any:
    fields_of_kind = kind.__dataclass_fields__
    for name in given:
        if name not in fields_of_kind:
            raise UsageError(
                f"{what} has no field {name!r}; there are "
                f"{', '.join(fields_of_kind)}{nearest(name, fields_of_kind)}"
            )
    if kind is Share and "env" not in given:
        raise UsageError(f"{what} holds {brief(dict(given))}, which names no environment in 'env'")
    return kind(**given)


def _name_share(share: Share, split: str) -> Share:
    """With the environment itself in place of its id, and with its name."""
    env = share.env
    if not isinstance(env, Environment):
        env = make(env, **{"split": split, **share.options})
    if env.shares:
        raise UsageError(f"{env.id} is a mixture itself; name its environments one by one")
    name = env.id if share.name is None else share.name
    if not name or ":" in name or name != "".join(name.split()):
        raise UsageError(
            f"an environment of the mixture is named {name!r}; give it a name without spaces and "
            f"colons"
        )
    return replace(share, env=env, name=name, options={})


# ------------------------------------------------------------------------------ written in one line

_FIELDS = ("group_size", "max_tokens", "name")


def shares_of(line: str) -> tuple[Share, ...]:
    """The shares of a mixture that is written in one line.

    Args:
        line: `ENV:WEIGHT` of each, separated by spaces; after a comma options of the environment,
            and `group_size`, `max_tokens` and `name` of the share:
            "arithmetic-v1:0.5,difficulty=4,group_size=16 gsm8k-v4:0.5".

    Raises:
        UsageError: a piece has another form.
        UnknownEnvironment: there is no such environment.
    """
    return tuple(map(_read_spec, line.split()))


def _read_spec(piece: str) -> Share:
    match = SHARE.fullmatch(piece)
    if match is None:
        raise UsageError(
            f"{piece!r} in a mixture: write ENV:WEIGHT, such as gsm8k-v4:0.5, with options after a "
            f"comma"
        )
    env = match["env"]
    defaults, fields, options = defaults_of(env), {}, {}
    for pair in (match["rest"] or ",")[1:].split(","):
        name, equals, value = pair.partition("=")
        if not pair:
            continue
        if not equals:
            raise UsageError(f"{piece!r} in a mixture: {pair!r} is no NAME=VALUE")
        if name in _FIELDS and name not in defaults:
            fields[name] = read_option(f"{env}: {name}", "" if name == "name" else None, value)
            continue
        require_one_of(f"{piece!r} in a mixture: an option of {env}", name, defaults)
        options[name] = read_option(f"{env}: {name}", defaults.get(name, MISSING), value)
    return Share(env, float(match["weight"]), options=options, **fields)

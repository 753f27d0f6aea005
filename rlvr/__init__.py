"""rlvr: verifiable rewards for reinforcement learning of language models.

    env = rlvr.make("gsm8k-v4")
    for scored in rlvr.score(env, rows, workers=2): ...

These names are the core; importing them loads neither torch, transformers, datasets nor sympy.
Verifiers and environments are in `rlvr.verifiers` and `rlvr.envs`.
"""

from pathlib import Path as _Path

# In a source checkout the folders envs/, verifiers/ and sandbox/ are beside rlvr/, not inside it.
# Adding the root of the checkout to this package's search path makes `rlvr.envs` and the others
# importable.  A wheel has them inside.
_root = _Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "verifiers").is_dir():
    __path__.append(str(_root))

from rlvr.extras import explain_missing as _explain_missing  # noqa: E402

_explain_missing()  # before a room that needs an extra is imported

from rlvr.environment import (  # noqa: E402
    Curriculum,
    Environment,
    Episode,
    EpisodeLimits,
    Mixture,
    RowsEnv,
    Share,
    Tool,
    environment_ids,
    make,
    register,
    seeded,
    tool,
)
from rlvr.episode import Ask, EpisodeRecord, PolicyTurn, ToolCall  # noqa: E402
from rlvr.errors import (  # noqa: E402
    DataError,
    MissingDependency,
    NonConforming,
    RewardError,
    RlvrError,
    ToolError,
    UnknownEnvironment,
    Unscored,
    UntrustedPlace,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from rlvr.rewards import (  # noqa: E402
    Correct,
    Format,
    GroupPart,
    Language,
    Length,
    Majority,
    Overlong,
    Part,
    RelativeLength,
    Repetition,
    Reward,
    Rubric,
)
from rlvr.scoring import Item, Scored, Scorer, replay, score  # noqa: E402
from rlvr.types import (  # noqa: E402
    Completion,
    Group,
    Outcome,
    Rollout,
    Score,
    Task,
    Turn,
    Verdict,
    Verifier,
)

__all__ = [
    "Ask",
    "Completion",
    "Correct",
    "Curriculum",
    "DataError",
    "Environment",
    "Episode",
    "EpisodeLimits",
    "EpisodeRecord",
    "Format",
    "Group",
    "GroupPart",
    "Item",
    "Language",
    "Length",
    "Majority",
    "MissingDependency",
    "Mixture",
    "NonConforming",
    "Outcome",
    "Overlong",
    "Part",
    "PolicyTurn",
    "RelativeLength",
    "Repetition",
    "Reward",
    "RewardError",
    "RlvrError",
    "Rollout",
    "RowsEnv",
    "Rubric",
    "Score",
    "Scored",
    "Scorer",
    "Share",
    "Task",
    "Tool",
    "ToolCall",
    "ToolError",
    "Turn",
    "UnknownEnvironment",
    "Unscored",
    "UntrustedPlace",
    "UsageError",
    "Verdict",
    "Verifier",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
    "environment_ids",
    "make",
    "register",
    "replay",
    "score",
    "seeded",
    "tool",
]

_DEPRECATED = ("MultiTurnEnv", "SingleTurnEnv", "ToolEnv")


def __getattr__(name: str) -> object:
    if name not in _DEPRECATED:
        raise AttributeError(f"module 'rlvr' has no attribute {name!r}")
    import warnings

    from rlvr.environment import deprecated

    warnings.warn(
        f"rlvr.{name} goes in 0.4: derive from rlvr.Environment (docs/writing/environments.md)",
        DeprecationWarning,
        stacklevel=2,
    )
    value: object = getattr(deprecated, name)
    return value

"""rlvr: verifiable rewards for reinforcement learning of language models.

    env = rlvr.make("gsm8k-v1")
    for scored in rlvr.score(env, rows, workers=2): ...

What stands here is the core, without torch, transformers, datasets or sympy.  Verifiers and environments are in
`rlvr.verifiers` and `rlvr.envs`.
"""

from pathlib import Path as _Path

# In a source checkout the folders envs/, verifiers/ and sandbox/ stand beside rlvr/, not inside it.
# Adding the repo root to our own search path makes `rlvr.envs` and the others resolve there.  An installed
# wheel has them inside and never takes this branch.
_root = _Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "verifiers").is_dir():
    __path__.append(str(_root))

from rlvr.environment import Environment, MultiTurnEnv, RowsEnv, SingleTurnEnv, seeded  # noqa: E402
from rlvr.errors import (  # noqa: E402
    DataError,
    MissingDependency,
    NonConforming,
    RewardError,
    RlvrError,
    UnknownEnvironment,
    Unscored,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from rlvr.items import Item  # noqa: E402
from rlvr.parts import Format, Language, Length, Majority, Overlong, RelativeLength, Repetition  # noqa: E402
from rlvr.records import replay  # noqa: E402
from rlvr.registry import environment_ids, make, register  # noqa: E402
from rlvr.rewards import Correct, GroupPart, Part, Reward  # noqa: E402
from rlvr.scoring import Scored, Scorer, score  # noqa: E402
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
    "Completion",
    "Correct",
    "DataError",
    "Environment",
    "Format",
    "Group",
    "GroupPart",
    "Item",
    "Language",
    "Length",
    "Majority",
    "MissingDependency",
    "MultiTurnEnv",
    "NonConforming",
    "Outcome",
    "Overlong",
    "Part",
    "RelativeLength",
    "Repetition",
    "Reward",
    "RewardError",
    "RlvrError",
    "Rollout",
    "RowsEnv",
    "Score",
    "Scored",
    "Scorer",
    "SingleTurnEnv",
    "Task",
    "Turn",
    "UnknownEnvironment",
    "Unscored",
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
]

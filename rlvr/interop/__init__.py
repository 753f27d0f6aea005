"""Environments for other trainers and libraries, and theirs for rlvr.

    from rlvr.interop import to_trl
    reward = to_trl(rlvr.make("gsm8k-v4"))      # reward.reward_funcs, reward.dataset

adapter                                   what adapters share: scorer, tasks as JSON, our failure
trl, trl_environment                      TRL: rewards both ways; `environment_factory`
verl, verl_agent, verl_episodes           verl: `compute_score`, and its agent loop
openrlhf, gymnasium                       `reward_func`; `gymnasium.Env` and vectors
openenv, nemo_gym                         their servers as environments here
verifiers, verifiers_loop                 tasksets in our loop, and those that own their loop
inspect_ai, inspect_run, inspect_sandbox  tasks both ways; a sample in a process; our sandbox there
harbor, harbor_folder, harbor_trial       task folders: both ways, as read, and one trial
harbor_validation, harbor_write           which folders may be used; ours written
harbor_sandbox                            our sandbox for harbor's own trials
reported, session_exec                    tasks that a library plays and scores; its bash commands
reasoning_gym                             families of puzzles; scorers in a killable process
atif, step_recorders                      episodes as ATIF; step files of TRL and verl
referee, drivers                          other trainers on cases, run by their own Python

Every `to_…` scores through `rlvr.Scorer`: the same totals as `rlvr score`.  An adapter is imported
when it is first used, and its library when needed.

Contract: a module for each peer; `to_NAME(env)` there, `from_NAME(…)` here.
Sees `train` and all below; `http` and `cli` see it.
Goes wrong: a peer that turns our failure into 0 (raise, or give what it masks), a peer's release
that renames what we call (say which versions were tried), a peer's exception taken for ours.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.http.openenv import to_openenv
    from rlvr.interop.atif import to_atif
    from rlvr.interop.gymnasium import to_gymnasium
    from rlvr.interop.harbor import from_harbor
    from rlvr.interop.harbor_validation import validate_harbor
    from rlvr.interop.harbor_write import to_harbor
    from rlvr.interop.inspect_ai import from_inspect, to_inspect
    from rlvr.interop.nemo_gym import from_nemo_gym
    from rlvr.interop.openenv import from_openenv
    from rlvr.interop.openrlhf import to_openrlhf
    from rlvr.interop.reasoning_gym import from_reasoning_gym
    from rlvr.interop.trl import from_trl, to_trl
    from rlvr.interop.trl_environment import to_trl_environment
    from rlvr.interop.verifiers import from_verifiers, to_verifiers
    from rlvr.interop.verl import to_verl
    from rlvr.interop.verl_episodes import to_verl_episodes

__all__ = [
    "from_harbor",
    "from_inspect",
    "from_nemo_gym",
    "from_openenv",
    "from_reasoning_gym",
    "from_trl",
    "from_verifiers",
    "to_atif",
    "to_gymnasium",
    "to_harbor",
    "to_inspect",
    "to_openenv",
    "to_openrlhf",
    "to_trl",
    "to_trl_environment",
    "to_verifiers",
    "to_verl",
    "to_verl_episodes",
    "validate_harbor",
]

_ELSEWHERE = {
    "from_inspect": "inspect_ai",
    "to_harbor": "harbor_write",
    "to_inspect": "inspect_ai",
    "to_openenv": "rlvr.http.openenv",  # a server, above this room
    "validate_harbor": "harbor_validation",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _ELSEWHERE.get(name, name.partition("_")[2])
    return getattr(import_module(module if "." in module else f"{__name__}.{module}"), name)

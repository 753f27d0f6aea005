"""From the settings of a run to its parts."""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch

from rlvr.environment import Environment, SingleTurnEnv
from rlvr.environment.registry import make
from rlvr.errors import UsageError
from rlvr.rewards.parts import Overlong
from rlvr.train.config import Config
from rlvr.train.policy import Policy

__all__ = ["about", "autocast_of", "configured_policy", "environments", "load_policy"]


def environments(
    config: Config, env: Environment | None = None, eval_env: Environment | None = None
) -> tuple[Environment, Environment | None]:
    """(What is trained on, what is evaluated on), made from the config unless given.

    Raises:
        UsageError: there is no telling what to evaluate on, it is what is trained on, or the reward cannot be what
            the algorithm wants.
    """
    if config.eval_every is None:
        eval_env = None
    elif eval_env is None:
        if env is not None:
            raise UsageError("an environment is given, and none to evaluate on: give eval_env, or eval_every=None")
        eval_env = make(config.env, **{**config.env_options, "split": config.eval_split, **config.eval_options})
    if env is None:
        env = make(config.env, **{"split": "train", **config.env_options})
    if eval_env is not None:
        _require_others(env, eval_env, config.eval_tasks)
    return _with_overlong(env, config), eval_env


def _require_others(env: Environment, eval_env: Environment, most: int) -> None:
    """A single file stands for every split, and would silently be trained on and evaluated on.

    Published sets have a few problems in both of their splits: up to one in a hundred is warned of.
    """
    if (
        not (isinstance(env, SingleTurnEnv) and isinstance(eval_env, SingleTurnEnv))
        or not env.size
        or not eval_env.size
    ):
        return
    trained = {str(env.task(i).prompt) for i in range(env.size)}
    evaluated = [eval_env.task(i) for i in range(min(most, eval_env.size))]
    shared = [task.id for task in evaluated if str(task.prompt) in trained]
    found = (
        f"{len(shared)} of the {len(evaluated)} tasks to evaluate on, of split {eval_env.split!r}, have prompts "
        f"that are trained on, in split {env.split!r}"
    )
    if 100 * len(shared) > len(evaluated):
        raise UsageError(
            f"{found}, as where one file is taken for both: keep a part of it apart with the option "
            "split='train[10%:]' and eval_split='train[:10%]', give eval_options a file of its own, or eval_every=None"
        )
    if shared:
        warnings.warn(f"{found}, such as {shared[0]!r}", RuntimeWarning, stacklevel=4)


def _with_overlong(env: Environment, config: Config) -> Environment:
    """The environment with DAPO's soft punishment (arXiv:2503.14476, eq. 13) in its reward, if it is wanted."""
    if config.algorithm_.overlong != "soft" or any(isinstance(leaf, Overlong) for leaf in env.reward.leaves):
        return env
    if not isinstance(env, SingleTurnEnv):
        raise UsageError(f"{env.id} has several turns and says its score itself; choose overlong='mask' or 'keep'")
    cache = config.overlong_cache or max(1, config.max_tokens // 5)
    return env.with_reward(env.reward + Overlong(max_tokens=config.max_tokens, cache=cache))


def load_policy(model: str, *, device: str = "auto", **options: Any) -> Policy:
    """A model on its device; for the options see `Policy`.

    Raises:
        UsageError: no such model, or no such device here.
    """
    there = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = there if device == "auto" else device
    try:
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, ImportError) as error:  # the latter two where torch was built without it
        why = str(error).strip().splitlines()[0]
        raise UsageError(f"device is {device!r}, which is not to be had here ({why}); choose 'auto' or 'cpu'") from None
    return Policy.load(model, device=chosen, **options)


def autocast_of(precision: str) -> torch.dtype | None:
    """The type to compute in, None for that of the weights."""
    return torch.bfloat16 if precision == "bf16" else None


def configured_policy(config: Config) -> Policy:
    """The model that a run trains."""
    return load_policy(
        config.model,
        device=config.device,
        chat=config.chat,
        autocast=autocast_of(config.precision),
        gradient_checkpointing=config.gradient_checkpointing,
        max_tokens=config.micro_tokens,
    )


def about(config: Config, env: Environment, eval_env: Environment | None) -> dict[str, Any]:
    """All that decides how a run goes, as plain JSON."""
    found = {"settings": config.resolved(), "env": _described(env), "eval_env": eval_env and _described(eval_env)}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def _described(env: Environment) -> dict[str, Any]:
    return {"id": env.id, "split": env.split, **env.config, "reward": str(env.reward)}

"""Makes the parts of a run from its settings: environments, model, and the description
that the run folder keeps."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from rlvr.environment import Environment
from rlvr.environment.registry import make, takes_options
from rlvr.errors import UsageError
from rlvr.rewards import GroupPart
from rlvr.rewards.parts import Overlong
from rlvr.samplers.chat import prompts_line
from rlvr.samplers.local import LocalSampler
from rlvr.scoring.engines import ServedReward
from rlvr.train.config import Config, ResolvedConfig
from rlvr.train.config.setting import require_not_given
from rlvr.train.context_parallel import require_context
from rlvr.train.learned_reward import LearnedReward
from rlvr.train.memory import require_room_for_weights
from rlvr.train.policy import Policy
from rlvr.train.run_dir import chat_of_run
from rlvr.train.tensor_parallel import require_tensor_plan

__all__ = [
    "autocast_dtype",
    "describe_run",
    "device_of",
    "environments",
    "load_policy",
    "local_sampler",
    "policy_from_config",
    "prepare_policy",
    "require_end",
    "say_prompts",
    "stage_env",
]

_COUNTED: Final = 10_000
"""Most tasks that are looked at for the first line of a run."""


def environments(
    config: Config, env: Environment | None = None, eval_env: Environment | None = None
) -> tuple[Environment, Environment | None]:
    """The environments of a run: (training, evaluation).  The second is None if the run has no
    evaluations.

    Args:
        config: settings of the run.
        env: the training environment; None to make it from `config.env`.
        eval_env: the evaluation environment; None to make it from `config.env`.

    Warns:
        RuntimeWarning: up to one in a hundred evaluation tasks is trained on too.

    Raises:
        UsageError: `env` is given without `eval_env`; `config.env` has no splits, and there are
            evaluations; more evaluation tasks than that are trained
            on; or the reward model or the algorithm's soft punishment cannot be added to the
            reward.
        ServiceFailed: the reward model's service cannot be reached.
    """
    # Also where one was given: nothing would read it.
    if config.eval_every is None:
        eval_env = None
    elif eval_env is None:
        if env is not None:
            raise UsageError(
                "env is given without eval_env; give eval_env too, or eval_every=None for no "
                "evaluations"
            )
        if not takes_options(config.env):
            raise UsageError(
                f"{config.env} is an environment as it is, without another split for evaluations; "
                "name a class with the option split, or evaluate on nothing (--eval-every none)"
            )
        # Evaluation options win over the split, and the split over training options.
        eval_env = make(
            config.env, **{**config.env_options, "split": config.eval_split, **config.eval_options}
        )
    if env is None:
        split = {"split": "train"} if takes_options(config.env) else {}
        env = make(config.env, **{**split, **config.env_options})
    for environment in (env, eval_env) if config.strict else ():
        if environment is not None:
            environment.stop_at_bad_rows()
    _require_turns(config, env, eval_env)
    if eval_env is not None:
        # Before anything is added to the reward, which the comparison of prompts does not need.
        _require_separate(env, eval_env, config.eval_tasks)
    # First the model, then the range, then the punishment of
    # length: the range maps all that was added before it.
    if config.reward_model is not None:
        env = _with_reward_model(
            env, _reward_model_part(config.reward_model, config.device), config.resolve()
        )
    if config.reward_range is not None:
        env = _with_range(env, *config.reward_range)
    _require_siblings(env, config.resolve())
    return _with_overlong(env, config.resolve()), eval_env


def _require_turns(config: Config, env: Environment, eval_env: Environment | None) -> None:
    """Refuse settings of episodes where every environment of the run has a single turn."""
    if config.stage or config.eval_env:
        return
    if all(environment is None or environment.limits.turns == 1 for environment in (env, eval_env)):
        require_not_given(config, ("max_turns", "step_s", "turn_schedule"), "episodes of turns")


def stage_env(config: Config, now: Config, env: Environment | None) -> Environment:
    """The training environment of a stage, before anything is added to its reward.

    Args:
        config: settings of the run.
        now: settings of the stage.
        env: the training environment that the run was given; None if it made it.

    Raises:
        UsageError: there is no such environment, or it has no such options.
    """
    if env is None or now.env != config.env:
        return make(now.env, **{"split": "train", **now.env_options})
    if now.env_options == config.env_options:
        return env
    stage_environment = make(now.env, **{**env.config, **now.env_options})
    return (
        stage_environment
        if "reward" in now.env_options
        # A reward that was put on in Python is in no option.
        else stage_environment.with_reward(env.reward)
    )


def _require_siblings(env: Environment, config: ResolvedConfig) -> None:
    """Refuse an environment of a mixture whose own group size is too small for the algorithm."""
    single = next((share.name for share in env.shares.values() if share.group_size == 1), None)
    if single is not None and "siblings" in config.algorithm.needs:
        raise UsageError(
            f"group_size of {single} in the mixture is 1, and {config.algorithm.label} compares "
            "the completions of a prompt: every advantage would be 0; give at least 2"
        )


def _reward_model_part(place: str, device: str) -> GroupPart:
    """A reward model as a part of a reward: in a folder, loaded, or behind HTTP, asked for its
    version."""
    if "://" in place:
        return ServedReward(place)
    part = LearnedReward(place, device=str(device_of(device)))
    part.load()  # what is wrong with it is found now
    return part


def _with_reward_model(env: Environment, part: GroupPart, config: ResolvedConfig) -> Environment:
    low, high = config.reward_model_bounds
    bounded = part if (low, high) == part.bounds else part.clip(low, high)
    added = config.reward_model_weight * bounded
    return env.each(lambda share, own: own.with_reward(own.reward + added))


def _with_range(env: Environment, least: float, most: float) -> Environment:
    """The environment with its reward's bounds mapped to others: DAPO's paper has -1 and 1
    (arXiv:2503.14476, 2.4)."""
    return env.each(lambda share, own: _range_reward(own, least, most))


def _range_reward(env: Environment, least: float, most: float) -> Environment:
    low, high = env.reward.bounds
    if low == high:
        raise UsageError(
            f"the reward {env.reward} is always {low:g}, so that reward_range has nothing to map; "
            f"leave it out"
        )
    # A line through (low, least) and (high, most).
    scale = (most - least) / (high - low)
    return env.with_reward(scale * env.reward + (least - scale * low))


def _require_separate(env: Environment, eval_env: Environment, most: int) -> None:
    """Refuse evaluation on training tasks: a single file stands for every split, so that it happens
    easily.

    Published sets have a few problems in both of their splits, so up to one in a hundred gives a
    warning only.
    """
    members, eval_members = env.members.values(), eval_env.members.values()
    tasks = [
        # Of a generator no task is looked at: its splits have other seeds.
        [eval_member.task(i) for i in range(min(most, eval_member.size or 0))]
        for eval_member in eval_members
    ]
    if not any(tasks):
        return
    # By prompts: ids differ from file to file.
    trained = {str(member.task(i).prompt) for member in members for i in range(member.size or 0)}
    for evaluated in tasks:
        shared = [task.id for task in evaluated if str(task.prompt) in trained]
        _require_few(shared, len(evaluated), env.split, eval_env.split)


def _require_few(shared: Sequence[str], count: int, trained: str, evaluated: str) -> None:
    message = (
        f"{len(shared)} of the {count} tasks to evaluate on, of split {evaluated!r}, have prompts "
        f"that are trained on, in split {trained!r}"
    )
    if 100 * len(shared) > count:
        raise UsageError(
            f"{message}, perhaps because one file serves for both: split it with the option "
            "split='train[10%:]' and eval_split='train[:10%]', name another file in eval_options, "
            "or set eval_every=None"
        )
    if shared:
        warnings.warn(f"{message}, such as {shared[0]!r}", RuntimeWarning, stacklevel=5)


def _with_overlong(env: Environment, config: ResolvedConfig) -> Environment:
    """The environment; with overlong="soft" its reward has DAPO's soft punishment
    (arXiv:2503.14476, eq. 13).

    It is scaled by the width of the reward's bounds, as the paper's -1 is for rewards of ±1: added
    to a reward in [0, 1], -1 would make a right answer at the limit worth a wrong short one.
    """
    return env.each(lambda share, own: _punish(own, config, share.max_tokens if share else None))


def _punish(env: Environment, config: ResolvedConfig, limit: int | None) -> Environment:
    # One that is there already, in the environment's own reward, is not added again.
    if "soft" not in config.overlong or any(
        isinstance(leaf, Overlong) for leaf in env.reward.leaves
    ):
        return env
    low, high = env.reward.bounds
    largest = config.algorithm.overlong_share * (high - low)
    if not 0 < largest < math.inf:
        raise UsageError(
            f"the reward {env.reward} has the bounds [{low:g}, {high:g}], which say nothing of how "
            "strong a punishment has to be; add `weight * rlvr.Overlong(…)` to it yourself, or "
            "choose overlong='mask' or 'keep'"
        )
    length = limit or config.max_tokens  # of an environment in a mixture, its own
    punishment = largest * Overlong(max_tokens=length, cache=min(config.overlong_cache, length))
    return env.with_reward(env.reward + punishment)


def device_of(device: str) -> torch.device:
    """The device of this name.

    Args:
        device: such as "cpu" or "cuda:1"; "auto" is a GPU if there is one.  Of the processes that
            torchrun starts, each has a GPU of its own.

    Raises:
        UsageError: there is no such device on this machine.
    """
    present = "cuda" if torch.cuda.is_available() else "cpu"
    local = int(os.environ.get("LOCAL_RANK") or 0)
    if (present if device == "auto" else device) == "cuda" and (
        local or os.environ.get("WORLD_SIZE", "1") != "1"
    ):
        if local >= torch.cuda.device_count():
            raise UsageError(
                f"this is process {local} of this machine, which has {torch.cuda.device_count()} "
                "GPUs; start as many processes as there are GPUs, or set device='cpu'"
            )
        device = f"cuda:{local}"
    try:
        # A tensor: the shortest way to ask for the device, and to have it named in full.
        tried = torch.empty(0, device=present if device == "auto" else device)
        tried.cpu()  # fails on "meta", whose tensors hold no numbers
        return tried.device
    except (
        RuntimeError,
        AssertionError,
        ImportError,
    ) as error:  # the latter two where torch was built without it
        why = str(error).strip().splitlines()[0]
        raise UsageError(
            f"device is {device!r}, which this machine does not have ({why}); use 'auto' or 'cpu'"
        ) from None


def load_policy(model: str, *, device: str = "auto", **options: Any) -> Policy:
    """A model on its device.

    Args:
        model: id on the hub, or a local folder.
        device: see `device_of`.
        options: those of `Policy.load`.

    Raises:
        UsageError: there is no such model, or no such device on this machine.
    """
    return Policy.load(model, device=device_of(device), **options)


def require_end(policy: Policy, stop: Sequence[str]) -> None:
    """Refuse a model whose completions could only end at their limit.

    Args:
        policy: the model with its tokenizer.
        stop: stop texts.

    Raises:
        UsageError: it has no end token, and there are no stop texts; or its end token is beyond its
            vocabulary.
    """
    ends, size = policy.tokenization.end_ids, len(policy.model.get_output_embeddings().weight)
    if not ends and not stop:
        raise UsageError(
            "the model has no end token, so every completion would run to its limit: set "
            "eos_token_id in its generation_config.json or eos_token in its tokenizer, or give a "
            "stop text"
        )
    if ends and max(ends) >= size:
        raise UsageError(
            f"the end token {max(ends)} is beyond the model's {size} tokens; set eos_token_id in "
            "its generation_config.json, and eos_token in its tokenizer"
        )


def say_prompts(
    policy: Policy, env: Environment | None, say: Callable[[str], None], limit: int | None = None
) -> None:
    """Print how the prompts of a run are sent, and how many go as they are.

    Args:
        policy: the model with its tokenizer.
        env: whose prompts are counted; None for none.
        say: prints a line.
        limit: look at this many tasks, the first ones; None for all, but at most 10,000.
    """
    tokens = policy.tokenization
    if not tokens.chat or env is None:
        say(prompts_line(tokens.format))
        return
    limit_count = limit or _COUNTED
    # A generator has no size: the first tasks stand for all.
    size = limit_count if env.size is None else min(env.size, limit_count)
    prompts = [env.task(index).prompt for index in range(size)]
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    as_is = sum(map(tokens.goes_as_it_is, texts))
    has_more = limit is None and (env.size is None or env.size > size)
    say(prompts_line(tokens.format, len(texts), as_is, more=has_more))


def autocast_dtype(precision: str) -> torch.dtype | None:
    """The type to compute in; None for that of the weights.

    Args:
        precision: "fp32" or "bf16".
    """
    return torch.bfloat16 if precision == "bf16" else None


def policy_from_config(config: Config, world: int = 1) -> Policy:
    """The model of a run, loaded as its settings say; without its adapter, for which there is
    `prepare_policy`.

    Args:
        config: settings of the run.
        world: processes over which it will be sharded.

    Raises:
        UsageError: there is no such model or device, the model cannot be trained, or its weights
            and the optimiser cannot fit.
    """
    # From shapes, before weights are read.
    require_room_for_weights(config, device_of(config.device), world)
    autocast = autocast_dtype(config.precision)
    return load_policy(
        config.model,
        device=config.device,
        # An adapter's weights are few, and its frozen base is read whole.
        in_shares=world > 1 and config.lora_rank is None,
        # A frozen base in bfloat16 loses nothing that is trained; trained weights are float32.
        dtype=torch.float32 if config.lora_rank is None or autocast is None else autocast,
        attention=config.attention,
        chat=chat_of_run(config.run, config.chat_settings),
        autocast=autocast,
        gradient_checkpointing=config.gradient_checkpointing,
        # Ranks that read rows together need packs.
        packing=config.packing or config.context_parallel > 1,
        max_tokens=config.micro_tokens,
    )


def prepare_policy(policy: Policy, config: Config) -> Policy:
    """The policy, with the LoRA adapter that the settings ask for.

    Args:
        policy: loaded or given.
        config: settings of the run.

    Raises:
        UsageError: it has no end token, cannot have this adapter, or cannot be computed by so many
            ranks together.
    """
    require_end(policy, config.stop)
    require_tensor_plan(policy.model, config.tensor_parallel)
    require_context(policy.model, policy.packing, config.context_parallel)
    if config.lora_rank is not None:
        policy.add_lora(
            rank=config.lora_rank,
            alpha=config.lora_alpha,
            targets=config.lora_targets,
            seed=config.seed,
        )
    return policy


def local_sampler(policy: Policy, config: Config, world: int = 1) -> LocalSampler:
    """The sampler in the trainer's process.

    Args:
        policy: the trained model, before it is sharded.
        config: settings of the run.
        world: processes over which the policy will be sharded.
    """
    weights = next(policy.model.parameters()).dtype
    # A copy where the sampler runs while the policy is trained, or where the policy is in shards.
    dtype = weights if config.max_staleness or world > 1 else None
    return policy.sampler(
        dtype=dtype, max_rows=config.max_rows, max_tokens_in_flight=config.max_tokens_in_flight
    )


def describe_run(
    config: Config, env: Environment | None, eval_env: Environment | None
) -> dict[str, object]:
    """Everything that determines a run, as plain JSON: settings, environments, rewards.

    Args:
        config: settings of the run.
        env: the training environment; None where a file is trained on.
        eval_env: the evaluation environment; None for none.
    """
    description = {
        "settings": config.resolve().recorded,
        "env": env and _describe_env(env),
        "eval_env": eval_env and _describe_env(eval_env),
    }
    # `default=str`: options may be paths, whose text is compared.
    plain: dict[str, object] = json.loads(json.dumps(description, default=str))
    return plain


def _describe_env(env: Environment) -> dict[str, object]:
    return {
        "id": env.id,
        "split": env.split,
        **env.config,
        "reward": str(env.reward),
    }

"""The flags of a recipe: its settings, and the environments that they name.  Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Suppress, UseAppendAction, arg

import rlvr
from rlvr.cli.arguments import RewardText, options_of, with_reward
from rlvr.environment.registry import defaults_of, is_mixture
from rlvr.train.config import Config

__all__ = ["Flags"]


@dataclass(frozen=True, kw_only=True)
class Flags:
    """A recipe's settings; each can be changed by a flag."""

    config: OmitArgPrefixes[Annotated[Config, arg(name="")]]
    own_task: Suppress[tuple[str, str | None]]
    """Environment and data of the recipe as it is."""
    own_option: Suppress[tuple[str, tuple[str, ...]]] = ("", ())
    """An environment, with the options that the size has for it; another one has its defaults."""
    data: str | None = None
    """Tasks: a hub id, a .jsonl or .parquet file, or a folder with a file per split.  None: the
    recipe's own; with another --env, that environment's own."""
    eval_data: str | None = None
    """Evaluation tasks, as for `data`.  None: the evaluation split of `data`, or the first tenth of
    a single file, which is then not trained on."""
    option: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """An option of the environment, NAME=VALUE; may be repeated."""
    reward: RewardText = None
    cold_start: Annotated[Path | None, arg(metavar="FILE")] = None
    """Fine-tune on this file's texts first (columns prompt, completion); the run starts there."""
    cold_steps: int = 1000
    """Steps of that fine-tuning."""
    cold_prompts: int = 128
    """Texts of each of its steps."""
    cold_lr: float = 1e-5
    """Its learning rate."""

    def cold_config(self) -> Config:
        """The settings of the fine-tuning before the run, in a folder beside the run's."""
        return Config(
            env=self.config.env,
            model=self.config.model,
            run=self.config.run.with_name(f"{self.config.run.name}-cold-start"),
            algorithm="sft",
            pairs=self.cold_start,
            steps=self.cold_steps,
            prompts=self.cold_prompts,
            lr=self.cold_lr,
            max_tokens=self.config.max_tokens,
            micro_tokens=self.config.micro_tokens,
            precision=self.config.precision,
            gradient_checkpointing=self.config.gradient_checkpointing,
            chat=self.config.chat,
            device=self.config.device,
            seed=self.config.seed,
            eval_every=None,
            checkpoint_every=self.cold_steps,
        )

    def _options_of_size(self) -> tuple[str, ...]:
        """The size's own options, but for those that a flag gives."""
        env, size_options = self.own_option
        names_given = {pair.partition("=")[0] for pair in self.option}
        return tuple(
            pair
            for pair in size_options
            if env == self.config.env and pair.partition("=")[0] not in names_given
        )

    def environments(self) -> tuple[rlvr.Environment, rlvr.Environment]:
        """The environment to train on, and the one to evaluate on.

        Raises:
            UsageError: there is no such environment, or its options cannot work.
        """
        options_text = with_reward((*self._options_of_size(), *self.option), self.reward)
        options = options_of(defaults_of(self.config.env), options_text)
        train, test = options.pop("split", None), self.config.eval_split
        # where the tasks of each come from stands with its own options
        if is_mixture(self.config.env):
            splits = (
                rlvr.make(self.config.env, **options, split=split)
                for split in (train or "train", test)
            )
            return next(splits), next(splits)
        env, own_data = self.own_task
        data = own_data if self.data is None and self.config.env == env else self.data
        if self.eval_data is None and data is not None and Path(data).is_file():
            is_default = test == Config.eval_split
            if (train is None) != is_default:
                raise rlvr.UsageError(
                    f"{data} is one file, of which the first tenth is evaluated on; for another "
                    f"part give both, "
                    "such as --option 'split=train[20%:]' --eval-split 'train[:20%]', or "
                    "--eval-data"
                )
            # A single file has one split, "train": unless parts are
            # asked for, its first tenth is kept for evaluation.
            train, test = (train, test) if train is not None else ("train[10%:]", "train[:10%]")
        environments = []
        for split, place in ((train or "train", data), (test, self.eval_data or data)):
            rows = {} if place is None else {"data": place}
            environments.append(rlvr.make(self.config.env, **{**options, "split": split, **rows}))
        return environments[0], environments[1]

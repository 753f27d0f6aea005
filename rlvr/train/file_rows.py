"""Examples of a file: pairs, labels, right completions or steps, as `rlvr pairs` writes them.

The step alone fixes which examples it has, so a run that was stopped goes on with the same ones.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from rlvr.environment import Environment
from rlvr.environment.registry import make
from rlvr.errors import UsageError
from rlvr.samplers.protocol import rollout_seed
from rlvr.train.preferences import Examples, examples_of_file
from rlvr.train.row_source import RowSource
from rlvr.train.sampling import open_sampler
from rlvr.train.setup import describe_run

if TYPE_CHECKING:  # it has one
    from rlvr.train.loop import Trainer

__all__ = ["FileRows"]


class FileRows(RowSource):
    """The examples of `config.pairs`: `config.prompts` for each step, in an order that is
    drawn anew in each pass.

    Args:
        run: before its model is loaded.
        eval_env: see `Trainer`.

    Attributes:
        examples: of the file; on the first rank.

    Raises:
        UsageError: a reward model is trained, and there is an environment to evaluate on; or the
            examples come from a pipe.
    """

    examples: Examples

    def __init__(self, run: Trainer, eval_env: Environment | None) -> None:
        super().__init__(run)
        settings = run.settings
        if settings.env and "head" in settings.algorithm.needs:
            raise UsageError(
                f"env is {settings.env!r}, and a reward model generates nothing to evaluate; leave "
                f"it out"
            )
        if settings.pairs is not None and settings.pairs.is_fifo():
            raise UsageError(
                f"{settings.pairs} is a pipe, and a run that goes on reads it again; write it to "
                f"a file"
            )
        if settings.eval_every is not None and run.ranks.first and (settings.env or eval_env):
            options = {"split": settings.eval_split, **settings.eval_options}
            evaluation = eval_env or make(settings.env, **{**settings.env_options, **options})
            if settings.strict:
                evaluation.stop_at_bad_rows()
            self.eval_env = evaluation

    @property
    def description(self) -> dict[str, object]:
        path = self.run.settings.pairs
        assert path is not None
        # The file's bytes: one that was edited is another run.
        file = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        return {**describe_run(self.run.settings, None, self.eval_env), "pairs": file}

    def open(self, opened: ExitStack) -> None:
        run = self.run
        settings = run.settings
        assert settings.pairs is not None
        if self.eval_env is not None:
            self.sampler = opened.enter_context(open_sampler(run.policy, settings, run.ranks.world))
            self.scorer("evaluation", opened)
        self.examples, left_out = examples_of_file(
            settings.pairs,
            settings.algorithm,
            run.policy.tokenization,
            max_tokens=settings.max_tokens,
        )
        if left_out:
            run.say(
                f"{left_out} rows have a completion of more than {settings.max_tokens} tokens: "
                f"left out"
            )
        tokens = sum(row.tokens for row in self.examples.rows)
        run.say(f"{len(self.examples.rows)} examples, {tokens} tokens")

    @contextmanager
    def rows(self, step: int) -> Iterator[tuple[Examples | None, dict[str, float]]]:
        """The examples of a step.

        Args:
            step: steps done.
        """
        if not self.run.ranks.first:
            yield None, {}
            return
        n, size, seed = len(self.examples.rows), self.run.settings.prompts, self.run.settings.seed
        # Places in an endless sequence of passes; n need not be a multiple of the step's examples.
        places = range(step * size, (step + 1) * size)
        examples = self.examples.part([_order(n, seed, at // n)[at % n] for at in places])
        tokens = float(sum(row.tokens for row in examples.rows))
        yield examples, {"epoch": (step + 1) * size / n, "tokens": tokens}

    def sync(self, step: int) -> Mapping[str, float]:
        """Give the sampler the weights before an evaluation.

        Args:
            step: steps done.
        """
        run = self.run
        # `evaluates` is known on the first rank alone, and all ranks have to gather together.
        if not run.is_due(run.settings.eval_every) or not run.ranks.any(self.evaluates):
            return {}
        weights = run.policy.weights()
        if run.ranks.first:
            self.sampler.sync(weights, step)
        deque(weights, maxlen=0)  # other ranks' shares of what is gathered, or what is left over
        return {}


# Two: a step may reach from one pass into the next.
@lru_cache(maxsize=2)
def _order(n: int, seed: int, epoch: int) -> list[int]:
    """The order of the examples in one pass over the file."""
    draw = torch.Generator().manual_seed(rollout_seed("pairs", seed, epoch))
    order: list[int] = torch.randperm(n, generator=draw).tolist()
    return order

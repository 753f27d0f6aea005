r"""What batches under way gain with an engine whose replies take longer than an update:
`max_staleness` 0, 1, 2, 4.

    OMP_NUM_THREADS=1 python -m benchmarks.staleness

The engine is an imitation that sleeps: a token of each of its rows takes `--token-ms`, however many
rows are busy, and lengths are geometric, so that a batch's longest completion takes several times
the mean.  The update is stretched by sleeping too, as if it ran on a device of its own.  Trainer,
collector and scheduler are the real ones.  So this measures how well they keep such an engine busy,
and not how fast any engine is.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from rich.console import Console

from benchmarks.trainer_tasks import NOISE, Noise
from rlvr.samplers.protocol import Begun, Request, Sample, Tokenized
from rlvr.train.config import Config
from rlvr.train.loop import Trainer
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from rlvr.train.tiny import tiny

LIMIT: Final = 400
POLL_S: Final = 0.005


@dataclass
class Row:
    """A completion that the engine works on: all its tokens, of which the first ones are known."""

    request: Request
    ids: list[int]
    versions: list[int]  # of the tokens that are known
    since: float  # when the first of the others began

    def known(self, now: float, token_s: float) -> int:
        """How many tokens are known at this moment."""
        return min(len(self.ids), len(self.versions) + int((now - self.since) / token_s))


class SleepingEngine:
    """Gives a token to each of its rows every `token_s` seconds; the tokens are arbitrary.

    Args:
        policy: whose tokens and weights these would be.
        rows: most completions at a time; the others wait.
        token_s: seconds per token.
        mean: mean length.
    """

    def __init__(self, policy: Policy, *, rows: int, token_s: float, mean: float) -> None:
        self._local = policy.sampler()
        self.encode, self.decode, self.positions = (
            self._local.encode,
            self._local.decode,
            LIMIT + 64,
        )
        self._rows, self._token_s, self._mean = rows, token_s, mean
        self._waiting: deque[Request] = deque()
        self._running: dict[Hashable, Row] = {}
        self.version, self.tokens = 0, 0

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`."""
        self._waiting.append(request)
        self._admit(time.monotonic())

    def poll(self) -> Sequence[tuple[Hashable, Sample]]:
        """See `Sampler.poll`."""
        time.sleep(POLL_S)
        now = time.monotonic()
        finished = [
            row for row in self._running.values() if row.known(now, self._token_s) == len(row.ids)
        ]
        for row in finished:
            del self._running[row.request.id]
        self._admit(now)
        return [(row.request.id, self._sample(row)) for row in finished]

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`."""
        self.take_back(ids)

    def take_back(self, ids: Iterable[Hashable]) -> Mapping[Hashable, Begun]:
        """See `Sampler`: what is known of these completions, which are dropped here."""
        dropped, found, now = set(ids), {}, time.monotonic()
        self._waiting = deque(request for request in self._waiting if request.id not in dropped)
        for name in dropped & self._running.keys():
            row = self._running.pop(name)
            if known := min(row.known(now, self._token_s), len(row.ids) - 1):
                versions = self._versions(row, known)
                logprobs = [self._logprob] * known
                found[name] = Begun(row.ids[:known], logprobs, logprobs, versions)
        self._admit(now)
        return found

    def sync(self, weights: Any, version: int) -> None:
        """See `Sampler.sync`."""
        self._local.sync(weights, version)
        self.version = version

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """See `Sampler.logprobs`."""
        return self._local.logprobs(rows)

    _logprob = -math.log(len(NOISE))

    def _admit(self, now: float) -> None:
        while self._waiting and len(self._running) < self._rows:
            request = self._waiting.popleft()
            draw = random.Random(request.seed)
            length = min(1 + int(draw.expovariate(1 / self._mean)), request.limit)
            ids = [draw.randrange(4, 4 + len(NOISE)) for _ in range(length - 1)] + [
                2
            ]  # the end token
            begun = request.begun
            self._running[request.id] = Row(
                request, ids, list(begun.versions) if begun else [], now
            )

    def _versions(self, row: Row, known: int) -> list[int]:
        self.tokens += max(0, known - len(row.versions))
        return (row.versions + [self.version] * known)[:known]

    def _sample(self, row: Row) -> Sample:
        versions, logprobs = self._versions(row, len(row.ids)), [self._logprob] * len(row.ids)
        return Sample(
            text=self.decode(row.ids),
            prompt_ids=list(row.request.context),
            completion_ids=row.ids,
            logprobs=logprobs,
            truncated=row.ids[-1] != 2,
            weights_version=min(versions),
            model_logprobs=logprobs,
            token_versions=versions,
        )


def slow_down(trainer: Trainer, update_s: float) -> None:
    """Have the update take at least this long, as on a device of its own."""
    learn = trainer.learner.learn

    def learn_slowly(sampled: Any, step: int) -> dict[str, float]:
        started = time.monotonic()
        numbers = learn(sampled, step)
        time.sleep(max(0.0, started + update_s - time.monotonic()))
        return numbers

    trainer.learner.learn = learn_slowly  # type: ignore[method-assign]


def measure(args: argparse.Namespace, rows: int, max_staleness: int, run: Path) -> dict[str, float]:
    """One run: medians and means over its steps, without the first ones,
    in which work begins to be under way."""
    policy = Policy(*tiny(NOISE, hidden=16, heads=2, layers=1))
    engine = SleepingEngine(policy, rows=rows, token_s=args.token_ms / 1000, mean=args.mean)
    config = Config(
        env="noise",
        model="tiny",
        run=run,
        algorithm="dr_grpo",
        steps=args.steps,
        prompts=args.prompts,
        group_size=8,
        max_tokens=LIMIT,
        max_staleness=max_staleness,
        eval_every=None,
        workers=0,
        rollouts_every=0,
        checkpoint_every=10**6,
        device="cpu",
    )
    with Trainer(
        config, policy=policy, env=Noise(), sampler=engine, console=Console(quiet=True)
    ) as trainer:
        slow_down(trainer, args.update_s)
        trainer.run()
    steps = read_metrics(run / "metrics.jsonl")[args.skip :]
    found = {
        name: fmean(step.get(name, 0.0) for step in steps)
        for name in ("staleness_mean", "versions")
    }
    found |= {
        name: sum(step.get(name, 0.0) for step in steps) for name in ("requeued", "dropped/stale")
    }
    middle = median(
        step["step_s"] for step in steps
    )  # a moment in which the machine did other things does not count
    return found | {"staleness": max(step["staleness"] for step in steps), "step_s": middle}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--skip", type=int, default=8, help="steps at the beginning that are not counted"
    )
    parser.add_argument("--prompts", type=int, default=8, help="groups of 8 per step")
    parser.add_argument(
        "--rows", type=int, nargs="*", default=[64, 256], help="most completions in the engine"
    )
    parser.add_argument("--token-ms", type=float, default=4)
    parser.add_argument("--mean", type=float, default=50, help="mean length, tokens")
    parser.add_argument("--update-s", type=float, default=0.25)
    parser.add_argument("--staleness", type=int, nargs="*", default=[0, 1, 2, 4])
    args = parser.parse_args()
    print(
        "| rows | max_staleness | s per step | speed | staleness, mean | most | versions in a "
        "rollout | sampled anew | dropped |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for capacity in args.rows:
        first = None
        for most in args.staleness:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(args, capacity, most, Path(folder) / "run")
            first = first or found["step_s"]
            print(
                f"| {capacity} | {most} | {found['step_s']:.3f} | {first / found['step_s']:.2f} | "
                f"{found['staleness_mean']:.2f} | {found['staleness']:.0f} | "
                f"{found['versions']:.2f} | {found['requeued']:.0f} | "
                f"{found['dropped/stale']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

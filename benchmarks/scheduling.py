r"""What refill saves against waves, and the schedule "ready" against episodes in lockstep.

    OMP_NUM_THREADS=1 python -m benchmarks.scheduling refill
    OMP_NUM_THREADS=1 python -m benchmarks.scheduling episodes
    OMP_NUM_THREADS=1 python -m benchmarks.scheduling dynamic

`refill`: rollouts of skewed lengths by the local sampler, once as it is, and once in waves: the
next `--rows` requests come when all of the last ones are finished, and the batch shrinks meanwhile.
So both compute the same tokens with the same model; CPU seconds of one thread are compared.
`episodes`: episodes of 1 to 8 turns whose steps sleep 0 to 200 ms, with an engine that takes 50 ms
for each turn, whatever it samples beside it; in lockstep no episode goes on before all have been
answered.  `dynamic`: decode steps of batches of 64 groups of 8 where a share of the tasks is
hopeless, over the ideal: the tokens of all groups up to the last one taken, over the rows; and the
tokens that were discarded, over these.  From staleness 1 on the groups of one further batch are
begun already.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import torch

import rlvr
from benchmarks.trainer_tasks import MAX_TOKENS, NOISE, Noise, random_model
from benchmarks.trainer_vs_trl import about
from rlvr.collect import Collector, Sampling
from rlvr.samplers.local import LocalSampler
from rlvr.samplers.protocol import Request, Sample
from rlvr.samplers.scripted import ScriptedSampler
from rlvr.samplers.tokenization import Tokenization
from rlvr.train.tiny import tiny

GROUP: Final = 8
REPLY_S: Final = 0.05


def requests(sampler: LocalSampler, rollouts: int) -> list[Request]:
    """Groups of 8, which end by chance; see `benchmarks.trainer_tasks`."""
    sampling, env = Sampling(max_tokens=MAX_TOKENS["skewed"]), Noise()
    contexts = [
        tuple(sampler.encode(env.task(index).prompt))
        for index in range(math.ceil(rollouts / GROUP))
    ]
    return [
        Request(i, contexts[i // GROUP], sampling, seed=i, limit=sampling.max_tokens)
        for i in range(rollouts)
    ]


def generate(sampler: LocalSampler, asked: Sequence[Request]) -> dict[Hashable, Sequence[int]]:
    """The tokens of all requests, which are submitted at once."""
    found: dict[Hashable, Sequence[int]] = {}
    for request in asked:
        sampler.submit(request)
    while len(found) < len(asked):
        for name, sample in sampler.poll():
            assert isinstance(sample, Sample)
            found[name] = sample.completion_ids
    return found


def refill(args: argparse.Namespace) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    model, tokenizer = random_model()
    print("| | tokens | refill: steps | waves: steps | refill, CPU s | waves, CPU s | × refill |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for rollouts in args.rollouts:
        sampler = LocalSampler(
            model, Tokenization(tokenizer, end_ids=(tokenizer.eos_token_id,)), max_rows=args.rows
        )
        asked = requests(sampler, rollouts)
        waves = [asked[start : start + args.rows] for start in range(0, rollouts, args.rows)]
        took: list[list[float]] = [[], []]
        steps, tokens = [0, 0], [0, 0]
        for _ in range(args.repeats):
            for side, batches in enumerate(([asked], waves)):
                before, started = sampler.steps, time.process_time()
                tokens[side] = sum(
                    len(ids) for batch in batches for ids in generate(sampler, batch).values()
                )
                took[side].append(time.process_time() - started)
                steps[side] = sampler.steps - before
        assert tokens[0] == tokens[1], tokens
        ratios = sorted(b / a for a, b in zip(*took, strict=True))
        shown = [f"{statistics.median(times):.2f}" for times in took]
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        print(
            f"| {rollouts} rollouts, {args.rows} rows | {tokens[0]:,} | {steps[0]:,} | "
            f"{steps[1]:,} | {shown[0]} | {shown[1]} | {ratio} |",
            flush=True,
        )


class Turns(rlvr.Environment):
    """1 to 8 turns, by the task; each reply sleeps 0 to 200 ms, by the turn."""

    def task(self, index: int) -> rlvr.Task:
        draw = random.Random(index)
        waits_s = [draw.uniform(0, 0.2) for _ in range(draw.randint(1, 8))]
        return rlvr.Task(f"{self.id}/{index}", "begin", meta={"waits_s": waits_s})

    def user(self, task: rlvr.Task, transcript: Sequence[Any]) -> str | None:
        turn = sum(message["role"] == "assistant" for message in transcript)
        waits_s = task.meta["waits_s"]
        time.sleep(waits_s[turn - 1])
        return "go on" if turn < len(waits_s) else None

    def verify(self, task: rlvr.Task, episode: Any) -> rlvr.Verdict:
        return rlvr.Verdict("correct", why="over")


class Engine(ScriptedSampler):
    """Answers every request after 50 ms; in lockstep,
    not before all unfinished episodes have asked.

    Args:
        unfinished: the number of episodes that will ask for another turn; None for no lockstep.
    """

    def __init__(self, unfinished: Callable[[], int] | None) -> None:
        super().__init__(["x"])
        self._unfinished, self._due = unfinished, dict[Hashable, float]()

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`."""
        super().submit(request)
        self._due[request.id] = time.monotonic() + REPLY_S

    def poll(self) -> list[tuple[Hashable, Sample]]:
        """See `Sampler.poll`."""
        time.sleep(0.002)
        now = time.monotonic()
        if self._unfinished is not None and len(self._requests) < self._unfinished():
            return []
        if self._unfinished is not None and now < max(self._due.values(), default=now):
            return []
        ready = [name for name, due in self._due.items() if due <= now]
        return [
            (name, self._sample(self._requests.pop(name))) for name in ready if self._due.pop(name)
        ]


def play(episodes: int, *, lockstep: bool) -> tuple[float, float]:
    """Seconds for so many episodes, and those that the longest of them takes alone."""
    ended: list[float] = []

    class Counted(Turns):
        def user(self, task: rlvr.Task, transcript: Sequence[Any]) -> str | None:
            told = super().user(task, transcript)
            if told is None:
                ended.append(sum(wait_s + REPLY_S for wait_s in task.meta["waits_s"]))
            return told

    engine = Engine((lambda: episodes - len(ended)) if lockstep else None)
    with Collector(Counted(), engine, group_size=1, sampling=Sampling(max_tokens=64)) as collector:
        started = time.perf_counter()
        found = collector.collect(episodes)
        took = time.perf_counter() - started
    assert len(found.groups) == episodes
    return took, max(ended)


def episodes(args: argparse.Namespace) -> None:
    """Print the table."""
    found = [
        [play(args.episodes, lockstep=lockstep) for lockstep in (False, True)]
        for _ in range(args.repeats)
    ]
    ready, lockstep = (statistics.median(round_[side][0] for round_ in found) for side in (0, 1))
    print(
        "| | longest alone, s | ready, s | lockstep, "
        "s | ready over lockstep |\n|---|--:|--:|--:|--:|"
    )
    print(
        f"| {args.episodes} episodes | {found[0][0][1]:.2f} | {ready:.2f} | {lockstep:.2f} "
        f"| {ready / lockstep:.2f} |"
    )


class Hopeless(Noise):
    """Only a share of the tasks has right and wrong completions."""

    id = "hopeless"
    share: float = 0.5
    reward = rlvr.Correct(
        lambda completion, reference: reference and completion[:1] in tuple("abcdefghijklmnopqrst")
    )

    def task(self, index: int) -> rlvr.Task:
        made = super().task(index)
        useful = rlvr.seeded("useful", index).random() < self.share
        return rlvr.Task(made.id, made.prompt, reference=useful)


def dynamic(args: argparse.Namespace) -> None:
    """Print steps over the ideal for each share and staleness: the mean over batches,
    without the first."""
    for share in (0.5, 0.25):
        for staleness in (0, 1, 3):
            found = list(batches(share, staleness, args.rows, args.repeats + 1))[1:]
            steps, ideal, discarded = (
                statistics.mean(column) for column in zip(*found, strict=True)
            )
            print(
                f"useful {share}, staleness {staleness}: {steps:.0f} steps, ideal {ideal:.0f}, "
                f"x {steps / ideal:.2f}, discarded {discarded:.0%}"
            )


def batches(
    share: float, staleness: int, rows: int, count: int
) -> Iterator[tuple[float, float, float]]:
    """(steps, ideal steps, discarded tokens over those of the ideal) of each batch."""
    env = Hopeless()
    env.share = share
    model, tokenizer = tiny(NOISE, hidden=16, layers=1, heads=2, tied=False)  # steps are counted
    tokenization = Tokenization(tokenizer, end_ids=(tokenizer.eos_token_id,))
    sampler = LocalSampler(model, tokenization, max_rows=rows)
    sampling = Sampling(max_tokens=MAX_TOKENS["skewed"])
    with (
        rlvr.Scorer(env, workers=0) as scorer,
        Collector(
            env,
            sampler,
            group_size=GROUP,
            sampling=sampling,
            scorer=scorer,
            dynamic=True,
            max_staleness=staleness,
        ) as collector,
    ):
        for version in range(count):
            sampler.version = version
            before = sampler.steps
            stats = collector.collect(64, ahead=min(1, staleness)).stats
            ideal = stats["tokens"] / rows
            yield sampler.steps - before, ideal, stats["discarded_tokens"] / stats["tokens"]


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=("refill", "episodes", "dynamic"))
    parser.add_argument("--rollouts", type=int, nargs="*", default=[1024, 64])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(about("torch", "transformers"))
    {"refill": refill, "episodes": episodes, "dynamic": dynamic}[args.which](args)


if __name__ == "__main__":
    main()

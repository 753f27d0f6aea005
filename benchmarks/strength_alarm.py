"""How soon the alarm on weak tasks speaks, and how often without reason:
simulated rewards through its own code.

    python -m benchmarks.strength_alarm [--seeds 200]

A step draws tasks, of which a fifth are weak, and a group of each.  A task is paid with a chance
that is drawn around the policy's mean (standard deviation 0.2), which rises from 0.3 to 0.7 in 400
steps.  From step 200 on the mean at weak tasks rises by a gap more, within 50 steps.  Found: the
first line is of the steps 201 to 300.  False: any line in 1,000 steps without a gap.
"""

import argparse

import numpy as np

from rlvr.train.trends import WeakTasks

SIZES = ((8, 8), (16, 8), (32, 8), (64, 16))
GAPS = (0.2, 0.3, 0.5)
HACKED_FROM, FOUND_BY, STEPS = 200, 300, 1000


def first_line(tasks: int, group_size: int, gap: float, seed: int, steps: int) -> int:
    """The step of the alarm's first line; one more than the last where there is none."""
    draw, number = np.random.default_rng(seed), np.arange(1, steps + 1)
    means = 0.3 + 0.4 * np.minimum(number, 400) / 400
    hacked = gap * np.clip((number - HACKED_FROM) / 50, 0, 1)
    is_weak = draw.uniform(size=(steps, tasks)) < 0.2
    chances = draw.normal(means[:, None] + hacked[:, None] * is_weak, 0.2).clip(0, 1)
    rewards = draw.binomial(group_size, chances) / group_size
    trend = WeakTasks()
    for at, (weak, own) in enumerate(zip(is_weak, rewards, strict=True)):
        kinds = {"weak": own[weak], "strong": own[~weak]}
        metrics = {f"reward_at/{name}": of.mean() for name, of in kinds.items() if len(of)}
        if trend.check(metrics) is not None:
            return at + 1
    return steps + 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    seeds = range(parser.parse_args().seeds)
    gaps = " | ".join(f"found, gap {gap:g}" for gap in GAPS)
    print(f"| tasks × completions a step | false in {STEPS} steps | {gaps} |")
    print("|---|--:|" + "--:|" * len(GAPS))
    for tasks, size in SIZES:
        false = np.mean([first_line(tasks, size, 0.0, seed, STEPS) <= STEPS for seed in seeds])
        found = [
            np.mean(
                [
                    HACKED_FROM < first_line(tasks, size, gap, seed, FOUND_BY) <= FOUND_BY
                    for seed in seeds
                ]
            )
            for gap in GAPS
        ]
        cells = " | ".join(f"{share:.0%}" for share in found)
        print(f"| {tasks} × {size} | {false:.1%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()

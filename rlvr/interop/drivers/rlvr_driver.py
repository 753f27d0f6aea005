"""rlvr's own learner on given tokens, on one rank or several; a tiny random model
gives the log-probabilities."""

from __future__ import annotations

import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

from step_io import Step, TrainerConventions, main, stand_in_for

stand_in_for(())

import torch  # noqa: E402

from rlvr.algo.papers import load_algorithm  # noqa: E402
from rlvr.data.step_files import read_step  # noqa: E402
from rlvr.train.config import Config  # noqa: E402
from rlvr.train.learner import Learner  # noqa: E402
from rlvr.train.policy import Policy  # noqa: E402
from rlvr.train.ranks import Ranks  # noqa: E402
from rlvr.train.rollout_batch import RolloutBatch  # noqa: E402
from rlvr.train.tiny import tiny  # noqa: E402
from rlvr.types import Group, Outcome, Rollout, Score, Task, Verdict  # noqa: E402

__all__ = ["run"]

_CHARSET = "0123456789abcdefghijklmnopqrstuvwxyz"  # 40 words, with the four special ones


def run(step: Step, ranks: Ranks | None = None) -> tuple[str, TrainerConventions]:
    """Make the updates of a case.

    Args:
        step: the case; it gets what the learner records.
        ranks: the processes that make them together; None for this one alone.
    """
    ranks = ranks or Ranks()
    case, groups = step.case, _groups(step)
    size = case["micro"] * case["accumulate"] * case["ranks"]
    with tempfile.TemporaryDirectory() as folder:
        learner = _learner(step, Path(folder), ranks)
        maker = next(part for part in learner.parts if part.makes_batch)
        sampled = RolloutBatch(groups, None, {}, {}, 0.0) if ranks.first else None
        sampled_batch = maker.make_batch(sampled, 0)
        if sampled_batch.batch is None:
            raise NotImplementedError(sampled_batch.why)
        rows = range(len(sampled_batch.batch.rows))
        learner.update(sampled_batch.batch, [list(rows[at : at + size]) for at in rows[::size]])
        if ranks.first:
            _take(step, Path(folder))
        if ranks.world == 1 and not case["given"]:
            step.add_alone(learner.policy.model)
    return f"rlvr {version('rlvr')}", {}


def _groups(step: Step) -> list[Group]:
    arrays, rollouts = step.arrays, dict[int, list[Rollout]]()
    columns = map(step.rows, ("prompt_ids", "token_ids", "mask", "behaviour_logprobs"))
    for i, (prompt, ids, mask, logprobs) in enumerate(zip(*columns, strict=True)):
        is_scored, number = bool(arrays["scored"][i]), int(arrays["group"][i])
        outcome = Outcome.CORRECT if is_scored else Outcome.UNSCORED
        verdict = Verdict(outcome, why="of the case")
        total = float(arrays["score"][i]) if is_scored else None
        rollout = Rollout(
            task=Task(str(number), ""),
            text="",
            prompt_ids=prompt.tolist(),
            completion_ids=ids.tolist(),
            completion_mask=mask.tolist(),
            behaviour_logprobs=(logprobs * mask).tolist(),
            weights_version=0,
            truncated=bool(arrays["truncated"][i]),
            score=Score(total, {} if total is None else {"case": total}, verdict),
        )
        rollouts.setdefault(number, []).append(rollout)
    return [Group(rows[0].task, rows) for rows in rollouts.values()]


def _learner(step: Step, folder: Path, ranks: Ranks) -> Learner:
    """At the numbers of the case, which are not always the paper's."""
    case, numbers = step.case, step.numbers
    name = numbers["name"]
    chosen: dict[str, object] = {"kl": "none"}
    if name != "rloo":
        chosen |= {f"clip_{key}": value for key, value in numbers["clip"].items() if value}
        chosen["masked_vote"] = numbers["masked_vote"]
    if name == "dr_grpo":  # with a mean over tokens, as the case has it
        name, chosen["scale"], chosen["aggregation"] = "grpo", False, "token_mean"
    if kl := numbers["kl"]:
        chosen = {k: v for k, v in chosen.items() if k != "kl"} | {
            "kl_coefficient": kl["coefficient"]
        }
    if case.get("masks_truncated"):
        chosen["overlong"] = "mask"
    for rule in numbers.get("correction", []):
        low = f"{rule['low']}:" if rule["kind"] == "band" else ""
        chosen["correction"] = f"{rule['level']}:{rule['kind']}:{low}{rule['high']}"
    config = Config(
        env="case",
        model="tiny",
        run=folder,
        algorithm=load_algorithm(name, **chosen),
        steps=1,
        temperature=case.get("temperature", 1.0),
        max_tokens=case["longest"],
        lr=1e-12,
        step_files=1,
    )
    model = tiny(_CHARSET, hidden=32, heads=2, layers=1)
    learner = Learner(Policy(*model, max_tokens=40 * case["micro"]), config, ranks)
    if ranks.world == 1:  # away from the reference
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in learner.parameters:
                parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.03)
    return learner


def _take(step: Step, folder: Path) -> None:
    """What the learner's file has of the case."""
    recorded = read_step(folder / "steps" / "step-00000001.safetensors")
    updates = list(recorded.updates)
    if step.numbers["name"] == "rloo":  # its paper's sum over tokens is not the case's mean
        updates = []
    step.arrays |= {
        name: array
        for name, array in recorded.arrays.items()
        if updates or not name.startswith("update")
    }
    step.updates = updates


if __name__ == "__main__":
    with Ranks.of_environment(torch.device("cpu")) as ranks:
        main(partial(run, ranks=ranks))

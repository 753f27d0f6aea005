"""Recorded steps whose loss is more than a number per token: critics, trust regions, whole distributions, one's own."""

import numpy as np
import pytest

from rlvr.algo.judge.distributions import divergence
from rlvr.algo.judge.verify import verify
from rlvr.algo.papers import load_algorithm
from rlvr.cli.entry import main
from rlvr.data.step_files import StepFile, read_step
from rlvr.errors import DataError
from rlvr.train.step_model import StepModel, verify_with_models
from rlvr.train.step_own import own_formulas
from tests.processes import in_turn
from tests.train.bandit import policy, run_to_end

SETTINGS = {"prompts": 2, "group_size": 4, "steps": 2, "step_files": 1}
OWN = """
from dataclasses import dataclass
from rlvr.algo.advantages import group_advantages
from rlvr.algo.papers.base import Proximal

@dataclass(frozen=True, kw_only=True)
class Half(Proximal):
    needs = frozenset({"siblings"})
    power: float = 2.0

    def advantages(self, groups):
        return group_advantages(groups.scores, groups.scored, scale=False) / 2

    def loss(self, inputs):
        return -inputs.ratio * inputs.advantages + 0.01 * (inputs.ratio - 1).abs() ** self.power
"""


def last_step(folder, algorithm, made=None, **settings) -> StepFile:
    """Of a short run; the second, in which a ratio is no longer 1."""
    run_to_end(folder, made=made, algorithm=algorithm, **SETTINGS | settings)
    return read_step(max((folder / "steps").iterdir()))


def found(step: StepFile, **more) -> dict[str, str]:
    return {one.quantity: one.status for one in verify(step, **more)}


def changed(step: StepFile, name: str, at: int, by: float) -> StepFile:
    values = step.arrays[name].copy()
    values[at] += by
    return StepFile(step.head, {**step.arrays, name: values})


def light(step: StepFile) -> StepFile:
    """Without what the policy's loss is recomputed from and explained, which takes seconds."""
    kept = {
        name: array
        for name, array in step.arrays.items()
        if not name.endswith((".logprobs", ".weights"))
    }
    return StepFile(step.head, kept)


@pytest.mark.parametrize("backbone", in_turn(["own", "shared"], 2))
def test_a_critics_loss_is_judged(backbone: str, tmp_path):
    """Its mean and each slope; a target, a value and a slope that are off are named with their place."""
    step = last_step(tmp_path / "run", load_algorithm("ppo", critic_backbone=backbone))
    assert set(found(step).values()) == {"equal"}
    assert np.abs(step.arrays["update0.value_weights"]).max() > 0
    at = int(np.flatnonzero(step.arrays["mask"])[3])
    for name, place in (("returns", at), ("update0.values", 3), ("update0.value_weights", 3)):
        [worst] = [
            one
            for one in verify(changed(light(step), name, place, 0.05))
            if one.quantity == "update 0: value weights"
        ]
        assert worst.status == "departs", name
        assert worst.token is not None
    head = dict(step.head)
    head["updates"] = [{**head["updates"][0], "terms": {"value_loss": 9.0}}]
    assert found(StepFile(head, light(step).arrays))["update 0: value_loss"] == "departs"


def test_a_step_in_a_trust_region_is_judged(tmp_path):
    """The surrogate after it, and whether it stayed in the region."""
    step = last_step(tmp_path / "run", load_algorithm("trpo"))
    findings = found(step)
    assert findings["update 0: loss"] == findings["update 0: region_kl"] == "equal"
    update = step.head["updates"][0]
    far = {**update, "terms": {**update["terms"], "region_kl": 0.1}}
    assert found(StepFile({**step.head, "updates": [far]}, step.arrays))["update 0: region_kl"] == (
        "departs"
    )
    at = int(np.argmax(np.abs(step.arrays["advantages"])))
    assert found(changed(step, "advantages", at, 0.1))["update 0: loss"] == "departs"


@pytest.mark.parametrize("numbers", in_turn([{}, {"beta": 0.0}, {"beta": 1.0, "top_k": 3}], 3))
def test_a_step_of_distillation_is_judged(numbers, tmp_path):
    """Denominators from the file alone; with both models each divergence and the gradient."""
    first, teacher = policy(), policy(seed=5)
    first.save(tmp_path / "first")
    teacher.save(tmp_path / "teacher")
    algorithm = load_algorithm("gkd", **numbers)
    run_to_end(
        tmp_path / "run",
        made=first,
        algorithm=algorithm,
        teacher=str(tmp_path / "teacher"),
        **SETTINGS,
    )
    step = read_step(tmp_path / "run" / "steps" / "step-00000001.safetensors")
    assert found(step)["update 0: divergence weights"] == "equal"
    assert set(found(step).values()) == {"equal"}
    models = StepModel.load(tmp_path / "first"), StepModel.load(tmp_path / "teacher")

    def with_models(step: StepFile) -> dict[str, str]:
        both = verify_with_models(step, models[0], teacher=models[1])
        return {one.quantity: one.status for one in both}

    assert set(with_models(step).values()) == {"equal"}
    assert with_models(step)["update 0: gradient"] == "equal"
    off = with_models(changed(step, "update0.divergences", 2, 0.01))
    assert off["update 0: divergences"] == "departs"
    off = with_models(changed(step, "update0.divergence_weights", 2, 0.01))
    assert off["update 0: gradient"] == "departs"


def test_divergences_have_the_properties_of_their_kind():
    """0 between equals, never below it, and symmetric at a half."""
    draw = np.random.default_rng(3)
    logits = draw.normal(size=(2, 50, 7)) * 3
    p, q = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    for beta in (0.0, 0.3, 0.5, 1.0):
        for top_k in (None, 1, 3, 9):
            assert (divergence(p, q, beta, top_k) >= -1e-12).all()
            assert np.abs(divergence(p, p, beta, top_k)).max() < 1e-12
    np.testing.assert_allclose(divergence(p, q, 0.5), divergence(q, p, 0.5), atol=1e-12)


def test_a_users_algorithm_is_judged_by_its_own_functions(tmp_path, capsys):
    """With --algorithm, as long as its file is the one of the run."""
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    spec = f"{file}:Half"
    step = last_step(tmp_path / "run", load_algorithm(spec))
    path = str(tmp_path / "run" / "steps" / "step-00000002.safetensors")
    assert set(found(step).values()) == {"not compared"}
    assert main(["step", "verify", path, "--algorithm", spec]) == 0
    said = capsys.readouterr().out
    assert "advantages: equal" in said
    assert "update 0: weights: equal" in said
    assert "update 0: loss: equal" in said
    own = own_formulas(step, spec)
    at = int(np.argmax(np.abs(step.arrays["update0.weights"])))
    assert found(changed(step, "update0.weights", at, 0.01), own=own)["update 0: weights"] == (
        "departs"
    )
    assert found(changed(light(step), "advantages", at, 0.3), own=own)["advantages"] == "departs"
    numbers = {**step.head["algorithm"], "digest": "0" * 32}
    with pytest.raises(DataError, match="another source"):
        own_formulas(StepFile({**step.head, "algorithm": numbers}, step.arrays), spec)
    assert main(["step", "verify", path, "--algorithm", "grpo"]) == 2
    assert "grpo is published" in capsys.readouterr().err


def test_updates_are_equal_parts_of_whole_groups(tmp_path):
    """Another number of them, a group in two of them, and a row that was not computed are named."""
    settings = {"prompts": 32, "updates": 3, "steps": 1}
    step = last_step(tmp_path / "run", load_algorithm("grpo"), **settings)
    assert set(found(step).values()) == {"equal"}
    rows = [step.arrays[f"update{number}.rows"] for number in range(len(step.updates))]
    assert len(rows) == 2  # of 16 groups: a third of 32 groups of 4 rows has fewer than 64
    arrays = light(step).arrays
    fewer = StepFile({**step.head, "updates_wanted": 1}, arrays)
    assert found(fewer)["update 0: groups"] == "departs"
    torn = StepFile(step.head, {**arrays, "update0.rows": rows[0][:-1]})
    assert found(torn)["update 0: groups"] == "departs"
    computed = step.arrays["update1.computed"]
    length = int(np.diff(step.arrays["offsets"])[computed[-1]])
    arrays["update1.logprobs"] = step.arrays["update1.logprobs"][:-length]
    arrays["update1.computed"] = computed[:-1]
    updates = [{**update, "loss": None, "terms": {}} for update in step.updates]
    less = StepFile({**step.head, "updates": updates}, arrays)
    assert found(less)["update 1: computed"] == "departs"


def test_an_update_that_was_left_out_without_need_is_named(tmp_path):
    """One whose loss is no number was left out rightly."""
    step = last_step(tmp_path / "run", load_algorithm("grpo"))
    assert set(found(step).values()) == {"equal"}
    left_out = StepFile({**step.head, "left_out": True}, step.arrays)
    assert found(left_out)["update 0: left out"] == "departs"
    update = {**step.head["updates"][0], "loss": float("nan")}
    head = {**left_out.head, "updates": [update, *step.head["updates"][1:]]}
    assert "update 0: left out" not in found(StepFile(head, step.arrays))

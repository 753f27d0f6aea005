"""Presets are data: every name leads to a function, and a setting that cannot work is refused where it is written."""

import inspect
import subprocess
import sys
from dataclasses import replace
from typing import get_args

import pytest

from rlvr.algo import corrections, kl, objectives, presets, registry
from rlvr.algo.presets import PRESETS, Algorithm, Clip, Correction, Kl, Reset, preset
from rlvr.errors import UsageError
from tests.algo.plain import unchecked

PLAIN = unchecked(presets)


def test_the_promised_algorithms_are_there():
    """The README names these."""
    ours = "grpo dapo prorl dr_grpo rloo reinforce_pp magistral vineppo gspo cispo sapo ppo ppo_kl trpo a2c reinforce"
    assert list(PRESETS) == f"{ours} dpo ipo kto reward_model process_reward_model rft".split()


@pytest.mark.parametrize("kind", ["advantage", "objective", "aggregation", "correction"])
def test_every_name_is_a_function(kind):
    """A search for the name in the code finds the formula; its arguments are those that the entry passes."""
    for name in registry.names(kind):
        entry = registry.function(kind, name)
        known = inspect.signature(inspect.unwrap(entry.call)).parameters
        assert entry.call.__name__ == entry.attribute, name
        assert set(entry.inputs) | set(entry.settings) <= set(known), name
        required = {
            n for n, p in known.items() if p.kind is p.KEYWORD_ONLY and p.default is p.empty
        }
        assert required <= set(entry.inputs) | set(entry.settings), name


def test_a_function_of_ones_own_is_an_entry(monkeypatch):
    """Register it, name it in an algorithm: nothing else has to know of it."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    registry.register(
        "objective",
        "vanilla",
        registry.Function("rlvr.algo.objectives", "mine", attribute="reinforce"),
    )
    mine = Algorithm("mine", "rloo_advantages", "vanilla", "token_mean", epochs=2)
    assert mine.pieces["objective"].call is objectives.reinforce
    with pytest.raises(
        UsageError, match=r"there is already the objective 'vanilla', of rlvr\.algo\.objectives"
    ):
        registry.register("objective", "vanilla", registry.Function("elsewhere", "theirs"))
    with pytest.raises(UsageError, match="needs is 'luck'"):
        unchecked(registry).Function("mine", "mine", needs=("luck",))


def test_kinds_of_correction_and_kl_are_those_of_the_functions():
    """Presets repeat them, since they load no torch."""
    for kind in ("truncated", "masked"):
        assert callable(getattr(corrections, kind))
        Correction(kind=kind)
    assert get_args(presets.Estimator) == get_args(kl.Estimator)
    for level in get_args(corrections.Level):
        Correction(level=level)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_where_it_is_from(name: str):
    """Paper and section for its numbers."""
    assert PRESETS[name].paper.startswith(("arXiv:", "doi:"))
    assert len(PRESETS[name].sources) > 20


def test_published_numbers():
    """As printed: DAPO 4.1 and ProRL 3.2, whose mini-batch of 64 prompts x 16 makes 4 updates a step."""
    dapo, prorl = PRESETS["dapo"], PRESETS["prorl"]
    assert (dapo.clip, dapo.kl, dapo.aggregation) == (Clip(0.2, 0.28), None, "token_mean")
    assert dapo.dynamic_sampling
    assert dapo.overlong == "soft"
    assert (prorl.clip, prorl.temperature, prorl.minibatch) == (Clip(0.2, 0.4), 1.2, 1024)
    assert prorl.reset is not None
    assert prorl.reset.optimizer
    assert PRESETS["grpo"].kl == Kl("k3", 0.04, "loss")


def test_those_that_need_more_than_scores_say_so():
    """Values of prefixes for vineppo, nothing for the rest."""
    assert {name for name, a in PRESETS.items() if "prefix_values" in a.needs} == {"vineppo"}


def test_a_misspelt_name_gets_the_nearest():
    """One line: value, rule, fix."""
    with pytest.raises(
        UsageError,
        match=r"algorithm is 'gpro'; it must be one of 'grpo', 'dapo', .*; did you mean 'g[rs]po'\?",
    ):
        preset("gpro")
    assert preset("dapo") is PRESETS["dapo"]


def test_presets_load_no_torch():
    """`rlvr train --help` lists them."""
    code = "import sys, rlvr.algo.presets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": "group"}, r"advantage is 'group'; it must be one of 'group_advantages'"),
        ({"objective": "ppo"}, r"objective is 'ppo'; it must be one of"),
        ({"aggregation": "mean"}, r"aggregation is 'mean'"),
        ({"overlong": "drop"}, r"overlong is 'drop'"),
        ({"gamma": 1.1}, r"gamma is 1\.1; it must be a number of at least 0 and of at most 1"),
        ({"lam": -0.1}, r"lam is -0\.1"),
        ({"entropy": -0.01}, r"entropy is -0\.01; it must be a number of at least 0"),
        (
            {"objective": "reinforce", "clip": None, "epochs": 2},
            r"'reinforce' with epochs 2: it has no ratio",
        ),
        (
            {"advantage": "process_advantages", "kl": Kl("k1", 0.1, "reward")},
            r"no place for a KL penalty in the rew",
        ),
        ({"clip": None}, r"objective 'clipped' with clip None"),
        ({"objective": "reinforce"}, r"objective 'reinforce' with clip Clip"),
        ({"reset": Reset(every_steps=10)}, r"reset without kl"),
        ({"advantage": "gae"}, r"gae with critic None: give Critic\(\) \(--critic-backbone own\)"),
        (
            {"critic": presets.Critic()},
            r"group_advantages with critic Critic\(.*: it uses none, so leave critic out",
        ),
        ({"objective": "ppo_kl", "clip": None}, r"ppo_kl with trust None: give Trust\(\)"),
        ({"n_steps": 0}, r"n_steps is 0"),
        ({"baseline": "mean"}, r"baseline is 'mean'"),
        ({"entropy_share": 0.0}, r"entropy_share is 0\.0; it must be a number above 0"),
        ({"mixing": presets.Mixing()}, r"mixing without kl"),
        (
            {"kl": Kl("k1", 0.1, "reward"), "reset": Reset(kl_share=0.5)},
            r"reset\.kl_share with the KL in the reward",
        ),
        ({"epochs": 0}, r"epochs is 0; it must be a whole number of at least 1"),
    ],
)
def test_a_combination_that_cannot_work_is_refused(changes: dict, message: str):
    """When it is written, not after the first batch was sampled."""
    with pytest.raises(UsageError, match=message):
        replace(PLAIN.PRESETS["dapo"], **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: PLAIN.Clip(1.2, 0.2),
            r"clip\.low is 1\.2; it must be a number of at least 0 and of at most 1",
        ),
        (
            lambda: PLAIN.Clip(0.2, 0.2, dual=1.1),
            r"clip\.dual is 1\.1; it must be a number above 1\.2, which is 1 \+ high",
        ),
        (lambda: PLAIN.Kl("k4", 0.1, "loss"), r"kl\.estimator is 'k4'"),
        (lambda: PLAIN.Kl("k3", 0.1, "advantage"), r"kl\.place is 'advantage'"),
        (
            lambda: PLAIN.Kl("k3", 0.0, "loss"),
            r"kl\.coefficient is 0\.0; it must be a number above 0, and kl None for no penalty",
        ),
        (lambda: PLAIN.Correction(kind="tis"), r"correction\.kind is 'tis'"),
        (lambda: PLAIN.Correction(level="row"), r"correction\.level is 'row'"),
        (
            lambda: PLAIN.Correction(high=0.5),
            r"correction keeps weights in \[0\.0, 0\.5\]; 1 must lie inside",
        ),
        (lambda: PLAIN.Reset(), r"never happens; give one"),
        (lambda: PLAIN.Reset(kl_share=1.0), r"reset\.kl_share is 1\.0"),
        (lambda: PLAIN.Kl("k1", 0.1, "loss", rule="ziegler"), r"kl\.target is None"),
        (
            lambda: PLAIN.Kl("k1", 0.1, "reward", weighted=True),
            r"kl\.weighted is of a penalty in the loss",
        ),
        (lambda: PLAIN.Trust(rule="linear"), r"trust\.rule is 'linear'"),
        (lambda: PLAIN.Critic(backbone="other"), r"critic\.backbone is 'other'"),
        (lambda: PLAIN.Critic(value_clip=0.0), r"critic\.value_clip is 0\.0"),
        (lambda: PLAIN.Critic(warmup=-1), r"critic\.warmup is -1"),
        (lambda: PLAIN.Subset(0), r"subset\.size is 0"),
        (lambda: PLAIN.Subset(2, "best"), r"subset\.rule is 'best'"),
        (lambda: PLAIN.EntropyTarget(least=0.5, most=0.1), r"entropy_target\.most is 0\.1"),
        (lambda: PLAIN.Mixing(share=0.0), r"mixing\.share is 0\.0"),
        (lambda: PLAIN.SoftClip(positive=0.0), r"soft_clip\.positive is 0\.0"),
        (
            lambda: PLAIN.Reset(every_steps=0),
            r"reset\.every_steps is 0; it must be a whole number of at least 1, or None",
        ),
    ],
)
def test_a_number_outside_its_range_is_refused(make, message: str):
    """With the field's name as the user wrote it."""
    with pytest.raises(UsageError, match=message):
        make()


def test_an_algorithm_of_ones_own():
    """A paper of tomorrow is a few fields."""
    mine = Algorithm("mine", "rloo_advantages", "gspo", "sequence_mean", clip=Clip(3e-4, 4e-4))
    assert mine.kl is None
    assert mine.epochs == 1

"""Papers are classes: each says where its numbers stand, and what cannot work is refused where it is written."""

import functools
import itertools
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest
import torch

from rlvr.algo import corrections, kl, parts
from rlvr.algo.papers import NAMES, algorithm_class, load_algorithm, papers_table
from rlvr.algo.papers.base import Inputs, OfTokens
from rlvr.algo.papers.numbers import as_typed, paper_numbers
from rlvr.algo.parts import Clip, Kl
from rlvr.errors import UsageError
from rlvr.train.config import Config
from tests.algo.plain import unchecked
from tests.algo.test_papers_by_hand import loss_with
from tests.test_package import ROOT

PLAIN = unchecked(parts)
TWO = ("token:truncate:2", "sequence:mask:0.5:3")


def test_the_promised_algorithms_are_there():
    """The README names these."""
    ours = "grpo dapo prorl dr_grpo rloo reinforce_pp magistral vineppo gspo cispo sapo ppo ppo_kl trpo a2c reinforce"
    theirs = "dpo ipo kto reward_model process_reward_model rft"
    assert NAMES[:22] == [*ours.split(), *theirs.split()]


def test_kinds_of_correction_and_kl_are_those_of_the_functions():
    """The parts repeat them, since they load no torch."""
    assert get_args(parts.Estimator) == get_args(kl.Estimator)
    assert get_args(corrections.Level) == get_args(parts.Level)


@pytest.mark.parametrize("name", NAMES)
def test_a_paper_says_where_it_is_from(name: str):
    """Paper, equations, a section for its numbers, and a text for each of them."""
    kind = algorithm_class(name)
    assert kind.name == name
    assert kind.title
    assert kind.equations
    assert kind.paper.startswith(("arXiv:", "doi:"))
    assert len(kind.sources) > 20
    assert all(number.help for number in paper_numbers(kind).values())


@pytest.mark.parametrize(
    ("value", "hint", "typed"),
    [
        ("none", float | None, None),
        (2, float | None, 2.0),
        ([1, 2], tuple[float, float], (1.0, 2.0)),
        ([1, 2, 3], tuple[float, ...], (1.0, 2.0, 3.0)),
        (",".join(TWO), tuple[parts.Correction, ...], tuple(map(parts.Correction.read, TWO))),
        ("one", float | None, "it must be a number or none"),
        ([1, 2, 3], tuple[float, float], "it must be a list of 2 numbers"),
        (["a"], tuple[float, ...], "it must be a list, each a number"),
        (True, int, "it must be a whole number"),
        (float("nan"), float, "it must be a number"),
    ],
)
def test_a_value_is_read_as_its_type_has_it(value: object, hint: object, typed: object):
    """As TOML and JSON have it; what has another type is refused with the rule."""
    if isinstance(typed, str):
        with pytest.raises(UsageError, match=f"x is .*; {typed}"):
            as_typed("x", value, hint)
    else:
        assert as_typed("x", value, hint) == typed


def test_published_numbers():
    """As printed: DAPO 4.1 and ProRL 3.2, whose mini-batch of 64 prompts x 16 makes 4 updates a step."""
    dapo, prorl = load_algorithm("dapo"), load_algorithm("prorl")
    assert (dapo.clip, dapo.kl, dapo.aggregation) == (Clip(0.2, 0.28), None, "token_mean")
    assert (dapo.updates, dapo.dynamic_sampling, dapo.overlong) == (16, True, "soft")
    # MiniMax-M1, 3.1: "the dynamic sampling and length penalty techniques" of DAPO.
    assert load_algorithm("cispo").overlong == "soft"
    assert (prorl.clip, prorl.temperature, prorl.updates) == (Clip(0.2, 0.4), 1.2, 4)
    assert prorl.reset is not None
    assert prorl.reset.optimizer
    assert load_algorithm("grpo").kl == Kl("k3", 0.04, "loss")


def test_a_misspelt_name_gets_the_nearest():
    """One line: value, rule, fix."""
    with pytest.raises(UsageError, match=r"no algorithm 'gpro'; did you mean 'g[rs]po'\?"):
        load_algorithm("gpro")


def test_papers_load_no_torch():
    """`rlvr train --help` and `rlvr algorithms` read all of them."""
    code = (
        "import sys; from rlvr.algo.papers import NAMES, load_algorithm, papers_table; "
        "[load_algorithm(n) for n in NAMES]; papers_table(); import rlvr.cli.algorithms, rlvr.cli.train; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_page_has_the_table():
    """docs/algorithms.md is what `papers_table` makes of the files."""
    assert papers_table() in (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [None, *NAMES])
def test_the_command_shows_every_name_and_number(say, monkeypatch, name):
    """Also on a narrow terminal: half a name is no use."""
    monkeypatch.setenv("COLUMNS", "80")
    code, said = say("algorithms", *([name] if name else []))
    assert code == 0
    if name is None:
        assert all(one in said for one in NAMES)
    else:
        assert algorithm_class(name).paper in said


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("dapo", {"overlong": "drop"}, r"overlong is str 'drop'; it must be one of"),
        (
            "ppo",
            {"gamma": 1.1},
            r"gamma is 1\.1; it must be a number of at least 0 and of at most 1",
        ),
        ("ppo", {"lam": -0.1}, r"lam is -0\.1"),
        ("dapo", {"entropy": -0.01}, r"entropy is -0\.01; it must be a number of at least 0"),
        ("reinforce", {"epochs": 2}, r"epochs is no number of reinforce; grpo, "),
        ("grpo_process", {"kl_place": "reward"}, r"no place for a KL penalty in the rew"),
        # GDPO reads the parts of a reward, in which a penalty would be lost without a word.
        ("gdpo", {"kl_coefficient": 0.1, "kl_place": "reward"}, r"gdpo has no place for a KL pen"),
        ("dapo", {"reset_every_steps": 10}, r"reset without kl"),
        (
            "dapo",
            {"critic_lr": 1e-3},
            r"critic_lr is no number of dapo; ppo, ppo_kl, trpo, a2c have it",
        ),
        ("a2c", {"n_steps": 0}, r"n_steps is 0"),
        ("reinforce", {"baseline": "mean"}, r"baseline is str 'mean'"),
        ("dapo", {"entropy_share": 0.0}, r"entropy_share is 0\.0; it must be a number above 0"),
        ("dapo", {"mixing_share": 0.5}, r"mixing without kl"),
        (
            "grpo",
            {"kl_place": "reward", "reset_kl_share": 0.5},
            r"reset\.kl_share with the KL in the reward",
        ),
        ("dapo", {"epochs": 0}, r"epochs is 0; it must be a whole number of at least 1"),
        ("dr_grpo", {"aggregation": "token_mean"}, r"grpo, dapo, grpo_process have it"),
    ],
)
def test_a_number_that_cannot_work_is_refused(name: str, changes: dict, message: str):
    """When it is written, not after the first batch was sampled."""
    with pytest.raises(UsageError, match=message):
        load_algorithm(name, **changes)


def test_no_flag_is_accepted_where_nothing_reads_it(monkeypatch):
    """Every number of every paper on every paper: its own are taken, others are refused by name."""
    numbers = "rlvr.algo.papers.numbers"
    monkeypatch.setattr(f"{numbers}.nearest", lambda *names: "")  # which is slow, as are hints
    monkeypatch.setattr(f"{numbers}.get_type_hints", functools.cache(get_type_hints))
    every = {flat for name in NAMES for flat in paper_numbers(algorithm_class(name))}
    for name, flat in itertools.product(NAMES, every):
        if flat not in paper_numbers(algorithm_class(name)):
            with pytest.raises(UsageError, match=rf"{flat} is no number of {name}.*ha(s|ve) it"):
                load_algorithm(name, **{flat: 1})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vine_k": 3}, "vine_k is int 3, and nothing reads it with grpo"),
        ({"max_tries": 3}, "max_tries is int 3, and nothing reads it with grpo"),
        ({"overlong_cache": 3}, "overlong_cache is int 3"),
        ({"reward_model_weight": 0.5}, "of a reward model"),
        ({"reward_model_bounds": (0, 0.5)}, "of a reward model"),
    ],
)
def test_a_setting_of_the_run_that_nothing_reads_is_refused(tmp_path, settings, said):
    """By name, before a model is loaded."""
    with pytest.raises(UsageError, match=said):
        Config(env="e", model="m", run=tmp_path, algorithm="grpo", **settings)


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("dapo", {"group_size": 16}, "dapo: 2 updates of 8 groups × 16; the paper: 16 of 32 × 16"),
        ("grpo", {}, "grpo: 1 update of 16 groups × 8; the paper: 1 of 16 × 64"),
        ("ppo", {}, "ppo: 2 updates of 64 groups × 1; the paper: 8 of 64 × 1"),
        ("sapo", {}, "sapo: 2 updates of 8 groups × 8; the number is ours, the paper prints none"),
        ("dapo", {"prompts": 8}, "dapo: 1 update of 8 groups × 8; the paper: 16 of 32 × 16"),
        (
            "dapo",
            {"updates": 4, "prompts": 64},
            "dapo: 4 updates of 16 groups × 8; the paper: 16 of",
        ),
    ],
)
def test_the_first_line_says_what_an_update_is(tmp_path, name, settings, line):
    """And what the paper's is; by default there are two where the paper has several."""
    config = Config(env="e", model="m", run=tmp_path, algorithm=name, **settings).resolve()
    assert config.updates_line.startswith(line)


def test_the_first_line_says_why_there_are_fewer_updates_than_a_users_algorithm_declares(tmp_path):
    """It said that the number was ours, and that the paper of the user's own algorithm prints none."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from rlvr.algo.papers.base import Proximal\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(Proximal):\n"
        "    updates = 2\n"
        "    aggregation = 'token_mean'\n"
        "    def loss(self, inputs): ...\n"
    )
    options = {"env": "e", "model": "m", "run": tmp_path, "algorithm": f"{file}:Mine"}
    lines = {
        prompts: Config(**options, prompts=prompts, group_size=8).resolve().updates_line
        for prompts in (8, 16)
    }
    assert lines[16].endswith(":Mine: 2 updates of 8 groups × 8")
    few = ":Mine: 1 update of 8 groups × 8, not 2: each has at least 8 groups and 64 completions"
    assert lines[8].endswith(few)


POLICIES = [name for name in NAMES if algorithm_class(name).examples is None]
RATIO_BOUNDS = ("clip", "trust")


def test_every_clip_can_act_at_defaults_but_that_of_grpo(tmp_path):
    """A batch makes two updates or more, so that ratios leave 1; GRPO keeps the one of its paper (4.2)."""
    idle = set()
    for name in POLICIES:
        algorithm = load_algorithm(name)
        more = {"step_reward": "turns"} if name == "grpo_process" else {}
        if all(getattr(algorithm, bound) is None for bound in RATIO_BOUNDS):
            continue
        run = Config(env="e", model="m", run=tmp_path, algorithm=algorithm, **more).resolve()
        if run.updates_per_batch * algorithm.epochs == 1:
            idle.add(name)
    assert idle == {"grpo", "grpo_process"}


def test_no_two_papers_have_the_same_gradient_in_a_later_update():
    """At ratio 1 most are equal, which is why the number of updates is the paper's."""
    found = {}
    for name in POLICIES:
        loss, logprobs = loss_with(load_algorithm(name))
        loss.backward()
        found[name] = logprobs.grad
    same = {
        (one, other)
        for one, other in itertools.combinations(POLICIES, 2)
        if torch.allclose(
            found[one] / found[one].norm(), found[other] / found[other].norm(), atol=1e-6
        )
    }
    assert same == set()


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_not_declared_is_not_there(name: str):
    """Reading it is an error by name, and not a None that a formula takes."""
    made = load_algorithm(name)
    with pytest.raises(UsageError, match=rf'{name} reads inputs.entropies .* add "entropies" to'):
        _ = Inputs(made, {"entropies": None}).entropies
    with pytest.raises(UsageError, match="no input 'logprob' here; did you mean 'logprobs'"):
        _ = Inputs(made, {"logprobs": None}).logprob


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
        (lambda: PLAIN.Correction(low=0.5), r"truncate has no lower bound"),
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


OWN = """
from dataclasses import dataclass
from rlvr.algo.papers.base import Proximal

class Plain(Proximal):
    eps: float = 0.4

@dataclass(frozen=True, kw_only=True)
class Unknown(Proximal):
    reads = frozenset({"refs"})

@dataclass(frozen=True, kw_only=True)
class Open(Proximal):
    k: int

@dataclass(frozen=True, kw_only=True)
class Idle(Proximal):
    updates = 0

@dataclass(frozen=True, kw_only=True)
class Taken(Proximal):
    name = "grpo"
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Plain", "is no dataclass, so that eps would be no number of it; put @dataclass"),
        ("Unknown", "reads 'refs', and nothing computes that"),
        ("Open", "k of .*:Open has no default; give it the paper's number"),
        ("Idle", "updates of .*:Idle is 0; it must be a whole number of at least 1"),
        ("Taken", "has the name 'grpo', which is that of a published algorithm"),
        ("Proximol", "has no 'Proximol'; it has Plain, Unknown, Open, Idle, Taken"),
    ],
)
def test_a_class_of_ones_own_that_cannot_work_is_one_line(tmp_path, name: str, said: str):
    """Before a model is loaded, with the way out."""
    file = tmp_path / "own.py"
    file.write_text(OWN)
    with pytest.raises(UsageError, match=said):
        load_algorithm(f"{file}:{name}")


def test_an_override_of_a_method_that_was_renamed_is_refused():
    """It would never be called, and the advantages would be whitened after all."""
    with pytest.raises(UsageError, match=r"Centred\.whitened .* whiten_advantages"):

        class Centred(OfTokens):
            def whitened(self, advantages, mask):
                return advantages

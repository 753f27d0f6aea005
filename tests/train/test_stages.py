"""Stages: what a run changes on its way, when, and that stopping anywhere changes nothing."""

import json
import math
import os
import random
import signal
import traceback
from pathlib import Path

import pytest

import rlvr
from rlvr.algo.papers import load_algorithm
from rlvr.algo.parts import Reset
from rlvr.errors import UsageError
from rlvr.train import checkpoint
from rlvr.train.config import Config
from rlvr.train.schedule import LrClock, NumberSchedule, scheduled_rate
from rlvr.train.settings import read_settings
from rlvr.train.stage import read_stages
from rlvr.train.stages import Stages
from tests.train.bandit import Bandit, run_to_end, trainer
from tests.train.test_resume import differences, logged, state, stopped_after


def config(*stages, **settings) -> Config:
    settings = {"steps": 20, "algorithm": "prorl", "overlong": "keep"} | settings
    return Config(env="bandit", model="tiny", run=Path("runs/x"), stage=stages, **settings)


# ---------------------------------------------------------------------------------- the text


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        (" at = 5 , max-tokens=16384", "at=5,max_tokens=16384"),
        ('env="a:0.5,x=1 b:0.5",at=5', 'at=5,env="a:0.5,x=1 b:0.5"'),
        ("at=5,option.data=t.jsonl", "at=5,option.data=t.jsonl"),
        ({"at": 5, "option": {"difficulty": 2}}, "at=5,option.difficulty=2"),
        ({"at": 5, "option": {"label": "2"}}, 'at=5,option.label="2"'),
        ("at=stalled:3,reset=all", "at=stalled:3,reset=all"),
        ("at=5,entropy=linear( 0.1 ,  7)", "at=5,entropy=linear(0.1, 7)"),
        ("at=5,entropy=towards(entropy,0.3)", "at=5,entropy=towards(entropy, 0.3, 0.5)"),
        ("at=5,dynamic_sampling=False", "at=5,dynamic_sampling=false"),
    ],
)
def test_a_stage_is_recorded_in_one_form_which_reads_as_itself(text, recorded):
    """So that a run from flags goes on from TOML."""
    assert read_stages("stage", [text]) == (recorded,)
    assert read_stages("stage", [recorded]) == (recorded,)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (["max_tokens=5"], "it has no at"),
        (["at=5"], "it changes nothing"),
        (["at=-1,lr=1"], "at is -1"),
        (["at=2.5,lr=1"], "at is 2.5"),
        (["at=soon,lr=1"], "at is str 'soon'; give a step"),
        (["at=stalled:0,lr=1"], "at=stalled is 0"),
        (["at=truncated:2,lr=1"], "at=truncated is 2"),
        (["at=tired:2,lr=1"], "at is str 'tired:2'"),
        (["at=5,lr"], "'lr' is no setting"),
        (["at=5,lr=1,lr=2"], "lr is given twice"),
        (["at=5,entropy=linear(0.1"], "not closed"),
        (["at=5,entropy=linear()"], "is no schedule"),
        (["at=5,entropy=linear(0.1, 0)"], "takes 0 steps"),
        (["at=5,entropy=towards(entropy, -1)"], "target must be above 0"),
        (["at=5,entropy=linear(nan)"], "must be finite"),
        (["at=5,reset=everything"], "reset is 'everything'"),
        (["at=5,lr=1", "at=5,grad_clip=1"], "two stages begin at step 5"),
        (["at=5,lr=1", "at=4,grad_clip=1"], "give them in order"),
        (["at=0,lr=1"], "at is 0, where only schedules begin"),
        (["at=5,model=x"], "model is the same in all of a run"),
        (["at=5,seed=2"], "seed is the same in all of a run"),
        (["at=5,clip_hihg=0.3"], "clip_hihg is no number of prorl.*clip_high"),
        (["at=5,max_tokens=few"], "max_tokens is str 'few'"),
        (["at=5,max_tokens=0"], "max_tokens is 0"),
        (["at=5,clip_low=linear(2)"], "clip.low is 2"),
        (["at=5,lr=linear(0)"], "lr takes no schedule; --schedule is"),
        (["at=5,max_tokens=linear(9)"], "max_tokens takes no schedule"),
        (["at=5,dynamic_sampling=linear(1)"], "no number that can move"),
        (["at=5,clip_dual=linear(3)"], "clip_dual is no number that can move|has no value here"),
        (["at=stalled:2,lr=1"], "validation_tasks is 0"),
    ],
)
def test_a_stage_that_cannot_be_is_refused_before_the_run(stages, message):
    """At step 2000 it would cost a week."""
    with pytest.raises(UsageError, match=message):
        Stages(config(*stages, algorithm=load_algorithm("prorl", reset=None)))


@pytest.mark.parametrize(
    ("settings", "stage", "message"),
    [
        ({"max_staleness": 1}, "at=0,temperature=linear(0.5)", "max_staleness 1"),
        ({"algorithm": "ppo"}, "at=5,critic_lr=0.1", "made when the run begins"),
        ({"algorithm": "dapo"}, "at=5,reset=all", "dapo has no reference"),
        ({"algorithm": "dapo"}, "at=5,kl_coefficient=linear(1)", "no value here"),
        (
            {"algorithm": load_algorithm("grpo", kl_rule="ppo", kl_target=0.1)},
            "at=5,kl_coefficient=linear(1)",
            "moves by its rule already",
        ),
    ],
)
def test_what_contradicts_the_run_is_refused(settings, stage, message):
    """Batches are trained at the temperature that sampled them; a critic has an optimiser of its own."""
    with pytest.raises(UsageError, match=message):
        Stages(config(stage, **settings))


def test_stages_of_toml_are_tables(tmp_path):
    """As an array of tables, where values have their types."""
    path = tmp_path / "run.toml"
    path.write_text(
        'model = "m"\n[[stage]]\nat = 5\nmax_tokens = 64\n[[stage]]\nat = "truncated:0.2"\n'
        'max_tokens = 128\nreset = "optimizer"\noption = {difficulty = 3}\n'
    )
    assert read_settings(path)["stage"] == (
        "at=5,max_tokens=64",
        "at=truncated:0.2,max_tokens=128,option.difficulty=3,reset=optimizer",
    )


# ---------------------------------------------------------------------------------- schedules


def test_schedules_by_hand():
    """A line, half a cosine, and Ziegler's controller with its clip of a fifth."""
    line, wave = NumberSchedule.read("linear(0, 4)"), NumberSchedule.read("cosine(0)")
    assert [line.value(1.0, k, 99) for k in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert wave.value(1.0, 2, 4) == pytest.approx(0.5)
    assert wave.value(1.0, 1, 4) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert (wave.value(1.0, 0, 4), wave.value(1.0, 4, 4)) == (1.0, 0.0)
    up, down = (
        NumberSchedule.read("towards(entropy, 0.5)"),
        NumberSchedule.read("towards(kl, 0.5, -1)"),
    )
    assert up.follow(1.0, 1.0, {"entropy": 0.45}) == pytest.approx(1.05)
    assert up.follow(1.0, 1.0, {"entropy": 0.0}) == pytest.approx(1.1)
    assert up.follow(1.0, 1.0, {}) == 1.0
    assert down.follow(1.0, 1.0, {"kl": 0.55}) == pytest.approx(1.1)
    assert down.follow(9.99, 1.0, {"kl": 5.0}) == 10.0


def test_the_learning_rate_goes_on_where_a_stage_has_other_updates():
    """At the half of a linear schedule it is at the half, whatever a step's number of updates is from there on."""
    clock = LrClock(left=100)
    before = scheduled_rate(1.0, "linear", clock, 50)
    later = clock.begin_again(50, 200, schedule=False, warmup=None)
    assert scheduled_rate(1.0, "linear", later, 50) == before == 0.5
    assert scheduled_rate(1.0, "linear", later, 150) == pytest.approx(0.25)
    assert scheduled_rate(1.0, "linear", later, 250) == 0.0
    anew = clock.begin_again(50, 200, schedule=True, warmup=3)
    assert [scheduled_rate(1.0, "linear", anew, 50 + k) for k in range(4)] == [0.25, 0.5, 0.75, 1.0]
    warm = LrClock(left=100, warmup=9)
    going = warm.begin_again(4, 50, schedule=False, warmup=None)
    assert (
        scheduled_rate(1.0, "constant", going, 4) == scheduled_rate(1.0, "constant", warm, 4) == 0.5
    )
    assert scheduled_rate(1.0, "constant", going, 9) == 1.0


# ---------------------------------------------------------------------------------- when


def test_conditions_are_met_one_after_another_and_count_anew():
    """A step may come meanwhile; a share of truncated completions is a mean over some steps, here two."""
    made = Stages(
        config("at=truncated:0.5,max_tokens=64", "at=12,lr=0.1", "at=truncated:0.5,lr=0.2")
    )
    begun = {}
    for step in range(1, 30):
        for stage in made.end_step(step, {"truncated": 1.0}, 0):
            begun[stage.text] = step
    assert begun == {
        "at=truncated:0.5,max_tokens=64": 2,
        "at=truncated:0.5,lr=0.2": 4,
        "at=12,lr=0.1": 12,
    }
    assert (made.settings.max_tokens, made.settings.lr) == (64, 0.1)


def test_a_stage_behind_the_end_does_not_begin(tmp_path, capsys):
    """A recipe's, in a shorter run, which says so as it begins; nor does it ask for memory."""
    made = Stages(config("at=5,lr=0.1", "at=20,max_tokens=4096"))
    assert [stage.step for stage in made.beyond] == [20]
    assert made.longest.max_tokens == 512
    trainer(tmp_path / "run", quietly=False, stage=("at=3,lr=0.1", "at=4,lr=0.2")).close()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("stage: ")]
    late = "stage: at=4,lr=0.2; it lies behind the last step, 4, and does not begin"
    assert lines == ["stage: at=3,lr=0.1", late]


def test_settings_follow_from_the_stages_that_have_begun():
    """What none of them changes is the run's, also where it was a default of other settings."""
    made = Stages(
        config(
            "at=2,group_size=4,updates=8",
            "at=4,clip_high=0.5,kl_coefficient=0",
            temperature=1.2,
            algorithm="grpo",
        )
    )
    first = made.settings
    for step in range(1, 6):
        made.end_step(step, {}, 0)
    now = made.settings
    assert (now.group_size, now.prompts, now.eval_temperature) == (4, first.prompts, 1.2)
    assert (now.algorithm.clip.high, now.algorithm.kl, now.algorithm.clip.low) == (0.5, None, 0.2)
    assert now.recorded["stage"] == []
    assert first.recorded["stage"]


# ---------------------------------------------------------------------------------- in a run


class Levels(Bandit):
    """Tasks of a level, some of which are listed."""

    level: int = 0

    def task(self, index):
        found = super().task(index)
        return rlvr.Task(f"{found.id}/{self.level}", found.prompt, reference=found.reference)


STAGED = {
    "algorithm": load_algorithm("prorl", reset=Reset(every_steps=99), dynamic_sampling=False),
    "overlong": "soft", "overlong_cache": 2, "prompts": 4, "group_size": 4, "lr": 1e-2,
    "schedule": "linear", "warmup_steps": 2,
    "stage": (
        "at=0,entropy=linear(0.05, 6),temperature=cosine(0.8, 4)",
        "at=2,max_tokens=6,group_size=2,clip_high=towards(clipped_high, 0.01, -0.5)",
        "at=4,updates=2,reset=all,kl_coefficient=cosine(0.0001),lr=0.005",
        "at=truncated:0.01,max_tokens=8",
    ),
}  # fmt: skip
STALE = {
    "algorithm": "dapo", "max_staleness": 2, "prompts": 2, "max_tokens": 12, "overlong": "keep",
    "stage": ("at=3,max_tokens=20,temperature=0.7", "at=5,prompts=3,clip_high=0.4"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    _small_updates(monkeypatch.setattr)


@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(STAGED, id="staged", marks=pytest.mark.slow),
        pytest.param(STALE, id="stale", marks=pytest.mark.slow),
    ],
)
def test_stopped_in_any_stage_it_goes_on_as_if_it_had_not_been(tmp_path, settings):
    """Begun stages, moving numbers, lengths, group sizes, the clock of the learning rate: to the last bit."""
    settings = settings | {"steps": 8, "seed": 3}
    with trainer(tmp_path / "whole", **settings, checkpoint_every=1, keep=8) as whole:
        whole.run()
    for step in range(1, 9):
        with trainer(tmp_path / "stopped", **settings) as made:
            assert made.steps_done == step - 1
            stopped_after(made, step)
        assert differences(state(made, step), state(whole, step)) == []
    assert logged(made.config.run) == logged(whole.config.run)
    marks = [row.get("stage") for row in logged(whole.config.run)]
    assert [mark for mark in marks if mark] == ([4, 3] if "lr" in settings else [1, 2])


THREE: dict = {
    "steps": 8,
    "seed": 3,
    "checkpoint_every": 1,
    "stage": (
        "at=2,max_tokens=2,group_size=3",
        "at=4,kl_coefficient=linear(0.5, 3),lr=0.003",
        "at=6,updates=2,reset=all",
    ),
}


def _in_a_child(run: Path, cpu_s: float | None = None) -> tuple[int, float]:
    """Go on with a run in a process that the kernel ends; its status and CPU seconds.

    Args:
        run: its folder.
        cpu_s: CPU seconds after which it is ended at once, as by kill -9, by the default action of
            a timer's signal; None to let it end by itself.
    """
    child = os.fork()
    if child:
        _, status, usage = os.wait4(child, 0)
        return status, usage.ru_utime + usage.ru_stime
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, cpu_s or 0.0)
        run_to_end(run, algorithm="prorl", overlong="keep", **THREE)
        os._exit(0)
    except BaseException:  # noqa: BLE001  of a child, whose status is all that is seen
        traceback.print_exc()
        os._exit(1)


def test_the_longest_stage_is_found_behind_one_whose_numbers_move():
    """The schedule of the second stage was read before it began, where KL would be below 0."""
    assert Stages(config(*THREE["stage"], steps=8)).longest.max_tokens == config().max_tokens


@pytest.mark.slow
def test_a_run_over_three_stages_is_killed_anywhere_and_goes_on(tmp_path):
    """At 20 random places: weights, optimiser, stages and metrics are the same bits."""
    whole, rng, killed = tmp_path / "whole", random.Random(0), 0
    status, cpu_s = _in_a_child(whole)
    assert status == 0
    wanted = checkpoint.load_checkpoint(whole / "checkpoints" / "step-00000008.pt")
    for number in range(20):
        run = tmp_path / str(number)
        status, _ = _in_a_child(run, cpu_s * rng.uniform(0.05, 0.9))
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
        assert _in_a_child(run)[0] == 0
        found = checkpoint.load_checkpoint(run / "checkpoints" / "step-00000008.pt")
        assert differences(found, wanted) == [], number
        assert logged(run) == logged(whole), number
    assert killed >= 15  # CPU time is not the same each time, so that some may end before


def _small_updates(set_attribute) -> None:
    """Several updates per step, although the batches are small; a condition looks at two steps."""
    for module in ("credit", "preferences", "update_sizes", "config.run"):
        set_attribute(f"rlvr.train.{module}.LEAST_GROUPS", 1)
    for module in ("credit", "update_sizes", "config.run"):
        set_attribute(f"rlvr.train.{module}.LEAST_ROWS", 1)
    set_attribute("rlvr.train.stages._WINDOW", 2)


def test_what_a_stage_changes_reaches_the_steps_behind_it(tmp_path):
    """Lengths, group sizes, temperature, tasks; the numbers that move are logged; the place in the tasks goes on."""
    seen = []
    stages = ("at=1,max_tokens=2,group_size=3", "at=2,kl_coefficient=0.5,entropy=linear(0.1, 1)")
    with trainer(tmp_path / "run", steps=4, stage=stages, rollouts_every=0) as made:
        collect = made.source._collect

        def collecting(step):
            batch = collect(step)
            lengths = [len(r.completion_ids) for r in batch.rollouts]
            seen.append((len(batch.rollouts), max(lengths), [g.task.id for g in batch.groups]))
            return batch

        made.source._collect = collecting
        made.run()
    assert [size for size, *_ in seen] == [16, 12, 12, 12]
    assert [longest <= 2 for _, longest, _ in seen] == [False, True, True, True]
    assert [name for *_, names in seen for name in names] == [
        f"{made.source.env.id}/train/{index}" for index in range(16)
    ]
    assert made.learner.algorithm.kl.coefficient == 0.5
    rows = logged(tmp_path / "run")
    assert [row.get("stage/entropy") for row in rows] == [None, 0.0, 0.1, 0.1]
    assert [row.get("stage") for row in rows] == [1, 2, None, None]


def test_other_tasks_and_back_again(tmp_path):
    """Tasks that had their turn go on where they were."""
    seen = []
    stages = ("at=1,option.level=1", "at=2,option.level=0")
    env = Levels()
    with trainer(tmp_path / "run", steps=3, env=env, stage=stages) as made:
        from rlvr.train import sampled_rows

        made_env = sampled_rows.stage_env
        sampled_rows.stage_env = lambda config, now, given: Levels(**now.env_options)
        collect = made.source._collect
        made.source._collect = lambda step: seen.append(collect(step)) or seen[-1]
        try:
            made.run()
        finally:
            sampled_rows.stage_env = made_env
    ids = [[group.task.id for group in batch.groups] for batch in seen]
    assert [{one.rsplit("/", 1)[1] for one in names} for names in ids] == [{"0"}, {"1"}, {"0"}]
    assert [int(one.split("/")[-2]) for one in ids[2]] == [4, 5, 6, 7]


def test_a_run_may_get_stages_that_lie_ahead(tmp_path):
    """Not in the past, and not in the place of one that has begun."""
    with trainer(tmp_path / "run", steps=6, stage=("at=2,lr=0.001",)) as made:
        stopped_after(made, 3)
    for stages, message in [
        (
            ("at=2,lr=0.001", "at=3,clip_high=0.3"),
            "lies in the past: the run in .* has done 3 steps",
        ),
        (("at=2,lr=0.5",), "has begun as 'at=2,lr=0.001'"),
        ((), "has begun as 'at=2,lr=0.001'"),
    ]:
        with pytest.raises(UsageError, match=message):
            trainer(tmp_path / "run", steps=6, stage=stages)
    stages = ("at=2,lr=0.001", "at=5,lr=0.002")
    run_to_end(tmp_path / "run", steps=6, stage=stages)
    assert [row["lr"] for row in logged(tmp_path / "run")] == [
        0.01,
        0.01,
        0.001,
        0.001,
        0.001,
        0.002,
    ]
    assert json.loads((tmp_path / "run/config.json").read_text())["settings"]["stage"] == [*stages]


def test_a_schedule_to_the_end_fixes_the_end(tmp_path):
    """With more steps it would have been another one."""
    stage = ("at=1,entropy=linear(0.1)",)
    run_to_end(tmp_path / "run", steps=3, stage=stage)
    with pytest.raises(UsageError, match=r"settings\.steps: int 3 there, int 4 here"):
        trainer(tmp_path / "run", steps=4, stage=stage)

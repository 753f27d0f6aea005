"""Faults while training: the run goes on to the weights of a run without them, or says in one line why it cannot."""

import json
import random
import shutil

import pytest
import torch

from rlvr.errors import DataError, UsageError
from rlvr.scoring.identity import read_identity
from rlvr.train import checkpoint
from rlvr.train.metrics import read_metrics
from rlvr.train.policy import Policy
from tests.train.bandit import run_to_end, trainer

STEPS = 3


class Stopped(BaseException):
    """As final as a SIGKILL: nothing in the trainer catches it."""


def ended(folder, **settings) -> dict[str, torch.Tensor]:
    """The weights of a run, from its last checkpoint."""
    with trainer(folder, steps=STEPS, checkpoint_every=1, **settings) as made:
        made.run()
    return {name: tensor.clone() for name, tensor in made.policy.model.state_dict().items()}


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ended(tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("damage", ["a bit", "the end", "a key"])
def test_a_damaged_newest_checkpoint_costs_a_step_and_changes_nothing(tmp_path, whole, damage):
    """The one before is taken, and the step since is run again."""
    run = tmp_path / "run"
    with trainer(run, steps=STEPS, checkpoint_every=1) as made:
        save = made.save
        made.save = lambda: save() if made.steps_done < 2 else stop(save)
        with pytest.raises(Stopped):
            made.run()
    newest = checkpoint.latest(run / "checkpoints")
    content = bytearray(newest.read_bytes())
    if damage == "a bit":
        content[random.Random(7).randrange(len(content))] ^= 4
        newest.write_bytes(content)
    elif damage == "the end":
        newest.write_bytes(content[:-100])
    else:
        state = checkpoint.load_checkpoint(newest)
        del state["rows"]
        checkpoint.save(newest.parent, 2, state, keep=2)
    with pytest.warns(
        RuntimeWarning, match=r"step-00000002\.pt .*going on from the one before, step-00000001\.pt"
    ):
        assert same(ended(run), whole)


def stop(work) -> None:
    work()
    raise Stopped


def test_a_run_killed_while_the_final_model_is_saved_saves_it_when_it_is_started_again(
    tmp_path, whole, monkeypatch
):
    """A folder with half of the files would load, or fail, much later."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch, trainer(run, steps=STEPS, checkpoint_every=1) as made:
        patch.setattr(
            type(made.policy.tokenizer),
            "save_pretrained",
            lambda *args, **kwargs: stop(lambda: None),
        )
        with pytest.raises(Stopped):
            made.run()
    assert not (run / "model").exists()
    ended(run)
    assert same(Policy.load(run / "model").model.state_dict(), whole)
    assert sorted(path.name for path in run.iterdir() if "model" in path.name) == ["model"]


def test_lost_metrics_are_noticed_and_the_run_goes_on(tmp_path, whole):
    """A power cut between two disks, or an editor: the training does not depend on them."""
    run = tmp_path / "run"
    run_to_end(run, steps=2, checkpoint_every=1)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[1:]))
    with pytest.warns(RuntimeWarning, match="lacks step 1, which the checkpoint counts as done"):
        assert same(ended(run), whole)
    (run / "metrics.jsonl").unlink()
    shutil.rmtree(run / "model")
    with trainer(run, steps=STEPS, checkpoint_every=1) as again:
        assert again.steps_done == STEPS
        again.run()


def test_odd_lines_among_the_metrics_are_named(tmp_path):
    """Not UTF-8, no object, no step; a last line that is cut off is no damage."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n[1]\n{"a": 2}\n{"step": 2}\n{"st')
    with pytest.warns(
        RuntimeWarning, match=r"metrics\.jsonl: line 2, 3, 4 cannot be read and is left out"
    ):
        assert [row["step"] for row in read_metrics(path)] == [1, 2]


def test_two_trainers_in_one_folder(tmp_path):
    """The second is told so at once, and the first one's files stay as they are."""
    with trainer(tmp_path / "run", steps=1) as first:
        with pytest.raises(UsageError, match="is being trained in by another process"):
            trainer(tmp_path / "run", steps=1)
        first.run()
    assert (tmp_path / "run" / "model" / "config.json").exists()


def test_a_run_whose_environment_was_edited_is_not_gone_on_with(tmp_path, monkeypatch):
    """Half of it would be trained on other verdicts, unless that is accepted."""
    run_to_end(tmp_path / "run", steps=1)
    known = json.loads((tmp_path / "run" / "identity.json").read_text())
    known["code"]["tests.train.bandit"] = "0123456789abcdef"
    (tmp_path / "run" / "identity.json").write_text(json.dumps(known))
    said = r"in code: tests\.train\.bandit has another content; .*, or pass --accept code"
    with pytest.raises(UsageError, match=said):
        trainer(tmp_path / "run", steps=1)
    with trainer(tmp_path / "run", steps=1, accept=("code",)) as again:
        assert again.steps_done == 1
    known = json.loads((tmp_path / "run" / "identity.json").read_text())
    assert "tests.train.bandit has another content" in known["accepted"][0]


def test_a_run_whose_identity_is_gone_is_gone_on_with_by_a_flag(tmp_path):
    """As a run of before identities were recorded: its beginning may have had other verdicts."""
    run_to_end(tmp_path / "run", steps=1)
    (tmp_path / "run" / "identity.json").unlink()
    path = tmp_path / "run" / "config.json"
    settings = json.loads(path.read_text())
    settings["env"]["source"] = {"mine": "0123456789abcdef"}
    path.write_text(json.dumps(settings))
    said = r"by what .*run, as it began, was scored is not known.*folder, or pass --accept code"
    with pytest.raises(UsageError, match=said):
        trainer(tmp_path / "run", steps=1)
    with trainer(tmp_path / "run", steps=1, accept=("code",)) as again:
        assert again.steps_done == 1
    known = json.loads((tmp_path / "run" / "identity.json").read_text())
    assert "not known" in known["accepted"][0]


def test_a_report_of_a_run_says_by_what_it_was_scored(tmp_path):
    """`rlvr compare` refuses two that were decided in two ways."""
    run_to_end(tmp_path / "run", steps=1, eval_every=0, eval_tasks=2)
    for step in (0, 1):
        identity = read_identity(tmp_path / "run" / "evaluations" / f"step-{step}.json")
        assert identity is not None
        assert "tests.train.bandit" in identity.code


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "no text"])
def test_a_damaged_model_is_refused_in_one_line(tmp_path, trained, name, damage):
    """As `rlvr eval` loads it: never evaluated with random weights or without its tokens."""
    shutil.copytree(trained, tmp_path / "model")
    path = tmp_path / "model" / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            content[: len(content) // 2] if damage == "cut" else b"\xff" * 64 + content[64:]
        )
    with pytest.raises(
        UsageError, match=r"cannot load the model|has no config\.json|no tokenizer"
    ) as error:
        Policy.load(tmp_path / "model")
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a trained model."""
    run = tmp_path_factory.mktemp("trained") / "run"
    run_to_end(run, steps=1)
    return run / "model"


def test_a_model_by_another_name_of_its_folder_is_the_same_setting(tmp_path, monkeypatch):
    """Relative on one day, absolute on the next."""
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    run_to_end(tmp_path / "run", steps=1, model="models")
    with trainer(tmp_path / "run", steps=1, model=str(tmp_path / "models")) as again:
        assert again.steps_done == 1
    with pytest.raises(UsageError, match=r"settings\.model"):
        trainer(tmp_path / "run", steps=1, model="elsewhere")


def test_a_folder_with_damaged_settings_is_named(tmp_path):
    """Nothing in it says which run it is."""
    run_to_end(tmp_path / "run", steps=1)
    (tmp_path / "run" / "config.json").write_bytes(b'{"settings"')
    with pytest.raises(DataError, match=r"config\.json cannot be read as the settings of a run"):
        trainer(tmp_path / "run", steps=1)
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])["step"] == 1

"""Each verifier by its name."""

import json
from io import StringIO

import pytest
from rich.console import Console

import rlvr
from rlvr.cli.verifiers import VerifiersCommand
from rlvr.verifiers.named import PLACES, make_verifier


@pytest.mark.parametrize("name", [name for name in PLACES if name != "judge"])
def test_a_named_verifier_judges_its_own_example(name: str):
    """What `rlvr verifiers` shows must hold; code's and the instructions' examples need a program and a text."""
    verifier = make_verifier(name)
    reference = verifier.reference_example
    verifier.read(reference)
    example = verifier.example(reference)
    assert example is None or verifier.verify(example, reference).correct


def test_a_setting_is_checked_by_name():
    """A typing mistake must not be a run with the defaults."""
    assert make_verifier("qa", {"credit": "f1"}).credit == "f1"
    with pytest.raises(rlvr.UsageError, match=r"no setting 'kredit'.*did you mean 'credit'"):
        make_verifier("qa", {"kredit": "f1"})
    with pytest.raises(rlvr.UsageError, match=r"no verifier 'mth'.*did you mean 'math'"):
        make_verifier("mth")


def test_rows_are_scored_by_any_of_them():
    """`rlvr score --verifier NAME --option …` is this environment."""
    env = rlvr.make("rows-v4", verifier="qa", settings={"credit": "f1"})
    task = rlvr.Task("t", "?", "Eiffel tower")
    assert env.score(task, "big Eiffel tower").total == 0.8


def test_the_list_names_every_verifier():
    """With its id, and an example that can be copied."""
    out = StringIO()
    assert VerifiersCommand().run(Console(file=out, width=300), Console(file=StringIO())) == 0
    shown = out.getvalue()
    assert all(name in shown for name in PLACES)
    assert "choice-verifier-v4" in shown
    assert json.dumps({"options": ["4", "5"], "answer": "5"}) in shown


def test_the_list_keeps_every_id_whole_in_a_narrow_terminal():
    """An id that is cut off cannot be copied; 80 columns are what a pipe gets."""
    out = StringIO()
    VerifiersCommand().run(Console(file=out, width=80), Console(file=StringIO()))
    shown = out.getvalue()
    assert "…" not in shown
    assert all(make_verifier(name).id in shown for name in PLACES if name != "judge")

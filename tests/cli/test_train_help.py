"""`rlvr train --help`: short, complete by groups, and what the parser takes."""

from collections import Counter
from dataclasses import fields

import pytest

from rlvr.cli import main
from rlvr.cli.run_settings import _GONE
from rlvr.cli.train_help import GROUPS
from rlvr.train.config import Config

SUPPRESSED = {"env_options", "eval_options", "template_options"}  # which have flags of their own


def _page(capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        main(["train", *argv])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_every_setting_is_in_one_group():
    """A new setting gets its place here, or nobody finds it."""
    placed = Counter(name for _, names in GROUPS.values() for name in names)
    assert placed == Counter({one.name for one in fields(Config)} - SUPPRESSED)


@pytest.mark.parametrize("group", GROUPS)
def test_pages_are_short_and_explain_their_flags(group, capsys):
    """At most 90 lines of 100 columns, with a text beside each flag."""
    lines = _page(capsys, "--help", group).splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 100
    for name in GROUPS[group][1]:
        flag = f"--{name.replace('_', '-')}"
        at = next(i for i, line in enumerate(lines) if line.split(" ")[0] == flag)
        text = lines[at][28:] or lines[at + 1][28:]
        assert text.strip(), flag


def test_the_numbers_are_those_of_the_algorithm(capsys):
    """`--algorithm NAME --help` lists them; another algorithm has others."""
    assert "--clip-high FLOAT" in _page(capsys, "--algorithm", "dapo", "--help")
    assert "--clip-high FLOAT" not in _page(capsys, "--algorithm", "reinforce", "--help")


def test_all_flags_come_from_the_parser(capsys):
    """Nothing is lost against the groups."""
    page = _page(capsys, "--help-all")
    for _, names in GROUPS.values():
        for name in names:
            assert f"--{name.replace('_', '-')}" in page


def test_a_group_that_there_is_not_is_one_line(capsys):
    """With the nearest one and all names."""
    assert main(["train", "--help", "optimizer"]) == 2
    said = capsys.readouterr().err
    assert "did you mean 'optimiser'" in said
    assert said.count("\n") == 1


def test_a_flag_that_went_is_named_with_what_does_its_job(capsys):
    """One line, whatever else is missing; none of them is a flag again."""
    page = _page(capsys, "--help-all")
    for name, instead in _GONE.items():
        flag = f"--{name.replace('_', '-')}"
        assert f"{flag} " not in page
        assert main(["train", flag, "4"]) == 2
        assert capsys.readouterr().err == f"rlvr: {flag} is gone; give {instead}\n"

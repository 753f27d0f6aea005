"""The pages name what there is: every setting, in the page of its class, and every metric."""

import dataclasses
import re
from pathlib import Path

import docstring_parser
import pytest

import rlvr
from rlvr.train.config import Config
from rlvr.train.config.run import GROUPS
from rlvr.train.metrics import read_metrics
from tests.train.bandit import Bandit, run_to_end

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGE = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`]+)`", PAGE))


def test_every_setting_is_explained():
    """The reference page of a class is made of its docstring: what that leaves out cannot be found."""
    style = docstring_parser.DocstringStyle.GOOGLE
    explained = {
        name
        for group in GROUPS
        for parameter in docstring_parser.parse(group.__doc__, style).params
        if parameter.description
        for name in parameter.arg_name.split(", ")
    }
    assert {field.name for field in dataclasses.fields(Config)} - explained == set()


@pytest.mark.filterwarnings("ignore:.*groups after.*tasks:RuntimeWarning")
def test_every_metric_of_a_run_is_named(tmp_path):
    """With a KL penalty, dynamic sampling, evaluation and a reward of parts."""
    env = Bandit().with_reward(rlvr.Correct() + rlvr.Overlong(max_tokens=4, cache=1))
    run_to_end(
        tmp_path / "run", algorithm="prorl", steps=2, env=env, eval_every=1, eval_tasks=4, eval_n=2
    )
    logged = {name for row in read_metrics(tmp_path / "run" / "metrics.jsonl") for name in row} - {
        "step"
    }
    said = {
        re.sub(r"/(low|high)$", "", re.sub(r"@\d+", "@", name.replace("validation/", "eval/")))
        for name in logged
    }
    named = {re.sub(r"@[NK]$", "@", name) for name in NAMED}
    assert {name for name in said if not name.startswith("reward/")} - named == set()

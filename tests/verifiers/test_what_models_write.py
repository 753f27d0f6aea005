"""Completions as models write them: what they say is paid, and what only looks alike is not.

The rows of `what_models_write.jsonl` were labelled by reading them.  Those at the end were chosen from red teams when
what they show was mended: they hold a rule, and say nothing of how often others are read.
"""

import json
from pathlib import Path

import pytest

from rlvr import Task
from rlvr.verifiers.calls import CallsVerifier
from rlvr.verifiers.chemistry import ChemistryVerifier
from rlvr.verifiers.choices import ChoiceVerifier
from rlvr.verifiers.instructions import InstructionVerifier
from rlvr.verifiers.json_schema import JSONVerifier
from rlvr.verifiers.logic import ExpressionVerifier, GridVerifier, RolesVerifier, SudokuVerifier
from rlvr.verifiers.math import MathVerifier
from rlvr.verifiers.parts import ListVerifier, PartsVerifier
from rlvr.verifiers.patterns import PatternVerifier
from rlvr.verifiers.qa import QAVerifier
from rlvr.verifiers.science import ScienceVerifier
from rlvr.verifiers.sql import SQLVerifier

VERIFIERS = {
    kind.__name__: kind()
    for kind in (
        *(CallsVerifier, ChemistryVerifier, ChoiceVerifier, ExpressionVerifier, GridVerifier),
        *(InstructionVerifier, JSONVerifier, ListVerifier, MathVerifier, PartsVerifier),
        *(PatternVerifier, QAVerifier, RolesVerifier, ScienceVerifier, SQLVerifier),
        *(SudokuVerifier,),
    )
}
LINES = Path(__file__).with_suffix("").with_name("what_models_write.jsonl").read_text().splitlines()
GROUPS = [json.loads(line) for line in LINES]


@pytest.mark.parametrize("name", sorted({group["verifier"] for group in GROUPS}))
def test_what_models_write(name: str):
    """Each verdict is the label; all texts are shown whose verdict is not."""
    other = []
    for group in [group for group in GROUPS if group["verifier"] == name]:
        task = Task("t", group["prompt"], group["reference"])
        for text in (*group["right"], *group["wrong"]):
            verdict = VERIFIERS[name].verify(text, group["reference"], task)
            if verdict.correct is not (text in group["right"]):
                other.append((group["prompt"], text, verdict.why))
    assert not other

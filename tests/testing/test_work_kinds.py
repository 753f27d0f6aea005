"""Work of every kind: wrong work has a witness and is refused, right work has none and is paid."""

import itertools
from random import Random

import pytest

import rlvr
from rlvr.envs.swe_projects import MORE, more_cases, names_of_projects, variant_of
from rlvr.testing.plays import score_turns
from rlvr.testing.work import Work, maker_for
from rlvr.testing.work.answers import AnswersWork
from tests.json_lines import write_json_lines
from tests.testing.test_check_ours import OURS

PROGRAMS = ("humaneval-v3", "mbpp-v3", "code-drills-v1", "code-stdio-v3", "sql-v4", "mixture-v1")
SYMPY = ("math-v4", "rows-v4")  # its parser takes a CPU second to load
KINDS = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SYMPY else [])
    for name in sorted(OURS.keys() - set(PROGRAMS))
]
OPEN = 0.3
"""Share of work without a witness at most: numbers within a tolerance, brackets at infinity."""


def _env(tmp_path, name):
    rows, options = OURS[name]
    if rows is None:
        return rlvr.make(name, **options)
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    return rlvr.make(name, **options, data=str(path))


@pytest.mark.parametrize("name", KINDS)
def test_wrong_work_is_refused_and_right_work_is_paid(tmp_path, name):
    """Three tasks of each bundled environment, eight wrong works each: none with a witness is paid."""
    env = _env(tmp_path, name)
    maker = maker_for(env)
    made = proven = 0
    for index in range(min(3, env.size or 3)):
        task = env.task(index)
        for work in itertools.islice(maker.wrong(task, Random(index)), 8):
            witness = maker.witness(task, work)
            if witness is not None and witness.is_doubtful:
                continue
            made += 1
            if witness is not None:
                proven += 1
                assert not env.score(task, work.text).verdict.correct, (work, witness)
        for work in maker.right(task, Random(index)):
            assert maker.witness(task, work) is None, work
            assert env.score(task, work.text).verdict.correct, work
    assert made >= 3
    assert proven >= (1 - OPEN) * made


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("desk-v2", {"world": "shop"}),
        pytest.param("desk-v2", {}, marks=pytest.mark.slow),
        pytest.param("bash-v1", {}, marks=pytest.mark.slow),
        pytest.param("swe-lite-v1", {"bugs": 2}, marks=pytest.mark.slow),
        ("swe-lite-v1", {"tools": False, "bugs": 1}),
    ],
)
def test_episodes_and_patches_that_end_wrong_are_refused(name, options):
    """The state at the end, the files, or cases that were never drawn say so; right work is paid."""
    env = rlvr.make(name, **options)
    maker = maker_for(env)
    proven = 0
    for index in range(2):
        task = env.task(index)
        for work in itertools.islice(maker.wrong(task, Random(index)), 6):
            if maker.witness(task, work) is not None:
                proven += 1
                assert not score_turns(env, task, maker.turns(task, work)).verdict.correct, work
        for work in itertools.islice(maker.right(task, Random(index)), 4):
            assert maker.witness(task, work) is None, work
            assert score_turns(env, task, maker.turns(task, work)).verdict.correct, work
    assert proven >= 8


def test_evidence_about_a_patch_is_neither_shown_nor_decides():
    """Sixty cases of the project, none of which a hidden or a visible test has."""
    for project in names_of_projects("train"):
        variant = variant_of(project, 1)
        cases = more_cases(project, 1)
        assert len(cases) == MORE
        assert not {*cases} & {*variant.hidden, *variant.visible}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "is_told_apart"),
    [
        ("x^2+3x", "x^2-3x", True),
        ("x^2+3x", "x(x+3)", False),
        ("\\frac{3}{4}", "\\frac{3}{5}", True),
        ("\\frac{3}{4}", "\\frac{6}{8}", False),
        ("\\pm\\sqrt{2}", "\\sqrt{2}", True),
        ("(0,1]", "[0,1]", True),
        ("(-\\infty,0)", "(-\\infty,0]", True),
        ("\\sin x", "\\cos x", True),
        ("x+y", "x+z", False),  # letters may be named otherwise
        ("9^{9^{9^{9}}}", "1", False),  # not evaluated
    ],
)
def test_formulas_are_told_apart_at_a_point(right, wrong, is_told_apart):
    """By SymPy's numbers; what it cannot compute proves nothing."""
    env = rlvr.Environment.from_rows(
        [{"prompt": "?", "reference": right}], verifier=rlvr.verifiers.math.MathVerifier()
    )
    maker = maker_for(env)
    assert isinstance(maker, AnswersWork)
    witness = maker.witness(env.task(0), Work(f"\\boxed{{{wrong}}}", "own"))
    assert (witness is not None) == is_told_apart


def test_work_of_another_form_has_no_witness(tmp_path):
    """What a model wrote around its answer may say anything."""
    for name in ("gsm8k-v4", "mcq-v4", "kk-v4", "json-v4"):
        env = _env(tmp_path, name)
        maker = maker_for(env)
        work = Work("I thought about it for long, and cannot say.", "model")
        assert maker.witness(env.task(0), work) is None

"""The bundled environments: what they ask, what they hold it against, and what they make of bad data."""

import ast
import re
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import rlvr
from tests.json_lines import write_json_lines


def write(path: Path, rows: list[dict]) -> str:
    return str(write_json_lines(path, rows))


def evaluate(text: str) -> Fraction:
    """An evaluator that shares nothing with the generator: Python's own grammar, over exact fractions."""
    assert re.fullmatch(r"[\d+\-*/() ]+", text)
    return eval(re.sub(r"\d+", lambda m: f"Fraction({m[0]})", text))


@pytest.mark.parametrize("difficulty", range(1, 11))
def test_arithmetic_references_are_the_value_of_the_expression(difficulty: int):
    """The text carries the brackets that the value was computed with, and every division is exact."""
    env = rlvr.make("arithmetic-v1", difficulty=difficulty, operations="+-*/")
    for task in islice(env.tasks(), 60):
        assert evaluate(task.meta["expression"]) == task.reference


def test_arithmetic_divisions_divide():
    """With nothing but division every step is exact, also the inner ones."""
    env = rlvr.make("arithmetic-v1", difficulty=6, operations="/")
    for task in islice(env.tasks(), 40):
        value, *divisors = map(int, task.meta["expression"].split(" / "))
        for divisor in divisors:
            assert value % divisor == 0
            value //= divisor
        assert value == task.reference


def form(node: ast.AST) -> str:
    """A text that two expressions share if they differ in order or in brackets that make no difference."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    kinds = (ast.Add, ast.Sub) if isinstance(node.op, (ast.Add, ast.Sub)) else (ast.Mult, ast.Div)

    def operands(node: ast.AST, sign: int) -> list[tuple[int, str]]:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, kinds)):
            return [(sign, form(node))]
        right = -sign if isinstance(node.op, kinds[1]) else sign
        return operands(node.left, sign) + operands(node.right, right)

    return f"{kinds[0].__name__}{sorted(operands(node, 1))}"


@pytest.mark.parametrize(
    "options", [{"difficulty": 1}, {"difficulty": 3, "operations": "+*"}, {"difficulty": 3}]
)
def test_no_expression_is_in_two_splits(options: dict):
    """Even where there are few of them, and in whatever order its operands stand: 3 + 4 and 4 + 3 are one."""
    seen = {
        split: {
            form(ast.parse(task.meta["expression"], mode="eval").body)
            for task in islice(rlvr.make("arithmetic-v1", split=split, **options).tasks(), 300)
        }
        for split in ("train", "validation", "test")
    }
    assert all(len(expressions) > 10 for expressions in seen.values())
    assert (
        not seen["train"] & seen["validation"]
        | seen["train"] & seen["test"]
        | seen["validation"] & seen["test"]
    )


def test_difficulty_adds_terms_and_digits():
    """1 is two terms of one digit, 2 of up to two, 10 is six terms of up to six digits."""
    easy = [
        t.meta["expression"] for t in islice(rlvr.make("arithmetic-v1", difficulty=1).tasks(), 50)
    ]
    usual = {t.meta["expression"] for t in islice(rlvr.make("arithmetic-v1").tasks(), 1000)}
    hard = [
        t.meta["expression"] for t in islice(rlvr.make("arithmetic-v1", difficulty=10).tasks(), 50)
    ]
    assert all(re.fullmatch(r"\d [+*-] \d", text) for text in easy)
    assert all(re.fullmatch(r"\d\d? [+*-] \d\d?", text) for text in usual)
    assert len(usual) > 900  # of 1000: there are 29,403
    assert all(len(re.findall(r"\d+", text)) == 6 for text in hard)
    assert max(len(number) for text in hard for number in re.findall(r"\d+", text)) == 6


def test_a_task_stays_what_it_is():
    """Records and papers name tasks by id; a change here asks for arithmetic-v2."""
    env = rlvr.make("arithmetic-v1", difficulty=3, operations="+-*/")
    assert [env.task(i).meta["expression"] for i in range(3)] == ARITHMETIC_V1
    assert env.task(1).id == "arithmetic-v1/train/3/+-*//1"


def test_a_task_of_other_options_has_another_id():
    """And is found by it, in an environment with the same options."""
    env = rlvr.make("arithmetic-v1")
    assert env.task(17).id == "arithmetic-v1/train/2/+-*/17"
    assert env.find("arithmetic-v1/train/2/+-*/17") == env.find(17) == env.task(17)
    for other in ("arithmetic-v1/train/3/+-*/17", "arithmetic-v1/train/17"):
        with pytest.raises(LookupError, match="has no task"):
            env.find(other)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"difficulty": 0}, "difficulty is 0; it must be a whole number from 1 to 10"),
        ({"difficulty": "3"}, "difficulty is str '3'; it must be a whole number, such as 2"),
        ({"difficulty": True}, "difficulty is bool True"),
        ({"difficulty": 2.0}, "difficulty is float 2.0"),
        ({"operations": ["+"]}, r"operations is list \['\+'\]; it must be a text, such as '\+-\*'"),
        ({"operations": "+^"}, r"operations is '\+\^'; name some of \+ - \* /"),
        ({"operations": ""}, "operations is ''"),
        ({"split": "dev"}, "split is 'dev'; it must be one of 'train', 'validation', 'test'"),
        ({"difficult": 3}, "no option 'difficult'.*did you mean 'difficulty'"),
    ],
)
def test_a_bad_option_is_one_clear_error(option: dict, message: str):
    """Value, rule and fix."""
    with pytest.raises(rlvr.UsageError, match=message):
        rlvr.make("arithmetic-v1", **option)


GSM8K_ROWS = [
    {"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"},
    {"question": "A thousand and one?", "answer": "1000 + 1\n#### 1,001"},
    {"question": "Debt?", "answer": "It is a debt.\n#### -3"},
]


def test_gsm8k_reads_the_number_after_the_mark(tmp_path: Path):
    """Thousands separators go, signs stay."""
    env = rlvr.make("gsm8k-v4", data=write(tmp_path / "rows.jsonl", GSM8K_ROWS), split="test")
    assert [task.reference for task in env.tasks()] == ["4", "1001", "-3"]
    assert env.task(0).id == "gsm8k-v4/test/0"
    assert env.task(0).prompt.startswith("Two and two?\n\n")


def test_gsm8k_takes_a_folder_with_one_file_per_split(tmp_path: Path):
    """As the data set is shipped."""
    write(tmp_path / "train.jsonl", GSM8K_ROWS)
    write(tmp_path / "test.jsonl", GSM8K_ROWS[:1])
    assert rlvr.make("gsm8k-v4", data=str(tmp_path)).size == 3
    assert rlvr.make("gsm8k-v4", data=str(tmp_path), split="test").size == 1


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [
        ("1000 + 1 = 1001\n#### 1,001", "correct"),
        ("A: 1001", "correct"),
        ("A: $1,001.00", "correct"),
        ("so \\boxed{1001}", "correct"),
        ("#### 1000\nNo, wait.\n#### 1001", "correct"),
        ("#### 1,010", "wrong"),
        ("A: 100", "wrong"),
        ("\\boxed{1000}\n#### 1001", "wrong"),
        ("\\boxed{1001} or \\boxed{1002}", "wrong"),
        ("1001", "unparsed"),
        ("", "unparsed"),
        ("<think>#### 1001</think>", "unparsed"),
    ],
)
def test_gsm8k_verdicts(completion: str, outcome: str):
    """The last box, else the last mark; what stands before it or in the thinking part does not count."""
    env = rlvr.make("gsm8k-v4")
    task = env.task_of(GSM8K_ROWS[1])
    assert env.verify(task, completion).outcome == outcome


def test_gsm8k_rows_of_the_older_file_have_their_mark(tmp_path: Path):
    """`ground_truth` with 'A:', as in the published model solutions."""
    row = {"question": "Two and two?", "ground_truth": "2 + 2 = 4\nA: 4", "completion": "A: 4"}
    [scored] = rlvr.score(rlvr.make("gsm8k-v4"), [row], workers=0)
    assert (scored.outcome, scored.item.task.reference) == ("correct", "4")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "?"}, "no text in column 'answer'"),
        ({"question": "?", "answer": 4}, "no text in column 'answer'"),
        ({"question": "?", "answer": "four"}, "no '####' or 'A:' with a number after it in 'four'"),
        ({"question": "?", "answer": "#### "}, "no '####'"),
        ({"question": "?", "answer": "#### four"}, "no '####' or 'A:' with a number after it"),
        ({"question": "?", "answer": "#### 5 million"}, "no '####'"),
        ({"question": "?", "answer": "#### 4 or 5"}, "no '####'"),
        ({"question": "?", "answer": "#### 4\nThat was easy."}, "no '####'"),
        ({"question": 5, "answer": "#### 4"}, "column 'question' is 5; it must be a text"),
    ],
)
def test_a_gsm8k_row_without_reference_is_the_data_sets_fault(
    tmp_path: Path, row: dict, message: str
):
    """Never the model's: it is said when the data set is loaded."""
    with pytest.raises(rlvr.DataError, match=f"gsm8k-v4/train/1: {message}"):
        rlvr.make("gsm8k-v4", data=write(tmp_path / "rows.jsonl", [GSM8K_ROWS[0], row])).task(0)


@pytest.mark.parametrize(
    ("value", "reference"),
    [
        (" 18 ", "18"), ("1,234,567", "1234567"), ("-3", "-3"), ("\N{MINUS SIGN}3", "-3"), ("+3", "3"),
        ("0.50", "0.50"), (".5", ".5"), ("3 / 4", "3/4"), ("$1,080.50", "1080.50"), ("-$5", "-5"), ("18 dollars", "18"),
        ("50%", "50"), ("18.", "18"), ("Two.\n#### $1,001", "1001"), ("Two.\nA: 2", "2"), (4, 4), (0.5, 0.5),
    ],
)  # fmt: skip
def test_a_gsm8k_rows_own_reference_is_read_alike(value: Any, reference: Any):
    """Sign, thousands, decimals, fraction; the whole solution; and what is read so, the verifier takes."""
    env = rlvr.make("gsm8k-v4")
    task = env.task_of({"reference": value})
    assert task.reference == reference
    assert env.score(task, f"\\boxed{{{reference}}}").total == 1.0


@pytest.mark.parametrize(
    "value",
    [
        "", "four", "5 million", "3 hours and 20 minutes", "1,23", "12,34,567", "1 2", "1/0", "4 or 5", "18 apples",
        "--3", "####", "#### ", "\\boxed{18}", True, [18], float("inf"),
    ],
)  # fmt: skip
def test_an_unreadable_gsm8k_reference_is_one_rows_fault(value: Any):
    """Else every completion of that task would earn 0, or be UNSCORED."""
    env = rlvr.make("gsm8k-v4")
    refused = []
    rows = [{"reference": value, "completion": "A: 18"}, {"reference": "18", "completion": "A: 18"}]
    scored = list(
        rlvr.score(env, rows, workers=0, on_error=lambda number, error: refused.append(str(error)))
    )
    assert [s.score.total for s in scored] == [1.0]
    assert "it must be one number, or have one after '####' or 'A:'" in refused[0]


@pytest.mark.parametrize("value", [None, float("nan"), "four"])
def test_what_is_no_number_is_no_gsm8k_reference(value: Any):
    """Also where it comes from elsewhere than a row, which may leave it out."""
    with pytest.raises(
        rlvr.DataError, match="it must be one number, or have one after '####' or 'A:'"
    ):
        rlvr.make("gsm8k-v4").reference_of(value)


@pytest.mark.parametrize(
    ("value", "reference"),
    [("\\frac12", "\\frac12"), ("So it is \\boxed{\\frac12}.", "\\frac12"), (3, 3)],
)
def test_a_math_rows_reference_is_what_stands_in_its_box(value: Any, reference: Any):
    """A whole solution is read as the data set's own are."""
    assert rlvr.make("math-v4").task_of({"reference": value}).reference == reference


@pytest.mark.parametrize("value", ["", "  ", None, True, ["1"], float("nan")])
def test_a_math_reference_that_says_nothing_is_one_rows_fault(value: Any):
    """As above."""
    with pytest.raises(
        rlvr.DataError,
        match=r"the reference is .*; it must be a number, or a text that is not empty",
    ):
        rlvr.make("math-v4").task_of({"reference": value})
    with pytest.raises(rlvr.DataError, match=r"'question'\) is 5; it must be a text"):
        rlvr.make("math-v4").task_of({"question": 5, "answer": "2"})


@pytest.mark.parametrize("option", [{"data": 3}, {"instruction": 3}])
@pytest.mark.parametrize("name", ["gsm8k-v4", "math-v4"])
def test_an_option_that_is_no_text_is_refused(name: str, option: dict):
    """And not by whatever reads it first."""
    with pytest.raises(rlvr.UsageError, match=r"is int 3; it must be a text, such as '"):
        rlvr.make(name, **option)


MATH_ROWS = [
    {
        "problem": "Half?",
        "solution": "It is $\\boxed{\\frac12}$.",
        "answer": "\\frac{1}{2}",
        "level": 1,
    },
    {"problem": "Third?", "solution": "First \\boxed{4}, then it is $\\boxed{\\dfrac{1}{3}}$."},
    {"question": "Three?", "answer": 3},
]


def test_math_takes_the_answer_or_the_last_box(tmp_path: Path):
    """MATH has solutions only, MATH-500 an answer as well, other sets a number."""
    env = rlvr.make("math-v4", data=write(tmp_path / "rows.jsonl", MATH_ROWS))
    assert [task.reference for task in env.tasks()] == ["\\frac{1}{2}", "\\dfrac{1}{3}", "3"]
    assert env.task(0).meta == {"level": 1}
    assert [env.score(task, env.example(task)).total for task in env.tasks()] == [1.0, 1.0, 1.0]
    assert env.score(env.task(0), "\\boxed{0.5}").total == 1.0
    assert env.score(env.task(1), "\\boxed{0.333}").total == 0.0


def test_a_math_row_without_reference_is_the_data_sets_fault(tmp_path: Path):
    """As above."""
    data = write(tmp_path / "rows.jsonl", [{"problem": "?", "solution": "No box."}])
    with pytest.raises(
        rlvr.DataError,
        match=r"math-v4/test/0: neither a column 'answer' .* nor a box in 'solution'",
    ):
        rlvr.make("math-v4", data=data).task(0)


def test_a_math_reference_without_a_value_is_reported_when_the_data_is_read(tmp_path: Path):
    """With its row, and in a file of completions as that row's error: not as UNSCORED at every answer."""
    data = write(
        tmp_path / "rows.jsonl", [MATH_ROWS[0], {"problem": "?", "answer": "\\frac{1}{0}"}]
    )
    with pytest.raises(rlvr.DataError, match=r"math-v4/test/1: the reference .* has no value"):
        rlvr.make("math-v4", data=data).task(0)
    with pytest.raises(rlvr.DataError, match="is empty"):
        rlvr.make("math-v4").task_of({"reference": "x \\boxed{}"})
    left_out: list[int] = []
    rows = [
        {"reference": "1/0", "completion": "\\boxed{1}"},
        {"reference": "1", "completion": "\\boxed{1}"},
    ]
    scored = list(
        rlvr.score(
            rlvr.make("math-v4"),
            rows,
            workers=0,
            on_error=lambda number, _: left_out.append(number),
        )
    )
    assert left_out == [1]
    assert [s.outcome for s in scored] == ["correct"]


@pytest.mark.parametrize("name", ["gsm8k-v4", "math-v4"])
def test_a_missing_data_set_is_named_with_the_way_out(name: str, tmp_path: Path):
    """No network, a typo, a wrong folder: the error says which source and what else works."""
    with pytest.raises(rlvr.DataError, match=r"nowhere\.jsonl: no such file"):
        rlvr.make(name, data=str(tmp_path / "nowhere.jsonl")).task(0)


ARITHMETIC_V1 = ["(158 + 2) / 2", "(30 - 10) * 77", "(3886 + 4154) / 67"]

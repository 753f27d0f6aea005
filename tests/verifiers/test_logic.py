"""Roles, grids, sudoku and expressions, with the inputs that fooled other checkers."""

import re
from fractions import Fraction
from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlvr
from rlvr.verifiers.logic import (
    ExpressionVerifier,
    GridVerifier,
    RolesVerifier,
    SudokuVerifier,
    expression_value,
)
from rlvr.verifiers.logic_solvers import box_shape, grids_left, solve24, sudoku_solutions

GAME = {"numbers": [6, 4, 1, 1], "target": 24, "all": True}
ROLES = {"Ann": "knight", "Bob": "knave"}
GRID = [["Ann", "red", "cat"], ["Bob", "blue", "dog"]]
SUDOKU = [[1, 0, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 0]]
VACUOUS = (
    "",
    "ok",
    "x",
    "<answer></answer>",
    r"\boxed{}",
    "<answer>ok</answer>",
    r"\boxed{x}",
    "<answer>?</answer>",
)


def box(text: str) -> str:
    return f"<answer>\n{text}\n</answer>"


@pytest.mark.parametrize(
    "text",
    [
        "6*4*1*1",
        "(6 * 4) / (1 * 1) = 24",
        "6 × 4 × 1 ÷ 1",
        "((6)) * 4 + 1 - 1",
        r"6 \times 4 \times 1 \times 1",
    ],
)
def test_expressions_with_the_value_are_right(text: str):
    """Any of the many solutions, in any usual signs."""
    assert ExpressionVerifier().verify(box(text), GAME).correct
    assert ExpressionVerifier().verify(rf"\boxed{{{text}}}", GAME).correct


@pytest.mark.parametrize(
    "text",
    [
        "6+4+1+1",  # SynLogic's game of 24 takes any expression: abs(result - result)
        "6*4 #1 1",  # Enigmata: a comment hides the unused numbers
        "24 if open('/tmp/x','w').write('1') else 6411",  # Enigmata runs it
        "__import__('os').system('true')",
        "6*4",
        "24",
        "6*4*1*1*1",
        "6**1*4*1",
        "6*4//1*1",
        "6*4*1.5*1",
        "6*4*.1*1",
        "-6*4*1*1",
        "64-41+1",
        "6 4 1 1",
        "6*4*1*1 = 25",
        "6*4*1*1 = 24 = 24",
        "6*4*1*1 or 6+4+1+1",
        "6*4*1*1, 6+4+1+1",
        "6/(1-1)*4",
        "(" * 500 + "6*4*1*1" + ")" * 500,
        "6*(4*1*1",
        "٦*4*1*1",
        "9" * 3000,
    ],
)
def test_other_expressions_are_wrong(text: str):
    """The first three are domains.md 2.2; none is ever run."""
    assert not ExpressionVerifier().verify(box(text), GAME).correct


@pytest.mark.parametrize(
    ("text", "numbers", "target"),
    [("1.5*4", [1, 5, 4], 6), ("2**5-8", [2, 5, 8], 24)],
)
def test_rllms_countdown_holes(text: str, numbers: list[int], target: int):
    """rllm gives 1.0 to a decimal made of two numbers, and to a power."""
    assert (
        not ExpressionVerifier().verify(box(text), {"numbers": numbers, "target": target}).correct
    )


@pytest.mark.parametrize(
    ("right", "twin"),
    [
        ("6*4*1.0*1", "6*4*1.00000000001*1"),
        ("-6*-4*1*1", "-6*4*1*1"),
        ("6(4)(1)(1)", "6(4)(1)(1)(1)"),
        (r"\frac{6 \times 4}{1 \cdot 1}", r"\frac{6 \times 4}{1 \cdot 1}^1"),
        ("24 = 6*4*1*1", "25 = 6*4*1*1"),
        ("6 x 4 x 1 x 1", "6 x 4 x 1"),
    ],
)
def test_forms_that_people_write_are_read_and_their_wrong_twins_are_not_paid(right, twin):
    """A sign in front, a decimal that is whole, a product without a sign, LaTeX, the target first."""
    assert ExpressionVerifier().verify(box(right), GAME).correct
    assert not ExpressionVerifier().verify(box(twin), GAME).correct


def test_a_given_number_that_is_the_target_is_an_expression():
    """As the red team's rows have it; a number that is not given is none."""
    asked = {"numbers": [24, 3], "target": 24}
    assert ExpressionVerifier().verify(box("24"), asked).correct
    assert not ExpressionVerifier().verify(box("12*2"), asked).correct


def test_values_are_exact():
    """8/(3-8/3) is 24, which floats miss."""
    assert expression_value("8/(3-8/3)") == (Fraction(24), [8, 3, 8, 3])


@pytest.mark.parametrize(
    "text",
    [
        "Ann: knight, Bob: knave",
        "Bob is a knave\nAnn is a knight.",
        "Ann = knight; and Bob = knave",
    ],
)
def test_roles_in_any_order_are_right(text: str):
    """Every name once."""
    assert RolesVerifier().verify(box(text), ROLES).correct


@pytest.mark.parametrize(
    "text",
    [
        "Ann: knight",
        "Ann: knight, Bob: knight",
        "Ann: knight, Bob: knave, Bob: knight",
        "Ann: knight, Bob: knave, Carl: knave",
        "Ann: knight or knave, Bob: knave",
        "Ann: knight, Bob: not a knave",
        "knight knave knight knave",  # Logic-RL counts the words
        "Ann knight knave Bob knight knave",
    ],
)
def test_roles_that_hedge_or_lack_a_name_are_wrong(text: str):
    """One role for each name, and no other text."""
    assert not RolesVerifier().verify(box(text), ROLES).correct


def test_grids_are_compared_whole():
    """With or without the number of the house; one wrong cell is a wrong grid, worth 0."""
    verifier = GridVerifier()
    assert verifier.verify(box("Ann, red, cat\nBob, blue, dog"), GRID).correct
    assert verifier.verify(box("House 1: ann, Red, cat\n2: Bob, blue, dog"), GRID).correct
    wrong = verifier.verify(box("Ann, red, dog\nBob, blue, dog"), GRID)
    assert (wrong.correct, wrong.value) == (False, 0)
    for text in (
        "Ann, red, cat",
        "Ann, red, cat, dog\nBob, blue, dog",
        "Ann red cat\nBob blue dog",
        "Bob, blue, dog\nAnn, red, cat",
    ):
        assert not verifier.verify(box(text), GRID).correct


def test_sudoku_is_judged_by_its_rules():
    """The given digits stand, and any full grid that keeps the rules is right."""
    verifier = SudokuVerifier()
    assert verifier.verify(box("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"), SUDOKU).correct
    assert verifier.verify(box("1,2|3,4\n34|12\n--+--\n21|43\n4321"), SUDOKU).correct
    assert verifier.verify(box("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 2"), SUDOKU).why == "rule-broken"
    assert verifier.verify(box("2 1 3 4\n3 4 1 2\n1 2 4 3\n4 3 2 1"), SUDOKU).why == "given-changed"
    assert verifier.verify(box("1 . 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 ."), SUDOKU).reason == "shape"
    assert verifier.read(tuple(map(tuple, SUDOKU))) == verifier.read(SUDOKU)
    with pytest.raises(rlvr.DataError, match="4, 6 or 9 rows, not 5"):
        box_shape(5)


@pytest.mark.parametrize(
    ("verifier", "reference"),
    [
        (ExpressionVerifier(), GAME),
        (RolesVerifier(), ROLES),
        (GridVerifier(), GRID),
        (SudokuVerifier(), SUDOKU),
    ],
)
def test_vacuous_answers_pay_nothing(verifier: rlvr.Verifier, reference: object):
    """Nor does a right answer outside of the box, or one beside a wrong one."""
    for text in VACUOUS:
        verdict = verifier.verify(text, reference)
        assert not verdict.correct
        assert verdict.value == 0


@pytest.mark.parametrize(
    "verifier", [ExpressionVerifier(), RolesVerifier(), GridVerifier(), SudokuVerifier()]
)
@pytest.mark.parametrize(
    "reference", [None, {}, [], "x", {"numbers": [1], "target": 1, "all": "no"}]
)
def test_references_that_cannot_be_read_are_errors(verifier: rlvr.Verifier, reference: object):
    """Each says what it must be."""
    with pytest.raises(rlvr.DataError, match=r"it must (?:be|map)"):
        verifier.verify(box("1"), reference)


def test_the_sudoku_solver_finds_all_solutions():
    """A grid with two empty rows of a band has more than one; a full grid has itself."""
    solved = [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]
    assert sudoku_solutions(solved, most=5) == [solved]
    assert sudoku_solutions(SUDOKU, most=5) == [solved]
    assert len(sudoku_solutions([[0] * 4 for _ in range(4)], most=1000)) == 288  # all 4 by 4 grids


def test_the_zebra_solver_agrees_with_trying_all_grids():
    """Three houses, two attributes: 36 grids, counted one by one."""
    cases = [
        [("left", 0, 0, 1, 1), ("at", 0, 2, 0, 0)],
        [("same", 0, 0, 1, 0), ("same", 0, 1, 1, 1)],
        [
            ("next", 0, 0, 0, 1),
            ("not at", 0, 0, 0, 1),
            ("left", 1, 0, 1, 2),
            ("at", 1, 1, 0, 2),
            ("left", 0, 1, 0, 2),
        ],
        [("at", 0, 0, 0, 0), ("at", 0, 1, 0, 0)],
    ]
    for clues in cases:
        count = 0
        for grid in product(permutations(range(3)), repeat=2):
            count += all(
                grid[k][a] == b
                if relation == "at"
                else grid[k][a] != b
                if relation == "not at"
                else {"same": grid[m][b] == grid[k][a], "left": grid[m][b] == grid[k][a] + 1}.get(
                    relation, abs(grid[m][b] - grid[k][a]) == 1
                )
                for relation, k, a, m, b in clues
            )
        assert grids_left(clues, 3, 2) == min(count, 2)


def test_24_is_found_where_it_needs_fractions():
    """8, 8, 3, 3 has one solution; 1, 1, 1, 1 has none."""
    assert solve24([(Fraction(n), str(n)) for n in (8, 8, 3, 3)]) is not None
    assert solve24([(Fraction(n), str(n)) for n in (1, 1, 1, 1)]) is None


def reached(values: tuple[Fraction, ...]) -> set[Fraction]:
    """All that the values can be joined to, in any order."""
    if len(values) == 1:
        return set(values)
    results = set()
    for size in range(1, len(values)):
        for chosen in combinations(range(len(values)), size):
            rest = [values[at] for at in range(len(values)) if at not in chosen]
            for a, b in product(reached(tuple(values[at] for at in chosen)), reached(tuple(rest))):
                results |= {a + b, a - b, a * b, *([a / b] if b else [])}
    return results


@given(st.lists(st.integers(1, 13), min_size=1, max_size=3))
def test_24_is_found_exactly_where_some_order_gives_it(numbers: list[int]):
    """Its expression uses the numbers as they are, and Python agrees with its value."""
    values = tuple(map(Fraction, numbers))
    solution = solve24([(value, str(value)) for value in values])
    assert (solution is not None) == (24 in reached(values))
    if solution is not None:
        assert sorted(map(int, re.findall(r"\d+", solution))) == sorted(numbers)
        assert eval(re.sub(r"(\d+)", r"Fraction(\1)", solution)) == 24


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.data())
def test_any_expression_of_all_numbers_has_its_value_and_no_other(numbers: list[int], data):
    """Drawn in any order with any signs; the target beside it, one number more and one less are wrong."""
    text, value = str(numbers[0]), Fraction(numbers[0])
    for number in numbers[1:]:
        sign = data.draw(st.sampled_from("+-*"))
        text = f"({text} {sign} {number})"
        value = {"+": value + number, "-": value - number, "*": value * number}[sign]
    asked = {"numbers": data.draw(st.permutations(numbers)), "target": int(value), "all": True}
    verify = ExpressionVerifier().verify
    assert verify(box(text), asked).correct
    assert not verify(box(text), asked | {"target": int(value) + 1}).correct
    assert not verify(box(text), asked | {"numbers": numbers[1:]}).correct
    assert not verify(box(text), asked | {"numbers": [*numbers, 1]}).correct


@given(st.lists(st.sampled_from(["knight", "knave"]), min_size=2, max_size=4), st.data())
def test_any_roles_are_right_and_any_others_wrong(roles: list[str], data):
    """In any order of the names."""
    reference = dict(zip(("Ann", "Bob", "Cid", "Dee"), roles, strict=False))
    order = data.draw(st.permutations(sorted(reference)))

    def said(roles: dict[str, str]) -> str:
        return box("\n".join(f"{name}: {roles[name]}" for name in order))

    assert RolesVerifier().verify(said(reference), reference).correct
    liar = data.draw(st.sampled_from(order))
    other = "knave" if reference[liar] == "knight" else "knight"
    assert not RolesVerifier().verify(said(reference | {liar: other}), reference).correct


@given(st.permutations([1, 2, 3, 4]), st.data())
def test_any_grid_is_right_and_any_other_cell_wrong(digits: list[int], data):
    """A sudoku of 4 with its digits renamed, from any givens; a swap of two rows breaks givens or boxes."""
    a, b, c, d = digits
    solution = [[a, b, c, d], [c, d, a, b], [b, a, d, c], [d, c, b, a]]
    cells = [(r, k) for r in range(4) for k in range(4)]
    empty = data.draw(st.sets(st.sampled_from(cells), min_size=1))
    puzzle = [[0 if (r, k) in empty else solution[r][k] for k in range(4)] for r in range(4)]

    def said(grid: list[list[int]]) -> str:
        return box("\n".join(" ".join(map(str, row)) for row in grid))

    assert SudokuVerifier().verify(said(solution), puzzle).correct
    r, k = data.draw(st.sampled_from(cells))
    wrong = [list(row) for row in solution]
    wrong[r][k] = wrong[r][k] % 4 + 1
    assert not SudokuVerifier().verify(said(wrong), puzzle).correct

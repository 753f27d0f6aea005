"""Puzzles whose answers can be checked against their own rules: roles, grids, sudoku, and expressions of given numbers.

No text of a completion is ever evaluated: expressions are parsed here, over exact fractions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.math.extract import extract

__all__ = [
    "ExpressionVerifier",
    "GridVerifier",
    "RolesVerifier",
    "SudokuVerifier",
    "box_shape",
    "expression_value",
]

_LONGEST = 2000  # characters of an answer
_DEPTH = 50  # of brackets


def _answer(completion: str) -> str | Verdict:
    """What stands in the last box or <answer>; a verdict if nothing does."""
    found = extract(completion)
    if found is None or found.method not in ("box", "tag"):
        return Verdict(Outcome.UNPARSED, why="no-answer: neither in \\boxed{} nor in <answer>")
    if found.flaw in ("empty-box", "unclosed-box"):
        return Verdict(Outcome.UNPARSED, why=found.flaw)
    if found.flaw == "hedged":
        return Verdict(
            Outcome.WRONG,
            why="hedged: several answers in one statement differ",
            answer=found.answer,
        )
    if len(found.answer) > _LONGEST:
        return Verdict(Outcome.WRONG, why="limit: an answer of more than 2,000 characters")
    return found.answer


def _verdict(why: str, answer: str, fine: str) -> Verdict:
    return Verdict(Outcome.WRONG if why else Outcome.CORRECT, why=why or fine, answer=answer)


# -------------------------------------------------------------------------------------------------------- roles

_ROLE = re.compile(
    r"(?:and )?([A-Z][A-Za-z]{0,30}) ?(?:is an?|is the|is|:|=|->) ?(?:an? )?([A-Za-z]{3,20})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class RolesVerifier:
    r"""Verifies who is a knight and who a knave.

    The reference maps each name to its role; the answer lists every name once, such as `Ann: knight, Bob: knave`.  The
    reasons: `same-roles` is CORRECT; `unreadable`, `names` (one is missing, unknown or twice) and `wrong-roles` WRONG.
    """

    id: ClassVar[str] = "roles-verifier-v1"

    def verify(self, completion: str, reference: Mapping[str, str]) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: roles by name.

        Raises:
            DataError: the reference is no such mapping.
        """
        if (
            not isinstance(reference, Mapping)
            or not reference
            or not all(map(str.isalpha, reference.values()))
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must map names to roles, {{'Ann': 'knight'}}"
            )
        answer = _answer(completion)
        if isinstance(answer, Verdict):
            return answer
        said = []
        for part in re.split(r"[,;\n]+", re.sub(r"\\(?:text|mathrm|textbf)|[{}$\\*]", " ", answer)):
            role = _ROLE.fullmatch(" ".join(part.split()).rstrip("."))
            if part.strip() and not role:
                return Verdict(
                    Outcome.WRONG, why=f"unreadable: {part.strip()[:60]!r}", answer=answer
                )
            if role:
                said.append((role[1], role[2].lower()))
        if sorted(name for name, _ in said) != sorted(reference):
            return Verdict(
                Outcome.WRONG,
                why="names: every name must be there once, and no other",
                answer=answer,
            )
        wrong = [name for name, role in said if role != reference[name].lower()]
        return _verdict(
            f"wrong-roles: of {len(wrong)} of {len(said)}" if wrong else "", answer, "same-roles"
        )


# -------------------------------------------------------------------------------------------------------- grids


@dataclass(frozen=True, slots=True)
class GridVerifier:
    """Verifies the grid of a zebra puzzle: one line for each house in order, its values with commas between them.

    The reference is a list of rows; a line may begin with `House 1:` or `1:`.  The reasons: `same-grid` is CORRECT;
    `shape` and `wrong-cells` WRONG.
    """

    id: ClassVar[str] = "grid-verifier-v1"

    def verify(self, completion: str, reference: Sequence[Sequence[str]]) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: the rows of the grid.

        Raises:
            DataError: the reference is no list of rows.
        """
        if (
            not isinstance(reference, list | tuple)
            or not reference
            or isinstance(reference[0], str)
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must be a list of rows of texts"
            )
        answer = _answer(completion)
        if isinstance(answer, Verdict):
            return answer
        rows = []
        for number, line in enumerate((one for one in answer.split("\n") if one.strip()), start=1):
            bare = re.sub(rf"^\s*(?:house )?{number}\s*[:.]", "", line, flags=re.IGNORECASE)
            rows.append([cell.strip(" *.").casefold() for cell in bare.split(",")])
        asked = [[cell.casefold() for cell in row] for row in reference]
        if [len(row) for row in rows] != [len(row) for row in asked]:
            return Verdict(
                Outcome.WRONG,
                why=f"shape: not {len(asked)} lines of {len(asked[0])} values",
                answer=answer,
            )
        wrong = sum(
            a != b
            for one, other in zip(rows, asked, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        return _verdict(f"wrong-cells: {wrong}" if wrong else "", answer, "same-grid")


_BOXES: Final = {4: (2, 2), 6: (2, 3), 9: (3, 3)}


def box_shape(size: int) -> tuple[int, int]:
    """Rows and columns of a box of a sudoku.

    Args:
        size: 4, 6 or 9.

    Raises:
        DataError: another size.
    """
    if size not in _BOXES:
        raise DataError(f"a sudoku has 4, 6 or 9 rows, not {size}")
    return _BOXES[size]


@dataclass(frozen=True, slots=True)
class SudokuVerifier:
    """Verifies a sudoku by its rules: the given digits stand, and each row, column and box has every digit once.

    The reference is the puzzle, a list of rows of digits with 0 where nothing is given, so that any solution is right.
    The answer has one line of digits for each row; spaces, commas and bars are ignored.  The reasons: `solved` is
    CORRECT; `shape`, `given-changed` and `rule-broken` WRONG.
    """

    id: ClassVar[str] = "sudoku-verifier-v1"

    def verify(self, completion: str, reference: Sequence[Sequence[int]]) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: the puzzle.

        Raises:
            DataError: the reference is no square of digits of 4, 6 or 9 rows.
        """
        size = len(reference) if isinstance(reference, list | tuple) else 0
        if size not in _BOXES or any(
            not isinstance(row, list | tuple) or len(row) != size for row in reference
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must be 4, 6 or 9 rows of as many digits"
            )
        answer = _answer(completion)
        if isinstance(answer, Verdict):
            return answer
        bare = re.sub(r"[ \t,|;\[\]]+", "", answer).replace("\\\\", "\n")
        lines = [line for line in bare.split("\n") if line.strip("-+=")]
        if len(lines) != size or any(
            not re.fullmatch(f"[1-{size}]{{{size}}}", line) for line in lines
        ):
            return Verdict(
                Outcome.WRONG, why=f"shape: not {size} lines of {size} digits", answer=answer
            )
        grid = [list(map(int, line)) for line in lines]
        kept = all(
            given in (0, said)
            for row, asked in zip(grid, reference, strict=True)
            for said, given in zip(row, asked, strict=True)
        )
        if not kept:
            return Verdict(Outcome.WRONG, why="given-changed", answer=answer)
        high, wide = _BOXES[size]
        boxes = [
            [grid[top + i][left + j] for i in range(high) for j in range(wide)]
            for top in range(0, size, high)
            for left in range(0, size, wide)
        ]
        columns = [list(column) for column in zip(*grid, strict=True)]
        broken = any(len(set(unit)) < size for unit in (*grid, *columns, *boxes))
        return _verdict("rule-broken" if broken else "", answer, "solved")


# -------------------------------------------------------------------------------------------------- expressions

_TOKEN = re.compile(r"\s*([0-9]{1,9}|[-+*/()])")
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"})


class _Bad(Exception):
    """An expression that cannot be read, or has no value."""


def expression_value(text: str) -> tuple[Fraction, list[int]]:
    """The exact value of an expression of whole numbers with + - * / and brackets, and the numbers in it.

    Args:
        text: the expression.

    Raises:
        ValueError: it is something else, is nested more than 50 deep, or divides by zero.
    """
    if len(text) > _LONGEST:
        raise ValueError("too long")
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found or (found[1].isdigit() and text[found.end() : found.end() + 1].isdigit()):
            raise ValueError(f"{text[at : at + 20]!r} is no number, + - * / or bracket")
        tokens.append(found[1])
        at = found.end()
    try:
        value, end, used = _sum(tokens, 0, 0)
    except _Bad as error:
        raise ValueError(str(error)) from None
    if end < len(tokens):
        raise ValueError(f"{tokens[end]!r} is not expected")
    return value, used


def _sum(tokens: list[str], at: int, depth: int) -> tuple[Fraction, int, list[int]]:
    value, at, used = _product(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "+-":
        term, end, more = _product(tokens, at + 1, depth)
        value, at = value + term if tokens[at] == "+" else value - term, end
        used += more
    return value, at, used


def _product(tokens: list[str], at: int, depth: int) -> tuple[Fraction, int, list[int]]:
    value, at, used = _atom(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "*/":
        factor, end, more = _atom(tokens, at + 1, depth)
        if tokens[at] == "/" and factor == 0:
            raise _Bad("a division by zero")
        value, at = value * factor if tokens[at] == "*" else value / factor, end
        used += more
    return value, at, used


def _atom(tokens: list[str], at: int, depth: int) -> tuple[Fraction, int, list[int]]:
    if at >= len(tokens):
        raise _Bad("it ends too early")
    if tokens[at].isdigit():
        return Fraction(int(tokens[at])), at + 1, [int(tokens[at])]
    if tokens[at] != "(" or depth >= _DEPTH:
        raise _Bad(f"{tokens[at]!r} is not expected")
    value, at, used = _sum(tokens, at + 1, depth + 1)
    if at >= len(tokens) or tokens[at] != ")":
        raise _Bad("a bracket is not closed")
    return value, at + 1, used


@dataclass(frozen=True, slots=True)
class ExpressionVerifier:
    r"""Verifies an expression that makes a number from given ones: countdown, and the game of 24.

    The reference is `{"numbers": [6, 4, 1, 1], "target": 24}`, with `"all": True` if every number has to be used.  The
    answer may end in `= 24`.  Only `+ - * /`, brackets and the given whole numbers are read; no powers, roots, signs in
    front, decimals or comments, and nothing is ever run.  The reasons: `reached` is CORRECT; `unreadable`, `numbers`
    (one that is not given, or too often, or one that is left) and `value` WRONG.
    """

    id: ClassVar[str] = "expression-verifier-v1"

    def verify(self, completion: str, reference: Mapping[str, Any]) -> Verdict:
        """The verdict on a completion.

        Args:
            completion: the model's text.
            reference: `numbers`, `target`, and perhaps `all`.

        Raises:
            DataError: the reference is no such mapping.
        """
        given = reference.get("numbers") if isinstance(reference, Mapping) else None
        if (
            not isinstance(given, list | tuple)
            or not given
            or not isinstance(reference.get("target"), int)
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must be {{'numbers': [6, 4], 'target': 24}}"
            )
        answer = _answer(completion)
        if isinstance(answer, Verdict):
            return answer
        said = (
            answer.translate(_SIGNS)
            .replace("\\times", "*")
            .replace("\\cdot", "*")
            .replace("\\div", "/")
        )
        said, equals, stated = (
            said.replace("\\left", "").replace("\\right", "").strip("$ ").partition("=")
        )
        if equals and stated.strip(" .$") != str(reference["target"]):
            return Verdict(Outcome.WRONG, why=f"unreadable: = {stated[:40]!r}", answer=answer)
        try:
            value, used = expression_value(said)
        except ValueError as error:
            return Verdict(Outcome.WRONG, why=f"unreadable: {error}", answer=answer)
        if len(used) < 2 <= len(given):
            return Verdict(
                Outcome.WRONG, why="numbers: an expression has at least two", answer=answer
            )
        if over := Counter(used) - Counter(given):
            return Verdict(
                Outcome.WRONG,
                why=f"numbers: {min(over)} is not given, or not so often",
                answer=answer,
            )
        if reference.get("all") and (left := Counter(given) - Counter(used)):
            return Verdict(Outcome.WRONG, why=f"numbers: {min(left)} is left", answer=answer)
        wrong = f"value: {value}, not {reference['target']}" if value != reference["target"] else ""
        return _verdict(wrong, answer, "reached")

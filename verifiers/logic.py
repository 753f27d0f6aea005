"""Puzzles whose answers can be checked against their own rules: roles, grids, sudoku, and
expressions of given numbers.

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
from rlvr.verifiers.answers import WIDE_DIGITS, Answer, Form
from rlvr.verifiers.base import WRAPPINGS, BaseVerifier
from rlvr.verifiers.logic_solvers import BOXES, sudoku_solutions

__all__ = [
    "ExpressionVerifier",
    "GridVerifier",
    "Numbers",
    "RolesVerifier",
    "SudokuVerifier",
    "expression_value",
]

_LONGEST = 2000  # characters of an answer
# the parser recurses once a bracket
_DEPTH = 50  # of brackets
_LARGEST = 10**100  # a given number or target beyond it is no task
# "\text{", "\left", thin spaces, braces, dollar signs and stars: marks without a meaning here
_MARKUP = re.compile(r"\\(?:text|mathrm|textbf|textit|left|right|,|;|!| )|[{}$*`]|\\(?=$)")


def _unread(why: str, answer: str) -> Verdict:
    return Verdict(Outcome.UNPARSED, why=f"unreadable: {why}", answer=answer)


def _verdict(why: str, answer: str, fine: str) -> Verdict:
    return Verdict(Outcome.WRONG if why else Outcome.CORRECT, why=why or fine, answer=answer)


# -------------------------------------------------------------------------------------------- roles

# "Anne-Marie" and "O'Neil" are one word
_WORD = re.compile(r"[^\W\d_][\w'’]*(?:-[^\W\d_][\w'’]*)*")
# roles that answers may name beside those of the reference: a wrong role must be WRONG, not
# unreadable
_ROLES = frozenset(("knight", "knave", "spy", "liar", "normal", "truth-teller"))
_LINKS = frozenset(
    "a an the is are was and both all so thus therefore hence while but also name names role roles "
    "person people type identity only".split()
)
_BETWEEN = re.compile(r"(?:[\s.,;:=()\[\]|&\"'{}→>*•+\-–—]|\d{1,2}[.)])*")


@dataclass(frozen=True, slots=True)
class RolesVerifier(BaseVerifier[Answer, Mapping[str, str]]):
    r"""Verifies who is a knight and who a knave.

    The reference maps each name to its role; the answer says every name's role once: `Ann: knight,
    Bob: knave`, "Ann and Cy are knights", `Ann (knight)`, `Knights: Ann, Cy`, in lines or bullets.
    The reasons: `same-roles` is CORRECT; `unreadable` UNPARSED; `names` (one is missing, unknown or
    twice) and `wrong-roles` WRONG.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(lines=True)
    reference_form: ClassVar[str] = "a mapping from each name to its role"
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "full stop")
    reference_example: ClassVar[object] = {"Ann": "knight", "Bob": "knave"}

    def read(self, reference: object) -> Mapping[str, str]:
        """Roles by name, in lower case.

        Args:
            reference: a mapping.

        Raises:
            DataError: it is none, or has no names.
        """
        if (
            not isinstance(reference, Mapping)
            or not reference
            or not all(isinstance(role, str) and role.isalpha() for role in reference.values())
            or not all(isinstance(name, str) and _WORD.fullmatch(name) for name in reference)
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must map names of one word to roles, "
                f"{{'Ann': 'knight'}}"
            )
        if len(self.example(reference)) > self.form.longest:
            raise DataError(f"the reference {brief(reference)} is longer than an answer may be")
        return {name: role.lower() for name, role in reference.items()}

    def judge(self, answer: Answer, reference: Mapping[str, str]) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        roles = _roles_said(_MARKUP.sub(" ", answer.text), reference)
        if isinstance(roles, str):
            return _unread(roles, answer.text)
        # before the roles: an answer with both roles for each name would always hold the right ones
        if sorted(name for name, _ in roles) != sorted(reference):
            return Verdict(
                Outcome.WRONG,
                why="names: every name must be there once, and no other",
                answer=answer.text,
            )
        wrong = [name for name, role in roles if role != reference[name]]
        why = f"wrong-roles: of {len(wrong)} of {len(roles)}" if wrong else ""
        return _verdict(why, answer.text, "same-roles")

    def example(self, reference: Any) -> str:
        return (
            f"<answer>{', '.join(f'{name}: {role}' for name, role in reference.items())}</answer>"
        )


def _roles_said(text: str, reference: Mapping[str, str]) -> list[tuple[str, str]] | str:
    """(name, role) in order; a text says why they cannot be read.

    Either names go before their role, "Ann and Cy are knights", or each role before its names,
    "Knights: Ann, Cy".  Any other word, such as "not", "or" and "if", may say anything.
    """
    roles = _ROLES | set(reference.values())
    names = {name.casefold(): name for name in reference}
    # names that differ in case alone are told apart by case alone
    names = names if len(names) == len(reference) else {}
    runs: list[tuple[bool, list[str]]] = []  # whether of roles, and the words
    at = 0
    for word in _WORD.finditer(text):
        # any other sign could turn the meaning, as "≠" does
        if not _BETWEEN.fullmatch(text, at, word.start()):
            return repr(text[at : word.start()][:60])
        at, folded = word.end(), word[0].lower()
        # "knights" and "witches" as well: "Ann and Bob are knights"
        role = next((form for form in (folded, folded[:-1], folded[:-2]) if form in roles), "")
        # "A is a knight": an article is the name of nobody
        is_other = bool(role) or folded in _LINKS
        name = word[0] if word[0] in reference else "" if is_other else names.get(folded, "")
        # words that link are passed over, other names are kept and refused later; any other word
        # may say "not"
        if not name and not role:
            if folded in _LINKS:
                continue
            if not word[0][0].isupper():
                return repr(word[0][:60])
        is_role = bool(role) and not name
        if not runs or runs[-1][0] != is_role:
            runs.append((is_role, []))
        runs[-1][1].append(role if is_role else name or word[0])
    if not _BETWEEN.fullmatch(text, at):
        return repr(text[at:][:60])
    # runs of names and roles in turns: "Ann and Bob are knights, Cid a knave"
    if len(runs) % 2 or any(len(words) > 1 for is_role, words in runs if is_role):
        return "a name without a role, or with two"
    roles_read = []
    for (is_role, former), (_, latter) in zip(runs[::2], runs[1::2], strict=True):
        [role], named = (former, latter) if is_role else (latter, former)
        roles_read += [(name, role) for name in named]
    return roles_read


# -------------------------------------------------------------------------------------------- grids


# "1:", "House 2 -", "#3)"; not the 2 of "2-door"
_LABEL = re.compile(
    r"(?:house|row|position|no\.?|#)?\s*#?(\d)\s*(?:[:.)]|->|→|-(?=\s)|$)|"
    r"(?:house|row|position)\s*(\d)\s*",
    re.IGNORECASE,
)
# the line below a table's head: "|---|---|"
_RULE = re.compile(r"[-:|+= ]+")
# frames of tables, as terminals draw them
_FRAME: Final = {
    **dict.fromkeys(range(0x2500, 0x2580), 0x2D),
    **dict.fromkeys(map(ord, "│┃║"), 0x7C),
}
# rows of a matrix in brackets: "[1, 2], [3, 4]"
_ROWS: Final = re.compile(r"\]\s*,?\s*\[")
_BULLET: Final = re.compile(r"\A[-*•+] +(?=\S)")
# "red - cat"; a hyphen in a word has no space around it
_DASHES: Final = re.compile(r" [-–—] ")
# "Colour: red": the name of a column in a cell
_CELL_NAME: Final = re.compile(r"[A-Za-z][A-Za-z ]{0,20}[:=]\s*(?=\S)")


def _lines(text: str, count: int) -> list[str]:
    """The lines of a grid, without markup, frames and what stands on a line for looks alone."""
    plain = _ROWS.sub("\n", text.translate(_FRAME).replace("\\\\", "\n").strip())
    plain = _MARKUP.sub("", plain)
    lines = [_BULLET.sub("", line.strip(), count=1) for line in plain.split("\n")]
    lines = [line.strip(" \t[](),;'\"") for line in lines]
    lines = [line for line in lines if line and not _RULE.fullmatch(line)]
    # all rows on one line: "red, cat; blue, dog"
    if len(lines) == 1 and count > 1:
        lines = [line.strip() for line in re.split(r"\s*(?:;|/|\|\|)\s*", lines[0]) if line.strip()]
    return lines


@dataclass(frozen=True, slots=True)
class GridVerifier(BaseVerifier[Answer, tuple[tuple[str, ...], ...]]):
    """Verifies the grid of a zebra puzzle: one line for each house in order, its values
    with commas between them.

    The reference is a list of rows.  A line may begin with `House 1:` or `1:`, may be the row of a
    table with or without a head, a list in brackets, or follow the one before after a semicolon.
    The reasons: `same-grid` is CORRECT; `shape` UNPARSED; `wrong-cells` WRONG.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(lines=True, longest=4000)
    reference_form: ClassVar[str] = "a list of rows, each a list of texts"
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "capitals", "full stop", "wide digits")
    reference_example: ClassVar[object] = [["red", "cat"], ["blue", "dog"]]

    def read(self, reference: object) -> tuple[tuple[str, ...], ...]:
        """The cells in one case.

        Args:
            reference: a list of rows.

        Raises:
            DataError: it is none.
        """
        rows = reference if isinstance(reference, list | tuple) else ()
        if not rows or not all(
            isinstance(row, list | tuple)
            and len(row) == len(rows[0])
            and row
            and all(isinstance(cell, str) and cell.strip() for cell in row)
            for row in rows
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must be a list of rows of as many texts"
            )
        lines = [", ".join(row) for row in rows]
        width = len(rows[0])
        # read as an answer would be: a cell with a comma would be two
        read = [_cells(line, width) for line in _lines("\n".join(lines), len(rows))]
        if [len(row) for _, row in read] != [width] * len(rows) or any(name for name, _ in read):
            raise DataError(f"the reference {brief(reference)} cannot be told apart in an answer")
        if sum(map(len, lines)) + len(lines) > self.form.longest:
            raise DataError(f"the reference {brief(reference)} is longer than an answer may be")
        return tuple(tuple(row) for _, row in read)

    def judge(self, answer: Answer, reference: tuple[tuple[str, ...], ...]) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        width = len(reference[0])
        rows = [_cells(line, width) for line in _lines(answer.text, len(reference))]
        cells = {cell for row in reference for cell in row}
        # one line too many is a head only if no value of the grid stands in it
        if len(rows) == len(reference) + 1 and not cells & set(rows[0][1]):
            rows = rows[1:]  # the head of a table
        # labels must be in order: a list sorted in another way has each house on another line
        if [len(row) for _, row in rows] != [width] * len(reference) or any(
            label not in ("", str(at)) for at, (label, _) in enumerate(rows, 1)
        ):
            return Verdict(
                Outcome.UNPARSED,
                why=f"shape: not {len(reference)} lines of {width} values in order",
                answer=answer.text,
            )
        wrong = sum(
            a != b
            for (_, answered_row), expected_row in zip(rows, reference, strict=True)
            for a, b in zip(answered_row, expected_row, strict=True)
        )
        return _verdict(f"wrong-cells: {wrong}" if wrong else "", answer.text, "same-grid")

    def example(self, reference: Any) -> str:
        return "<answer>\n" + "\n".join(", ".join(row) for row in reference) + "\n</answer>"


def _cells(line: str, width: int) -> tuple[str, list[str]]:
    """The number that a line begins with, "" without one, and its cells."""
    number = ""
    cells = [cell for cell in re.split(r"\s*\|\s*", line.strip("| ")) if cell]
    if len(cells) < 2:
        label = _LABEL.match(line)
        if label:
            number, line = label[1] or label[2], line[label.end() :].strip(" [](")
        cells = line.split(",") if "," in line else _DASHES.split(line)
    elif len(cells) == width + 1 and (label := _LABEL.fullmatch(cells[0])):
        number, cells = label[1] or label[2], cells[1:]
    # names are dropped only where each cell has one: "Mr: X" alone may be a value
    if len(cells) == width and all(map(_CELL_NAME.match, map(str.strip, cells))):
        cells = [_CELL_NAME.sub("", cell.strip(), count=1) for cell in cells]
    return number, [" ".join(cell.split()).strip(" .'\"").casefold() for cell in cells]


@dataclass(frozen=True, slots=True)
class SudokuVerifier(BaseVerifier[Answer, tuple[tuple[int, ...], ...]]):
    """Verifies a sudoku by its rules: the given digits stand, and each row, column and
    box has every digit once.

    The reference is the puzzle, a list of rows of digits with 0 where nothing is given, so that any
    solution is right. The answer has one line of digits for each row, or all digits on one line;
    spaces, commas, brackets and bars are ignored.  The reasons: `solved` is CORRECT; `shape`
    UNPARSED; `given-changed` and `rule-broken` WRONG.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(lines=True)
    reference_form: ClassVar[str] = "4, 6 or 9 rows of as many digits, 0 where nothing is given"
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "full stop", "wide digits")
    reference_example: ClassVar[object] = [[1, 0, 0, 0], [0, 0, 3, 0], [0, 4, 0, 0], [0, 0, 0, 2]]

    def read(self, reference: Any) -> tuple[tuple[int, ...], ...]:
        """The puzzle.

        Args:
            reference: its rows.

        Raises:
            DataError: it is no square of digits of 4, 6 or 9 rows.
        """
        size = len(reference) if isinstance(reference, list | tuple) else 0
        if size not in BOXES or not all(
            isinstance(row, list | tuple)
            and len(row) == size
            and all(type(digit) is int and 0 <= digit <= size for digit in row)
            for row in reference
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must be 4, 6 or 9 rows of as many digits"
            )
        if any(
            max(Counter(filter(None, unit)).values(), default=0) > 1 for unit in _units(reference)
        ):
            raise DataError(
                f"the reference {brief(reference)} has a digit twice in a row, column or box"
            )
        return tuple(map(tuple, reference))

    def judge(self, answer: Answer, reference: tuple[tuple[int, ...], ...]) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        size = len(reference)
        bare = _ROWS.sub("\n", answer.text.replace("\\\\", "\n"))
        # a matrix of LaTeX, and lines of a table
        bare = re.sub(r"\\?(?:begin|end)\{[a-z]{1,10}\}(?:\{[clr|]{1,20}\})?|\\hline", "", bare)
        bare = bare.translate(WIDE_DIGITS | _FRAME)
        bare = re.sub(r"[ \t,|;&\[\]*`$]+", "", bare).rstrip(".")
        lines = [line for line in re.split(r"[\n/]", bare) if line.strip("-+=")]
        # before digits are counted: "1: 2 3 4 1" has five
        if len(lines) == size:
            lines = [_strip_number(line, row) for row, line in enumerate(lines, 1)]
        if len(lines) == 1 and len(lines[0]) == size**2:
            lines = [lines[0][at : at + size] for at in range(0, size**2, size)]
        # digits from 1 on: a 0 is an empty cell, and no solution
        if len(lines) != size or any(
            not re.fullmatch(f"[1-{size}]{{{size}}}", line) for line in lines
        ):
            return Verdict(
                Outcome.UNPARSED,
                why=f"shape: not {size} lines of {size} digits",
                answer=answer.text,
            )
        grid = [list(map(int, line)) for line in lines]
        keeps_clues = all(
            clue in (0, digit)
            for row, clues in zip(grid, reference, strict=True)
            for digit, clue in zip(row, clues, strict=True)
        )
        # before the rules: another puzzle's solution keeps them all
        if not keeps_clues:
            return Verdict(Outcome.WRONG, why="given-changed", answer=answer.text)
        broken = any(len(set(unit)) < size for unit in _units(grid))
        return _verdict("rule-broken" if broken else "", answer.text, "solved")

    def example(self, reference: object) -> str | None:
        puzzle = [list(row) for row in self.read(reference)]
        solutions = sudoku_solutions(puzzle, most=1)
        if not solutions:
            return None
        rows = (" ".join(map(str, row)) for row in solutions[0])
        return "<answer>\n" + "\n".join(rows) + "\n</answer>"


def _units(grid: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The rows, columns and boxes of a sudoku."""
    size = len(grid)
    high, wide = BOXES[size]
    boxes = [
        [grid[top + i][left + j] for i in range(high) for j in range(wide)]
        for top in range(0, size, high)
        for left in range(0, size, wide)
    ]
    return [*grid, *zip(*grid, strict=True), *boxes]


def _strip_number(line: str, row: int) -> str:
    """A row of digits without `Row 1:` or `1.` before it, where the number is its own."""
    label = re.match(r"-?(?:row)?(\d)[:.)]", line, re.IGNORECASE)
    return line[label.end() :] if label and int(label[1]) == row else line


# -------------------------------------------------------------------------------------- expressions

# "6" and "6.0", at most nine digits; "6.5" and "1e3" are no given numbers
_TOKEN = re.compile(r"\s*(?:([0-9]{1,9})(?:\.0{1,9})?(?![0-9.])|([-+*/()]))")
_SIGNS = WIDE_DIGITS | str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"}
)
_COMMANDS = (
    (r"\times", "*"),
    (r"\cdot", "*"),
    (r"\ast", "*"),
    (r"\div", "/"),
    (r"\left", ""),
    (r"\right", ""),
)
# the innermost ones, whose braces hold no others; repeated, from the inside outwards
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
# "6 x 4" and "6x(4)": an x between numbers multiplies
_TIMES = re.compile(r"(?<=[\d)])\s*[xX]\s*(?=[\d(])")


class _Parser:
    """Reads an expression over exact fractions.

        sum = product (("+" | "-") product)*    product = sign (("*" | "/") sign | bracket)*
        sign = "-" sign | atom                  atom = number | bracket        bracket = "(" sum ")"

    Attributes:
        used: the numbers in it, in order.
    """

    def __init__(self, tokens: list[str]) -> None:
        self.used: list[int] = []
        self._tokens, self._at, self._depth = tokens, 0, 0

    def value(self) -> Fraction:
        """The value of all tokens.

        Raises:
            ValueError: they are no expression, or divide by zero.
        """
        value = self._sum()
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at]!r} is not expected")
        return value

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while self._next() in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> Fraction:
        value = self._sign()
        while self._next() in ("*", "/", "("):
            sign = "*" if self._next() == "(" else self._take()
            factor = self._sign()
            if sign == "/" and not factor:
                raise ValueError("a division by zero")
            value = value * factor if sign == "*" else value / factor
        return value

    def _sign(self) -> Fraction:
        negative = False
        # "--2", without recursion: a line of a thousand signs is no depth
        while self._next() == "-":
            self._take()
            negative = not negative
        value = self._atom()
        return -value if negative else value

    def _atom(self) -> Fraction:
        token = self._take()
        if token.isdigit():
            self.used.append(int(token))
            return Fraction(self.used[-1])
        # the depth is bounded here rather than by Python's stack
        if token != "(" or self._depth >= _DEPTH:
            raise ValueError(f"{token!r} is not expected" if token else "it ends too early")
        self._depth += 1
        value = self._sum()
        self._depth -= 1
        if self._take() != ")":
            raise ValueError("a bracket is not closed")
        return value


def expression_value(text: str) -> tuple[Fraction, list[int]]:
    """The exact value of an expression of whole numbers with + - * / and brackets, and the numbers
    in it.

    Args:
        text: the expression; `2(3)` is a product, a sign may stand in front, 6.0 is 6.

    Raises:
        ValueError: it is something else, is nested more than 50 deep, or divides by zero.
    """
    if len(text) > _LONGEST:
        raise ValueError("too long")
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"{text[at : at + 20]!r} is no number, + - * / or bracket")
        tokens.append(match[1] or match[2])
        at = match.end()
    parser = _Parser(tokens)
    return parser.value(), parser.used


@dataclass(frozen=True, slots=True)
class Numbers:
    """What an expression has to be made of: `numbers`, `target`, and whether
    `every` one has to be used."""

    numbers: tuple[int, ...]
    target: int
    every: bool


@dataclass(frozen=True, slots=True)
class ExpressionVerifier(BaseVerifier[Answer, Numbers]):
    r"""Verifies an expression that makes a number from given ones: countdown, and the game of 24.

    The reference is `{"numbers": [6, 4, 1, 1], "target": 24}`, with `"all": True` if every number
    has to be used.  The answer may end in `= 24` or begin with `24 =`.  Only `+ - * /`, `\frac`,
    signs, brackets and the given whole numbers are read; no powers, roots or comments, and nothing
    is ever run.  The reasons: `reached` is CORRECT; `unreadable` UNPARSED; `stated` (another value
    is stated), `numbers` (one that is not given, or too often, or one that is left) and `value`
    WRONG.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(longest=_LONGEST)
    reference_form: ClassVar[str] = "a mapping of numbers, target, and perhaps all"
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "full stop", "wide digits")
    reference_example: ClassVar[object] = {"numbers": [6, 4, 1, 1], "target": 24}

    def read(self, reference: object) -> Numbers:
        """The given numbers and the target.

        Args:
            reference: a mapping.

        Raises:
            DataError: it is none, or a number is no whole one.
        """
        fields = reference if isinstance(reference, Mapping) else {}
        numbers: object = fields.get("numbers")
        target: Any = fields.get("target")
        if (
            not isinstance(numbers, list | tuple)
            or not numbers
            or fields.get("all") not in (None, True, False)
            or not all(
                type(number) is int and abs(number) < _LARGEST for number in (*numbers, target)
            )
        ):
            raise DataError(
                f"the reference is {brief(reference)}; it must be {{'numbers': [6, 4], 'target': "
                f"24}}"
            )
        return Numbers(tuple(numbers), target, bool(fields.get("all")))

    def judge(self, answer: Answer, reference: Numbers) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        text, target = answer.text, reference.target
        try:
            # "6*4 = 24" and "24 = 6*4", and workings such as "(1+2)*8 = 3*8 = 24"
            sides = [expression_value(side) for side in _plain(text).split("=")]
        except ValueError as error:
            return _unread(str(error), text)
        # a side that is the bare target: it states the result, and uses no given numbers
        alone = [len(used) == 1 and value == target for value, used in sides]
        # a chain of several equations must keep the target throughout
        if len(sides) > 2 and (any(value != target for value, _ in sides) or any(alone[1:-1])):
            return _unread(f"more than one =, and no working that stays {target}", text)
        if len(sides) >= 2 and not any(alone):
            return Verdict(Outcome.WRONG, why=f"stated: neither side is {target}", answer=text)
        value, used = sides[0] if alone[-1] or len(sides) == 1 else sides[1]
        # numbers before the value: the target itself, written down, has the right value
        if over := Counter(used) - Counter(reference.numbers):
            why = f"numbers: {min(over)} is not given, or not so often"
            return Verdict(Outcome.WRONG, why=why, answer=text)
        if reference.every and (left := Counter(reference.numbers) - Counter(used)):
            return Verdict(Outcome.WRONG, why=f"numbers: {min(left)} is left", answer=text)
        wrong = f"value: {value}, not {target}" if value != target else ""
        return _verdict(wrong, text, "reached")


def _plain(text: str) -> str:
    """The expression without LaTeX."""
    for command, sign in _COMMANDS:
        text = text.replace(command, sign)
    for _ in range(_DEPTH):
        text, count = _FRACTION.subn(r"((\1)/(\2))", text)
        if not count:
            break
    # braces of LaTeX are brackets only where no command is left
    text = text.replace("{", "(").replace("}", ")") if "\\" not in text else text
    return _TIMES.sub("*", text.translate(_SIGNS)).strip(" $.")

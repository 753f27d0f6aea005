"""Reads a text into a form: lists, brackets, choices, signs; other modules read the rest.

`relations.py` reads equations and inequalities, `clock.py` times and dates, `quantity.py` numbers
and expressions.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.arithmetic import NotArithmetic, UndefinedNumber, rational
from rlvr.verifiers.math.clock import date, time_of_day
from rlvr.verifiers.math.cut import brackets, cut, cuts, separator
from rlvr.verifiers.math.fold import mixed, swap, swaps
from rlvr.verifiers.math.forms import (
    INFINITY,
    MINUS_INFINITY,
    Choice,
    Family,
    Flawed,
    Form,
    Items,
    Named,
    Quantity,
    Word,
    flat,
    pair,
)
from rlvr.verifiers.math.latex import Node, parse_or_none
from rlvr.verifiers.math.latex.tree import has, num, split_signs, sym
from rlvr.verifiers.math.limits import fold_within
from rlvr.verifiers.math.parameters import declaration, split_quantified
from rlvr.verifiers.math.quantity import built, counted, literal, quantity, word
from rlvr.verifiers.math.relations import equation, inequality, together
from rlvr.verifiers.math.remarks import without_remark
from rlvr.verifiers.math.statement import tree_or_none
from rlvr.verifiers.math.units import SAYS_MORE, SCALES
from rlvr.verifiers.math.words import PHRASES, formula, number, plain, unquoted

__all__ = ["read", "read_without_remark"]

_COMMAS = separator(r"[,;]|\\also(?![a-zA-Z])")
_SEMICOLONS = separator(";")
_DASHES = separator(r"\\endash(?![a-zA-Z])")
# (a), (b): the parts of a question.
_PART = re.compile(r'"?\(?([a-h])\)"? ?')
_MARKED = re.compile(r'"?\( ?[A-Ja-j] ?\)"?')
# A \setminus B, A \ \{1\}, A - \{1\}
_WITHOUT = separator(r"\\setminus(?![a-zA-Z])|(?:\\|- ?)(?=\\\{)")
_REGIONS = {
    r"\cup": (separator(r"\\cup(?![a-zA-Z])"), "union"),
    r"\cap": (separator(r"\\cap(?![a-zA-Z])"), "meet"),
    r"\setminus": (_WITHOUT, "minus"),
    r"\{": (_WITHOUT, "minus"),
}
_ROWS = separator(r"\\\\")
_CELLS = separator("&")
# 5:8, 5 "to" 8
_COLONS = separator(':|(?<=\\d) "?to"? (?=\\d)')

# 10,000 dollars: one grouped number, and then no other number.
_GROUPED = re.compile(
    r"[+-]? ?(?:[$£€]|[A-Z]{3})? ?\d{1,3}(?:,\d{3})+(?:\.\d+)?[^\d,;()\[\]{}<>=:]*"
    r"(?:\^ ?\{? ?\d ?\}?)?"
)
_GROUPED_LIST = re.compile(
    r"(?=.*\d,\d)-?\d{1,3}(?:,\d{3})*(?:\.\d+)?(?:, -?\d{1,3}(?:,\d{3})*(?:\.\d+)?){1,50}"
)
_OUTWARD = re.compile(r"\][^()\[\]]{1,200}[\]\[]|\[[^()\[\]]{1,200}\[")  # ]2, 5[ is (2, 5)
# Maximum: 5, "Area:" 12
_LABEL = re.compile(
    r'"?((?:[xy]-(?=int))?[A-Za-z][A-Za-z ]{0,30})"?: (.*)|"([A-Za-z][A-Za-z ]{0,30}):" ?([^"].*)'
)
# mean 72, The mean is 72, "vertical asymptote" x = 1: beside others
_LABELLED = re.compile(
    r'(?i)"?(?:the )?(?P<name>[a-z][a-z -]{2,24}?)(?: is| of)?"? ?'
    r"(?P<value>(?:[-+\d\\(.]|[a-z] ?=).{0,80})"
)
# "the answer is" 5, "it diverges to" \infty: before a value alone.
_STATED = re.compile(
    r'(?i)"?(?:(?:so|thus|hence|therefore),? ?)?'
    r"(?:(?:the )?(?:final )?(?:answer|value|result)(?: is|:)|it is|it\'s|"
    r'(?:it )?(?:(?:diverges|converges|tends|goes) to|approaches)) ?"? ?(?=[\d\\$(+-]|[A-J]\Z)',
)
_MATRIX = re.compile(r"(?s)\\begin ?\{([pbBvV]?matrix)\}((?:(?!\\end).)*)\\end ?\{\1\}")
# \{x | x > 0\}, \{x \in \mathbb{R} : x \ne 1\}
_BUILDER = re.compile(
    r"([a-z]) ?(?:\\in ?\\mathbb ?\{? ?R ?\}? ?)?[|:] ?([^|:;]*(?:[<>]|\\le|\\ge|\\ne)[^|:;]*)"
)
# (B), "B.", B) and B alone.
_CHOICE = re.compile(
    r"\"?\( ?([A-Ja-j]) ?\)\"?|\[ ?([A-J]) ?\]\Z|\"([A-Ja-j])[.:)]?\"|([A-J])(?:[.:)]|$)"
    r"|\\mathbf ?\{ ?([A-J]) ?\}\Z"
)
# (B) "is wrong", (B) "or" …: said of an option, and no choice of it.
_DENIED = re.compile(
    r'(?i)"? ?(?:is|are|was|not|or|nor|and|isn.t|never|except|wrong|incorrect|false|but)\b',
)
_CHOICE_LAST = re.compile(r'([^"()]{1,40}) "?\(([A-J])\)"?')  # 5 (B)
_OPTION = re.compile(r"(?i)\"?(?:option|choice|answer) \(?([A-Ja-j])\)?\"?")
# Without quotes, letters are words where three stand together and not all are single: a - bc is a
# difference.
_LETTERS = re.compile(r"[^\W\d_]+(?:(?: |\. ?|'|(?<=[^\W\d_]{3})-(?=[^\W\d_]{3}))[^\W\d_]+)*")
_THREE_LETTERS = re.compile(r"[^\W\d_]{3}")
_SHORT_WORDS = frozenset(
    "yes no odd true even all any max min one two six ten red new old dne none noon".split()
)
_REALS = re.compile(r"\\(?:mathbb|Bbb|mathbf)\{?R\}?([\^_]\{?(?:[+-]|>0|<0|\\ge0|\\le0)\}?)?")
_HALF_OPEN = frozenset(("(]", "[)"))
_PAIRS = _HALF_OPEN | {"()", "[]", r"\{\}", r"\langle\rangle"}
# Behind (B) one of these makes a formula of it: (B)^2, (A) = 3.
_NO_OPTION = re.compile(
    r"[\^_*/!=<>+'?|\u2192-]|"
    r"\\(?:times|cdot|div|overline|bar|ne|le|ge|in|notin|to|not|equiv|approx|sim|cup|cap|setminus|"
    r"subset|subseteq|vee|wedge|pm)"
    r"(?![a-zA-Z])"
)
# all real numbers except 0, all reals but x = 1
_ALL_BUT = re.compile(
    r'(?i)"?(?:all )?(?:the )?real(?:s| numbers)?(?:"? ?[a-z])?,?'
    r'(?: ?"?(?:except(?: for)?|but|other than)|"? ?\\ne)"? ?'
    r"(?:[a-z] ?= ?)?(?P<gone>.+)",
)
# A sentence with one of these does not simply state the value behind it.
_DOUBT = re.compile(
    r"(?i)\b(?:not?|never|wrong|incorrect|false|or|and|but|if|unless|least|most|about|nearly|"
    r"almost|half|twice|minus|than|between)\b|n't",
)
_CHINESE_DOUBT = re.compile("[不没非或约近错]|至[少多]|[大小多少低高]于|超过|两倍|一半|除了")
_BARE_LETTER = re.compile(r"[A-Za-z] ?(?:_ ?\{?\d\}?)?")
_INTEGERS = re.compile("(?:all |any |every )integers?(?: [a-z])?")
_NUMERAL = re.compile(r"[XV]?I{2,3}")  # II and III are statements, and no products of I
# 7:05 is a time and no ratio.
_LEADING_ZERO = re.compile(r"(?<!\d)0\d")
_WHOLE, _MOST_COUNTED = re.compile(r"-?\d{1,6}"), 200
# 4k+1 : k \in \mathbb{Z}
_RESIDUES = re.compile(r"([^|:]{1,60})[|:] ?([a-z]) ?\\in ?\\mathbb ?\{? ?([ZR]) ?\}?")
# 2 + 7\mathbb{Z}, [2]_7
_COSET = re.compile(
    r"(?:(?P<start>-?\d{1,9}) ?\+ ?)?(?P<step>\d{1,6}) ?(?:\\cdot)? ?\\mathbb ?\{? ?Z ?\}?"
    r"|\[(?P<residue>-?\d{1,9})\] ?_ ?\{?(?P<modulus>\d{1,6})\}?"
)
# x \in \mathbb{Z} : 1 \le x \le 4
_BOUNDED = re.compile(r"([a-z]) ?\\in ?\\mathbb ?\{? ?([ZN]) ?\}? ?[|:] ?([^|:;]{1,80})")
# x + 3, x \ne 3
_HOLE = re.compile(
    r'(?P<of>[^<>|;"]*[\w})])(?: ?, ?| ?(?=["(]))["( ]{0,4}(?:where|for|with|if)?'
    r'[" ]{0,2}(?P<letter>[a-z]) ?\\ne ?(?P<value>-?(?:\d+(?:\.\d+)?|[a-z]|\\frac\{\d+\}\{\d+\}))'
    r'[") ]{0,3}'
)
# multiples of 3, odd integers
_CLASSES = re.compile(
    r"(?i:all |the )?(?i:integers? )?(?i:multiples of (?P<step>\d{1,6})|(?P<kind>odd|even) "
    r"(?:integers|numbers))"
)
_MOST_SPELT = 12  # words of a number
_SHORT = 100  # characters of a text whose form is kept
_ORDINAL_ENDS = ("first", "second", "third", "th")
_ZERO = Quantity("0", "0", 0)


def _as_column(row: re.Match[str]) -> str:
    """(1, 2)^T"""
    cells = cut(row["list"], _COMMAS) if row["list"] else row["cells"].split("&")
    column = "\\\\ ".join(cells)
    return rf"\begin{{pmatrix}} {column} \end{{pmatrix}}"


def _unless_doubted(match: re.Match[str]) -> str:
    """What a sentence states, if nothing in it makes that doubtful."""
    return match[0] if _DOUBT.search(match["about"]) else match.groupdict().get("amount", "")


def _once_more(match: re.Match[str]) -> str:
    r"""3/4 (or 0.75) as `3/4 ; 0.75`, and 2\sqrt3 (\approx 3.46) without brackets."""
    other = match["other"] or match["percent"]
    return f"{match['first']} {match['about'] or f'; {other}'}"


_ROUNDED = re.compile(
    r'\\approx(?![a-zA-Z]) ?|"?(?:approximately|about(?="? ?\d*\.))"? ?(?=[-+\d\\.($])'
)
# In this order, and again until nothing changes: what is left is read.
_REMARKS = swaps(  # what says no more of the value
    (  # "There are 27 cats"
        (" is ", " are "),
        (
            r'(?i)\A"(?:the|there|it)\b(?P<about>[^"]{0,80}?)(?<= )(?:is|are|was|were|equals) '
            r'(?P<amount>\d[^"]{0,60}?)[. ]{0,2}"\Z'
        ),
        _unless_doubted,
    ),
    (  # 14 R 2, quotient 14 and remainder 2
        ("R", "rem"),
        (
            r'(?i)\A"?(?:the )?(?:quotient"? ?(?:is|of|:|=)? ?"? ?)?(\d{1,15})[ ,"]{0,4}'
            r'(?:(?:and |with )?(?:(?:a |the )?remainder|rem\.?)"? ?(?:is|of|:|=)?|R"?) ?"?'
            r' ?(\d{1,15})"?\Z'
        ),
        r"\1 remainder \2",
    ),
    (  # "The largest prime is" 97
        ('"', " is ", " are ", " equals "),
        (
            r'(?i)\A"?(?:(?:so|thus|hence|therefore|then),? )?(?:the|there|this|that|it)\b'
            r'(?P<about>(?:(?!, (?:the|its) )[^"]){0,80}?)'
            r'(?<= )(?:is|are|was|were|equals) ?"? ?(?=[-+\d\\(\[]|[a-z](?:\([a-z]\))? ?=)'
            r'(?![^;]{1,60}, ?"?(?:the |its )?[a-z -]{3,30}(?:is|=) )'
        ),
        _unless_doubted,
    ),
    ("equals", r'\A"?([a-zA-Z])"? "?equals"? ?(?=[-+\d\\(])', r"\1 = "),
    (" is ", r'\A"?([b-zB-HJ-Z])"? "?is"? ?(?=[-+\d\\(])', r"\1 = "),
    ("must be", r'\A"?([b-zB-HJ-Z])"? "?must be"? ?(?=[-+\d\\(])', r"\1 = "),
    (" o ", r"(?<=\d) o (?=[a-z] ?=)", " ; "),
    (" y ", r"(?<=\d) y (?=[a-z] ?=)", " , "),
    (  # n = 1 "is the only solution"
        (" is the ", '"is ', " is our "),
        r'(?<=[\w})\]]) "?is (?:the|our) (?:(?:(?:only|final|required|unique|correct) ){0,2}'
        r"(?:solution|answer|value|result|root|such \w+)|(?:smallest|largest|greatest|least)"
        r'(?: such)?(?: \w+)?)"?\Z',
        "",
    ),
    ("only", r'(?i)\A"?(?:only|just) ?"? ?(?=[a-z] ?=|[-+\d\\(\[]|[A-JVX](?![a-zA-Z])|I)', ""),
    ("only", r'(?<=[ "][A-JVX]|[ "I]I) only(?="?\Z)', ""),
    *(  # 7 (since 21 = 3 · 7)
        (
            sign,
            rf'\A"?([^",;()]{{1,60}}?)"? ?,? ?(?:\( ?"|"\( ?|"|\( ?){sign}\b.*\Z',
            r"\1",
        )
        for sign in ("since", "because")
    ),
    *(  # 小明有 15, 圆的面积为 9\pi
        (
            sign,
            rf'\A"?(?P<about>[\u4e00-\u9fff ,]{{1,30}}?){sign}"? ?(?=[-+\d\\(\[])',
            lambda match: match[0] if _CHINESE_DOUBT.search(match["about"]) else "",
        )
        for sign in ("是", "为", "有", "共", "等于")
    ),
    (  # all real numbers greater than 2
        ("greater than", "larger than", "less than", "smaller than"),
        (
            r'\A"?(?:(?:all |the )?(?:real )?numbers? (?:that are )?|x"? "?is )'
            r'(?P<sign>greater|larger|less|smaller) than"?'
            r'(?P<too> ?;? ?"?(?:or )?equal to"?)? ?(?=[-+\d\\])'
        ),
        lambda match: (
            rf"x \{'g' if match['sign'] in ('greater', 'larger') else 'l'}e "
            if match["too"]
            else f"x {'>' if match['sign'] in ('greater', 'larger') else '<'} "
        ),
    ),
    ("-intercept", r'(?<![a-zA-Z])([xy]) ?"-intercept"?', r'"\1-intercept"'),
    ("all", r'\A"?(?:for )?all"? ?(?=[a-zA-Z] ?(?:[<>]|\\(?:le|ge|ne|in)\b))', ""),
    (  # "The lines intersect at" (3, 3)
        "at",
        r'(?i)\A"?(?P<about>[^"(]{0,60}?)\bat ?"? ?(?=\([^()]*\)\Z)',
        _unless_doubted,
    ),
    ("total of", r'(?i)\A(?:"a total of" ?|a total of )(?=[-+\d\\.($])', ""),
    ("xactly", r'(?i)\A(?:"exactly" ?|exactly )(?=[-+\d\\.($])', ""),
    ("xactly", r'(?i)\A"exactly (?=[\d$][^"]*"\Z)', '"'),
    (
        "xactly",
        r'(?i)\A"?exactly (?=(?:one|two|three|four|five|six|seven|eight|nine|ten)\b[^"]*"?\Z)',
        lambda match: '"' if match[0][0] == '"' else "",
    ),
    (
        "T",
        (
            r"\A(?:[\[(](?P<list>[^\[\]();]{1,400},[^\[\]();]{1,400})[\])]"
            r"|\\begin ?\{[bp]matrix\}(?P<cells>(?:[^\\]|\\(?!\\|end)){1,800})\\end ?\{"
            r"[bp]matrix\})"
            r" ?\^ ?(?:T|\{ ?(?:T|\\top|\\intercal|\\(?:mathsf|mathrm|text) ?\{ ?T ?\}) ?\}|\\top|"
            r"\\intercal)\Z"
        ),
        _as_column,
    ),
    (  # x = 2 (double root), x = 2 (x = -3 rejected)
        '"',
        (
            r'(?<=[\w})]) ?(?:" ?\(? ?(?:only|(?:a )?(?:double|repeated) root|'
            r"(?:the (?:only )?|only )(?:(?:real|positive|possible|valid|integer) )?"
            r"(?:solution|root|answer|value)|"
            r'(?:with )?multiplicity \w{1,8}) ?\)? ?"'
            r'|\( ?[^()"]{1,40} ?"(?:is |was |are )?(?:rejected|extraneous|discarded)" ?\)'
            r'|[,;]? ?"?[(;]? ?(?:(?:as|but|and|while|where) ?)?"? ?[a-z] ?= ?[^()",;=]{1,30} ?"'
            r"(?:is |was )?(?:rejected|extraneous|discarded|not valid|does not satisfy[a-z ]{0,40})"
            r'\)?"(?: ?\))?|[,;]? ?\(? ?"\(?reject(?:ing|ed)?" ?[a-z] ?= ?[^()",;=]{1,30}\)?)\Z'
        ),
        "",
    ),
    (
        (";", "or", r"\approx", "%"),
        r'\A(?P<first>[^()"]+?) ?"?\((?:"? ?(?:;|or) ?"?(?P<other>[^()";]+)'
        r'| ?(?P<about>\\approx[^()"]+)| ?(?P<percent>[\d.]+ ?%) ?)"?\)"?\Z',
        _once_more,
    ),
    ("not", r'\A([^",;]+), ?"? ?not ?"? ?[-+\d\\][^",;]{0,40}\Z', r"\1"),  # 10, not 12
)


def read(text: str) -> Form:
    """The form of a text, as it was written.

    Args:
        text: an answer, a reference, or a part of a prompt.

    Raises:
        TooLarge: it is beyond a limit, which the message names.
    """
    return _read_short(text) if len(text) <= _SHORT else _read(fold_within(text))


@lru_cache(maxsize=4096)  # a right answer is mostly written as its reference is
def _read_short(text: str) -> Form:
    return _read(fold_within(text))


def read_without_remark(text: str, prompt: str) -> Form | None:
    """The form of an answer without what it says beside its value; None if it says no more.

    Args:
        text: an answer.
        prompt: the prompt's text, "" where it is not known.

    Raises:
        TooLarge: see `read`.
    """
    shorter = without_remark(swap(fold_within(text), _REMARKS), prompt)
    return _read(shorter) if shorter else None


def _read(text: str) -> Form:
    # One number, as most answers are, before any other reading.
    if number := literal(text):
        return number
    if (shorter := swap(text, _REMARKS)) != text:
        return _read(shorter)
    if about := _ROUNDED.match(text):
        form = _read(text[about.end() :])
        return replace(form, text=rf"\approx {form.text}") if isinstance(form, Quantity) else form
    if r"\ne" in text and (hole := _HOLE.fullmatch(text)) and _is_of_letter(hole):
        return Family(text, "", f"{hole['letter']} is not {hole['value']}", _read(hole["of"]))
    # July 4, 2020 has a comma and is no list.
    if (day := date(text)) is not None:
        return day
    if "real" in text and (most := _ALL_BUT.fullmatch(text)):
        gone = most["gone"].replace('"', "")
        points = Items(gone, "set", flat(map(_single, cut(gone, _COMMAS))))
        return Items(text, "minus", (_line(text), points))
    if _OUTWARD.fullmatch(text):
        text = f"{'(' if text[0] == ']' else '['}{text[1:-1]}{')' if text[-1] == '[' else ']'}"
    # "(b)" must occur, or there is only one part.
    if "(b)" in text and (labelled := _parts_of_question(text)) is not None:
        return labelled
    if _GROUPED_LIST.fullmatch(text):
        return Items(text, "list", tuple(map(_single, text.split(", "))))
    parts, signs = cuts(text, _COMMAS)
    if len(parts) == 1:
        return _single(text)
    if _GROUPED.fullmatch(text):
        return _single(text.replace(",", ""))
    parts = [part for part in parts if part]
    # k\pi, k \in \mathbb{Z}: the last part declares a letter of what stands before it.
    while len(parts) > 2 and _BARE_LETTER.fullmatch(parts[-2]) and declaration(parts[-1]):
        del parts[-2], signs[len(parts) - 2]  # c_1, c_2 \in \mathbb{R}
    if len(parts) > 1 and (said := declaration(parts[-1])):
        head, signs = text[: text.rfind(parts[-1])].rstrip(" ,;"), signs[: len(parts) - 2]
        return Family(
            text, *said, _several(head, parts[:-1], signs) if len(parts) > 2 else _single(parts[0])
        )
    return _several(text, parts, signs) if len(parts) > 1 else _single(parts[0] if parts else text)


def _is_of_letter(hole: re.Match[str]) -> bool:
    """An expression in the letter that a remark takes one value from."""
    said = hole["of"]
    of_letter = re.search(rf"(?<![a-zA-Z\\]){hole['letter']}(?![a-zA-Z])", said)
    return of_letter is not None and r"\ne" not in said and r"\in" not in said


def _several(text: str, parts: list[str], signs: list[str]) -> Form:
    if ";" in signs and "," in signs and (groups := _groups(text)) is not None:
        return groups
    if any(part == r"\dots" for part in parts):
        parts = _counted_out(parts)
    option = _CHOICE.match(parts[0])
    if option and parts[0][option.end() :].strip(" .") and not any(map(_CHOICE.match, parts[1:])):
        whole = text[option.end() :].strip(" :.")  # (C) I and III
        if not (_NO_OPTION.match(whole) or _DENIED.match(whole) or option[0][-1:].islower()):
            return Choice(text, next(filter(None, option.groups())).lower(), _read(whole), True)
    forms = _labelled(parts, list(map(_single, parts)))
    # 30 or 30.0 is no hedge.
    if set(signs) == {";"} and (only := _twice_the_same(forms)) is not None:
        return only
    if ";" in signs and all(isinstance(form, Word | Choice) for form in forms):
        return Items(text, "either", tuple(forms))  # "Alice or Bob" is not "Alice and Bob"
    names = {form.name for form in forms if isinstance(form, Named)}
    if ";" in signs and "," not in signs and len(names) > 1:
        return Items(text, "either", tuple(forms))  # x = 1 or y = 2
    if (joined := together(text, forms, signs)) is not None:
        return joined
    if r"\also" in signs and not any(isinstance(form, Named) for form in forms):
        return Quantity(text, text)  # statements that nothing here can join
    return Items(text, "list", flat(forms))


def _labelled(parts: list[str], forms: list[Form]) -> list[Form]:
    """`length 12, width 5`, where each part has a label, as if signs of equality stood there."""
    named: list[Form] = []
    for part, form in zip(parts, forms, strict=True):
        label = _LABELLED.fullmatch(part) if isinstance(form, Word) else None
        if label is None and not isinstance(form, Named):
            return forms
        name = label["name"].casefold() if label else ""
        if _DOUBT.search(name) or SAYS_MORE.intersection(name.split()):
            return forms
        value = _single(label["value"]) if label else form
        named.append(value if isinstance(value, Named) else Named(part, name, value))
    return named


def _twice_the_same(forms: list[Form]) -> Quantity | None:
    """`30 or 30.0` is one number."""
    numbers = [form for form in forms if isinstance(form, Quantity) and form.value is not None]
    worth = {(Fraction(n.value or 0) / (100 if n.percent else 1), n.unit) for n in numbers}
    is_one = len(numbers) == len(forms) and len(worth) == 1
    said_again = len({form.text for form in forms}) == 1  # a number once more is a wrapper
    return numbers[0] if is_one and not said_again else None


def _counted_out(parts: list[str]) -> list[str]:
    r"""`1, 2, \dots, 5` as its five numbers, if the steps between those that stand there are all
    the same."""
    at = parts.index(r"\dots")
    numerals = parts[:at] + parts[at + 1 :]
    if not 0 < at < len(parts) - 1 or not all(_WHOLE.fullmatch(part) for part in numerals):
        return parts
    numbers = list(map(int, numerals))
    step = numbers[1] - numbers[0] if at > 1 else 1
    if not step or (numbers[-1] - numbers[0]) // step >= _MOST_COUNTED:
        return parts
    integers = list(range(numbers[0], numbers[-1] + (1 if step > 0 else -1), step))
    # The numbers that stand there must be the first and last of the run.
    fits = integers[:at] == numbers[:at] and integers[at - len(numbers) :] == numbers[at:]
    return list(map(str, integers)) if fits and len(integers) >= len(numbers) else parts


def _groups(text: str) -> Named | None:
    """`p = 5, q = 2; p = 7, q = 2` says that (p, q) is (5, 2) or (7, 2)."""
    tuples: list[Form] = []
    names: list[str] = []
    for group in cut(text, _SEMICOLONS):
        forms = [_single(part) for part in cut(group, _COMMAS)]
        named = [
            form for form in forms if isinstance(form, Named) and not isinstance(form.body, Items)
        ]
        names = names or [form.name for form in named]
        if len(named) < max(len(forms), 2) or [form.name for form in named] != names:
            return None
        tuples.append(Items(group, "()", tuple(form.body for form in named)))
    return Named(text, f"({','.join(names)})", Items(text, "list", tuple(tuples)))


def _parts_of_question(text: str) -> Items | None:
    r"""`"(a)" 3 "(b)" 4`: the answers to the parts of a question, in order."""
    items: list[Form] = []
    for letter in "abcdefgh":
        begin = _PART.match(text)
        if begin is None or begin[1] != letter:
            return None
        end = text.find(f"({chr(ord(letter) + 1)})", begin.end())
        end = len(text) if end < 0 else end - (text[end - 1] == '"')
        body = text[begin.end() : end].strip(" ,;")
        body = body if body.count('"') % 2 == 0 else body.strip('" ,;')
        if not body:
            return None
        items.append(_single(body))
        text = text[end:]
        if not text:
            return Items(body, "()", tuple(items)) if len(items) > 1 else None
    return None


def _single(text: str) -> Form:
    """One thing, with no separator outside brackets."""
    if number := literal(text):
        return number
    if r"\endash" in text:
        return _range(text)
    if text.startswith(r"\begin{cases}") and text.endswith(r"\end{cases}") and "&" in text:
        return Quantity(text, text)  # "if" and "otherwise" in it are no prose
    # The first that reads it decides: (B) 12 is an option before it is an expression, and words
    # come last.
    for reader in (
        _choice,
        _read_labelled,
        _read_quantified,
        lambda said: equation(said, _read),
        lambda said: inequality(said, _single),
        _read_bracketed,
        _region,
        _signs,
        _wordlike,
    ):
        if (form := reader(text)) is not None:
            return form
    return quantity(text)


def _range(text: str) -> Form:
    """5–6 cm; the unit behind it belongs to both ends."""
    ends = cut(text, _DASHES)
    if len(ends) != 2:
        return word(text)
    high, low = _single(ends[1]), _single(ends[0])
    if (
        isinstance(high, Quantity)
        and isinstance(low, Quantity)
        and not low.unit
        and not low.percent
    ):
        low = replace(low, unit=high.unit, percent=high.percent)
    return Items(text, "range", (low, high))


def _choice(text: str) -> Form | None:
    match = _CHOICE.match(text) or _OPTION.fullmatch(text)
    if match is None:
        behind = _CHOICE_LAST.fullmatch(text)
        content = literal(behind[1]) if behind else None
        return Choice(text, behind[2].lower(), content, True) if behind and content else None
    letter, after = next(filter(None, match.groups())), text[match.end() :].strip(" :.")
    if after and (letter.islower() or _CHOICE.match(after) or _NO_OPTION.match(after)):
        return None  # (a)(b+1) is a product, and so may (A)(B) be; (B)^2 is no option either
    if after and (_DENIED.match(after) or _MARKED.search(after)):
        return word(text)  # (B) "is wrong"; (B) 12 (C) 13 are two options
    return Choice(text, letter.lower(), _read(after) if after else None, len(text) > 1)


def _read_labelled(text: str) -> Form | None:
    if stated := _STATED.match(text):
        return _read(text[stated.end() :].strip())
    label = _LABEL.fullmatch(text) if text.count(":") == 1 else None
    if label is None or SAYS_MORE.intersection((label[1] or label[3]).casefold().split()):
        return None  # "at least: 5"
    return Named(text, (label[1] or label[3]).casefold(), _read(label[2] or label[4]))


def _read_quantified(text: str) -> Family | None:
    parts = split_quantified(text) if text[-1:].isalnum() or text[-1:] in '")}+' else None
    if not parts or not parts[0] or split_quantified(parts[0]):  # once is enough
        return None
    return Family(text, parts[1], parts[2], _read(parts[0]))


# ----------------------------------------------------------------------------- brackets and regions


def _read_bracketed(text: str) -> Form | None:
    if matrix := _MATRIX.fullmatch(text):
        rows = [cut(row, _CELLS) for row in cut(matrix[2].strip(), _ROWS)]
        return None if matrix[1] in ("vmatrix", "Vmatrix") else _matrix(text, rows)
    opening, closing = brackets(text)
    if opening == "{" and "," in text:  # {1, 2} has lost its backslashes
        opening, closing, text = r"\{", r"\}", rf"\{text[:-1]}\}}"
    if not opening or opening == "{":
        return None
    inner = text[len(opening) : -len(closing)].strip()
    parts = cut(inner, _COMMAS)
    if opening == r"\{":
        if (builder := _BUILDER.fullmatch(inner)) and r"\mathbb" not in builder[2]:
            form = _read(builder[2])  # {x | -2 < x < 3} says no more than -2 < x < 3
            return form.body if isinstance(form, Named) and form.name == builder[1] else form
        if r"\dots" in parts:
            parts = _counted_out(parts)
        if (integers := _whole_numbers(text, inner)) is not None:
            return integers
        is_builder = "|" in inner or ":" in inner
        return None if is_builder else Items(text, "set", flat(map(_single, parts)))
    if opening == "[" and parts and all(brackets(part) == ("[", "]") for part in parts):
        rows = [cut(part[1:-1], _COMMAS) for part in parts]  # [[1, 2], [3, 4]]
        if len({len(row) for row in rows}) == 1:
            return _matrix(text, rows)
    # A half-open bracket has two ends; other pairs of signs are no brackets.
    if (opening + closing) not in _PAIRS or (len(parts) != 2 and opening + closing in _HALF_OPEN):
        return Flawed(text, "unreadable")
    if len(parts) > 1:
        kind = "()" if opening == r"\langle" else opening + closing
        return pair(kind, *map(_single, parts), text=text)
    # Round brackets around one thing group; others are left to the engine.
    return _single(parts[0]) if (opening, closing) == ("(", ")") and parts else None


def _whole_numbers(text: str, inner: str) -> Form | None:
    r"""`\{4k+1 : k \in \mathbb{Z}\}` as a family, and `\{x \in \mathbb{Z} : 1 \le x \le 4\}` by its
    members."""
    family = _RESIDUES.fullmatch(inner)
    if family and (family[3] == "Z" or inner[0] == "("):
        return Family(text, family[2], family[3], _single(family[1].strip()))
    match = _BOUNDED.fullmatch(inner)
    condition = _single(match[3]) if match else None
    if match is None or not isinstance(condition, Named) or condition.name != match[1]:
        return None
    if not isinstance(condition.body, Items):
        return None
    ends = [item.value if isinstance(item, Quantity) else None for item in condition.body.items]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[1] - ends[0] > _MOST_COUNTED:
        return None
    # An open end at a whole number leaves that number out.
    low = math.floor(ends[0]) + 1 if condition.body.kind[0] == "(" else math.ceil(ends[0])
    high = math.ceil(ends[1]) - 1 if condition.body.kind[1] == ")" else math.floor(ends[1])
    if match[2] == "N" and low < 1:
        return None  # 0 is natural to some
    return Items(text, "set", tuple(Quantity(str(n), str(n), n) for n in range(low, high + 1)))


def _matrix(text: str, rows: list[list[str]]) -> Items:
    items = (Items(" & ".join(row), "row", tuple(map(_single, row))) for row in rows)
    return Items(text, "matrix", tuple(items))


def _is_number(part: Form) -> bool:
    return isinstance(part, Quantity) and (part.value is not None or part.pis is not None)


def _region(text: str) -> Items | Flawed | None:
    r"""`(0, 1) \cup \{2\}`, `\mathbb{R}`, `\mathbb{R} \setminus \{0\}`, `\emptyset`."""
    if text == r"\emptyset":
        return Items(text, "set", ())
    if text[:1] == "\\" and (line := _REALS.fullmatch(text.replace(" ", ""))):
        return _line(text, line[1] or "")
    for sign, (at, kind) in _REGIONS.items():
        if sign not in text or len(parts := cut(text, at)) < 2:
            continue
        sets = tuple(_single(rf"\{part[:-1]}\}}" if part[0] == "{" else part) for part in parts)
        if kind == "union" and any(map(_is_number, sets)):
            return Flawed(text, "unreadable")  # a number is no set
        whole = kind != "meet" or all(isinstance(part, Items) for part in sets)
        return Items(text, kind, sets) if whole else None
    return None


def _line(text: str, part: str = "") -> Items:
    r"""The real line, or the half of it that `^+`, `_{>0}` or `_{\le 0}` says."""
    low = _ZERO if "+" in part or ">" in part or r"\ge" in part else MINUS_INFINITY
    high = _ZERO if "-" in part or "<" in part or r"\le" in part else INFINITY
    opening, closing = "[" if r"\ge" in part else "(", "]" if r"\le" in part else ")"
    return Items(text, opening + closing, (low, high))


def _signs(text: str) -> Items | None:
    r"""1 \pm \sqrt2 is two values."""
    number = quantity(text) if r"\pm" in text else None
    if not isinstance(number, Quantity):
        return None
    tree = tree_or_none(number)
    if tree is None or not has(tree, "pm") or has(tree, "rel"):
        return None
    values = map(built, split_signs(tree))
    measured = (replace(value, unit=number.unit, percent=number.percent) for value in values)
    return Items(text, "list", tuple(measured))


# --------------------------------------------------------------------------------- ratios and words


def _wordlike(text: str) -> Form | None:
    # Times and dates first, as 3:30 would be a ratio.
    if (moment := time_of_day(text)) is not None:
        ratio = None if _LEADING_ZERO.search(text) else _ratio(text)
        return replace(moment, ratio=ratio) if isinstance(ratio, Quantity) else moment
    if (day := date(text)) is not None:
        return day
    if (ratio := _ratio(text)) is not None:
        return ratio
    if '"' in text and (chemical := formula(text)) is not None:
        return Word(text, chemical)
    letters = unquoted(text).rstrip(".")
    if coset := _COSET.fullmatch(text):
        start, step = coset["start"] or coset["residue"] or 0, coset["step"] or coset["modulus"]
        line = Node("mul", (num(int(step)), sym("k")))
        return Family(text, "k", "Z", built(Node("add", (num(int(start)), line))))
    if classes := _CLASSES.fullmatch(letters):
        line = Node("mul", (num(int(classes["step"] or 2)), sym("k")))
        is_odd = (classes["kind"] or "").lower() == "odd"
        return Family(text, "k", "Z", built(Node("add", (line, num(1))) if is_odd else line))
    if not _LETTERS.fullmatch(letters):
        return None
    words = plain(letters)
    if words in PHRASES:
        return replace(_read(PHRASES[words]), text=text)
    if (value := number(words)) is not None:
        tree = parse_or_none(mixed(value)) if isinstance(value, Fraction) else None
        return Quantity(text, text, value, tree=tree)
    first, _, second = words.partition(" to ")
    if (above := number(first)) and (below := number(second)):  # three to two
        return Quantity(text, text, Fraction(above) / below, ":")
    if (amount := _spelt(text, words)) is not None:
        return amount
    if _INTEGERS.fullmatch(words):
        return replace(quantity(r"\mathbb{Z}"), text=text)
    if _NUMERAL.fullmatch(letters):
        return word(text)
    # abc may be a product; `cats` and `abc de` are prose.
    spoken = (" " in letters or len(letters) > 3) and _THREE_LETTERS.search(letters)
    certain = '"' in text or spoken or not letters.isascii() or letters.lower() in _SHORT_WORDS
    return word(text) if certain else None


def _spelt(text: str, words: str) -> Quantity | None:
    """`five dollars`, `half an hour`, `a dozen`: a number in words, and what is counted."""
    parts = words.split()
    if parts[0] in SCALES:
        parts.insert(0, "one")
    for count in range(min(len(parts) - 1, _MOST_SPELT), 0, -1):
        value = number(" ".join(parts[:count]))
        if value is None or parts[count - 1].endswith(_ORDINAL_ENDS):
            continue
        return counted(text, value, " ".join(parts[count:]))
    return None


def _ratio(text: str) -> Form | None:
    """5:8 has the value 5/8; 1:2:3 has parts."""
    if ":" not in text and " to " not in text.replace('"', " "):
        return None
    parts = cut(text, _COLONS)
    if len(parts) < 2:
        return None
    try:
        values = list(map(rational, parts))
    except (NotArithmetic, UndefinedNumber):
        if len(parts) > 2 or '"' in text:
            return None
        sides = tuple(filter(None, map(parse_or_none, parts)))
        tree = Node("div", sides) if len(sides) == 2 else None
        return Quantity(text, text, None, ":", tree=tree)
    if len(parts) > 2:
        return Items(text, ":", tuple(map(Quantity, parts, parts, values)))
    if not values[1]:
        return Flawed(text, "undefined")
    return Quantity(text, text, values[0] / values[1], ":")

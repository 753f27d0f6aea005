r"""Numbers and expressions with what belongs to them: sign, currency, percent, degrees, unit,
base, big-number word.

-\$1.8 million, 12.5\%, 30^\circ, 15 \text{ cm}^2, 52_8, 6.02 \times 10^{23}
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from rlvr.verifiers.math.arithmetic import (
    NotArithmetic,
    UndefinedNumber,
    number_tree,
    pi_multiple,
    rational,
    value_of,
)
from rlvr.verifiers.math.forms import THOUSANDS, Flawed, Quantity, Word
from rlvr.verifiers.math.latex import Node
from rlvr.verifiers.math.latex.tree import Written, takes_angle, unsigned
from rlvr.verifiers.math.statement import tree_or_none
from rlvr.verifiers.math.units import (
    AMBIGUOUS,
    CURRENCIES,
    SCALE_LETTERS,
    SCALES,
    TEMPERATURES,
    canonical,
    is_known,
    is_measured,
    measure,
    plain_unit,
)
from rlvr.verifiers.math.words import number as number_word
from rlvr.verifiers.math.words import plain, unquoted

__all__ = [
    "SCALED_NUMBER",
    "built",
    "compound",
    "counted",
    "is_compound",
    "literal",
    "negated",
    "quantity",
    "read_based",
    "read_measured",
    "scaled",
    "word",
]

# 12, -1,234.50, $5, 50%, 2.5e3, .75
_LITERAL = re.compile(
    r"([+-]?) ?([$£€]?)(?:(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d+))?( ?%)?"
)
# \frac{1}{2}, -3/4: whole numbers alone.
_FRACTION = re.compile(r"([+-]?) ?(?:\\frac ?(?:\{(-?\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))|(\d+)/(\d+))")
_SPACED = re.compile(r"[+-]?\d{1,3}(?: \d{3})+")  # 1 000 000, as ISO 80000-1 writes it
_MONEY_FIRST = re.compile(rf"([+-]?) ?([{''.join(CURRENCIES)}]) ?(?=[\d.\\-])")
_MONEY_LAST = re.compile(rf" ?([{''.join(CURRENCIES)}])$")
# 52_8, (1011)_2, 52 (base 8), 52_{\text{eight}}
_BASED = re.compile(
    r"(\d[0-9A-Fa-f]*|\( ?\d[0-9A-Fa-f]* ?\)) ?"
    r'(?:_ ?\{? ?\(? ?"?(\d{1,2}|two|three|four|five|six|seven|eight|nine|ten|twelve|'
    r'sixteen)"? ?\)? ?\}?|'
    r'\(? ?"?\(?(?:in )?base"?[- ]"?(\d{1,2}|two|three|four|five|six|seven|eight|nine|ten|twelve|'
    r'sixteen)\)?"? ?\)?)'
)
# 0x1F, 0b101, 0o17
_PREFIXED = re.compile(r'"? ?0([xbo])([0-9A-Fa-f]{1,64}) ?"?')
_USUAL_BASE = 10
_BASE_OF = {"x": 16, "b": 2, "o": 8}
_UNIT_POWER = re.compile(r" ?\^ ?\{?[23]\}?$")
_NO_CONSTANT = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]|[,_]")
_BESIDE = re.compile(r'"[^"]*"')
# \frac{"m"}{"s"}: a unit above another.
_UNIT_FRACTION = re.compile(
    r'\\frac ?\{ ?("[^{}]{1,60}(?:\{-?\d\})?) ?\}\{ ?("[^{}]{1,40}(?:\{-?\d\})?) ?\}$'
)
_UNIT_PRODUCT = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])")
# 5"k" without a space, and 5M or 5 million behind a currency below.
_ATTACHED = re.compile(r'([+-]? ?[\d.,]+)"([kKMB])"')
SCALED_NUMBER = re.compile(r"([+-]? ?[\d.,]+)([kKMB])")
"""`2.5M`, whose letter may also be a variable."""
_WORTH = re.compile(
    rf'([+-]? ?[\d.,]+) ?"?({"|".join(sorted(SCALE_LETTERS, key=len, reverse=True))})"?'
)
# 30^\circ 15' 20''
_ARC = re.compile(r"([+-]?) ?(\d+) ?\^\\circ ?(\d+(?:\.\d+)?) ?'(?: ?(\d+(?:\.\d+)?) ?(?:''|\"))?")
# 5' 6'' in feet and inches.
_FEET = re.compile(r"(\d+) ?' ?-? ?(\d+(?:\.\d+)?) ?''")
_TEMPERATURE = re.compile(r'\^\\circ ?"? ?([CF]) ?"?$')
_MEASURED = re.compile(  # 3.0 \times 10^8 m/s, 440 1/s
    r"((?:[+-]? ?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)"
    r"(?: ?(?:\\times|\\cdot|\*) ?10 ?\^ ?(?:\{ ?[+-]?\d{1,3} ?\}|[+-]?\d{1,3})|[eE][+-]?\d{1,3})?)"
    r"(?: ?\\pi(?![a-zA-Z]))?)"
    r" ?((?:1 ?/|[^\d.,])[^,;=]*)"
)
_UNIT_SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'- ./*"
_ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{[a-z]+\}|\\mathbb")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])(?![A-Z]{2,}[a-z])[^\W\d_]{4,}")  # GMmr is a product
# 1 hour 30 minutes, 5 ft 6 in, 2h30m: up to four parts.
_COMPOUND_PART = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_COMPOUND = re.compile(rf"{_COMPOUND_PART.pattern}(?:,? ?{_COMPOUND_PART.pattern}){{1,3}}")
# A further number behind the first: `12 "or" 13` is no 12 with a unit.
_MORE_NUMBERS = re.compile(r"(?<![\d^{.-])[ (]?-?\d")
_LONGEST = 20_000  # digits of a number that is written out
_CURRENCY_FIRST = re.compile(r'"?(USD|EUR|GBP|INR|Rs|RMB|CNY|JPY)\b\.?"? ?(?=[\d.])')
_MOLAR = {name: plain_unit(name) for name in ("M", "mM", "μM", "µM", "nM", "molar")}
_DEGREE = r"^\circ"
_PERCENT = frozenset(("percent", "percentage", "per cent", "pct"))


def literal(text: str) -> Quantity | None:
    """The quick way for what most answers are: one written-out number, perhaps with a currency or
    percent sign."""
    match = _LITERAL.fullmatch(text)
    if match is None:
        return _fraction(text)
    sign, money, integer_part, places, bare_places, exponent, percent = match.groups()
    places = places or bare_places or ""
    # The digits without their point, which `power` puts back.
    value: Fraction | int = int((integer_part or "").replace(",", "") + places)
    power = (int(exponent) if exponent else 0) - len(places)
    tree = None
    if exponent:
        digits = f"{sign}{integer_part or ''}{places and '.'}{places}"
        scientific = rf"{digits}\cdot 10^{{{exponent}}}"
        if abs(power) > _LONGEST:
            return Quantity(text, scientific)  # never written out
        # The powers of ten of e0 and e1 could be worked out.
        tree = number_tree(scientific) if int(exponent) not in (0, 1) else None
    if power:
        value = value * 10**power if power > 0 else Fraction(value, 10**-power)
    unit = CURRENCIES[money] if money else ""
    return Quantity(
        text,
        text,
        -value if sign == "-" else value,
        unit,
        bool(percent),
        # With an exponent the places say nothing of rounding.
        None if exponent else len(places) or None,
        tree=tree,
    )


def _fraction(text: str) -> Quantity | None:
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, *numerals = match.groups()
    above, below = map(int, filter(None, numerals))
    if below == 0:
        return None  # for `rational` to call undefined
    value = Fraction(above, below)
    return Quantity(text, text, -value if sign == "-" else value)


def quantity(text: str) -> Quantity | Word | Flawed:
    """Anything else that stands for one value; prose comes back as a `Word`."""
    if (
        special := literal(text.replace(" ", "") if _SPACED.fullmatch(text) else "")
        or read_based(text)
        or _compound(text)
        or _read_mixed(text)
        or _sixtieths(text)
        or _read_scaled(text, text, "", _ATTACHED)
    ):
        return special
    # USD 5 is read as 5 USD.
    if currency := _CURRENCY_FIRST.match(text):
        return quantity(f'{text[currency.end() :]} "{currency[1]}"')
    # The currency goes first, so that what is left may be scaled: $5M.
    core, unit = _strip_money(text)
    if unit and (scaled := _read_scaled(text, core, unit, _WORTH)) is not None:
        return scaled
    if degrees := _TEMPERATURE.search(text):
        core, unit = text[: degrees.start()].rstrip(), f"degree {AMBIGUOUS[degrees[1]][0]}"
    factor = Fraction(1)
    percent = core.endswith("%")
    if percent:
        core = core[:-1].rstrip()
    else:
        core, tail, factor = _strip_words(core)
        if tail is None:
            return word(text)
        if not unit and tail in _PERCENT:
            percent = True
        elif not unit:
            core, unit = _strip_degree(core, tail)
        elif tail[:1] == "/":  # $15 "per hour"
            unit = f"{unit} {tail}"
        elif tail not in ("", unit):
            return word(text)
    if unit and factor == 1:  # 1.8 billion "people"
        head, tail, scale = _strip_words(core)
        core, factor = (head, scale) if tail == "" else (core, factor)
    try:
        value = _value(core) * factor
    except UndefinedNumber:
        return Flawed(text, "undefined")
    except NotArithmetic:
        # Words within an expression make prose of it; a scale without a value is prose too.
        if factor != 1 or '"' in core or _LONG_WORD.search(_ENVIRONMENT.sub("", core)):
            return word(text)
        if percent and _NO_CONSTANT.search(core):
            return Quantity(text, text)  # x^5 - x\%
        return Quantity(text, core, None, unit, percent, pis=_pis(core))
    # Places of a decimal with a unit, for rounding; one without a unit was read by `literal` above.
    number = literal(core) if unit and factor == 1 else None
    if number:
        return replace(number, text=text, unit=unit, percent=percent)
    return Quantity(text, core, value, unit, percent)


def _pis(core: str) -> Fraction | None:
    # The tree of an expression without π is not needed yet.
    tree = number_tree(core) if core.count(r"\pi") == 1 else None
    return pi_multiple(tree) if tree else None


def built(tree: Node) -> Quantity:
    """The quantity of an expression that was written nowhere.

    Args:
        tree: of the expression.
    """
    number = unsigned(tree).value
    places = number.places if isinstance(number, Written) else 0
    try:
        return Quantity("", "", value_of(tree), places=places or None, tree=tree)
    except (NotArithmetic, UndefinedNumber):
        return Quantity("", "", pis=pi_multiple(tree), tree=tree)


def negated(number: Quantity) -> Quantity:
    """Its opposite; of an expression without a sign in front.

    Args:
        number: a number or an expression.
    """
    tree = tree_or_none(number) if number.value is None else None
    return replace(
        number,
        text=number.text and f"-{number.text}",
        core=number.core and f"-{number.core}",
        value=None if number.value is None else -number.value,
        pis=None if number.pis is None else -number.pis,
        tree=tree and Node("neg", (tree,)),
    )


def read_measured(text: str) -> Quantity | None:
    """The other reading of `5 m`, which is a product unless the other side has a unit."""
    match = _MEASURED.fullmatch(text)
    # A letter alone may be a variable, so only units with a size count here.
    unit = canonical(plain_unit(match[2])) if match else None
    if match is None or not unit or (measure(unit) is None and unit not in TEMPERATURES):
        return None
    number = literal(match[1]) or quantity(match[1])
    if not isinstance(number, Quantity) or (number.value is None and number.pis is None):
        return None
    # In quotes, as what mathematics reads as a product is not the same text.
    return replace(number, text=f'{number.core} "{unit}"', unit=unit)


def scaled(answer: Quantity, reference: Quantity) -> Quantity | None:
    """`2.5M` beside a plain number, as 2,500,000; None of anything else.

    Args:
        answer: an expression.
        reference: the other side.
    """
    if reference.value is None:
        return None
    return _read_scaled(answer.text, answer.text, "", SCALED_NUMBER)


def counted(text: str, value: Fraction | int, words: str) -> Quantity | None:
    """A number that was said in words, with what is counted; None of words that are no unit.

    Args:
        text: all of it.
        value: the number.
        words: what stands behind it.
    """
    unit, factor = _unit(words)
    if unit is None or not (unit in _PERCENT or not unit or is_known(unit)):
        return None
    percent = unit in _PERCENT
    return Quantity(text, text, value * factor, "" if percent else unit, percent)


def word(text: str) -> Word:
    """Prose, compared letter by letter but for case, quotes, hyphens and a leading article."""
    return Word(text, plain(text))


def _value(core: str) -> Fraction:
    """`2.5e3` too, which may stand before a unit."""
    number = literal(core) if "e" in core.lower() else None
    if number is None:
        return rational(core)
    if number.value is None:
        raise UndefinedNumber
    return Fraction(number.value)


def read_based(text: str) -> Quantity | None:
    """52_8.  The base is kept as a unit: who is asked for base 8 has not answered with 42.

    Args:
        text: folded; None is given for anything else.
    """
    if prefixed := _PREFIXED.fullmatch(text):
        digits, base = prefixed[2], _BASE_OF[prefixed[1]]
    elif match := _BASED.fullmatch(text):
        said = match[2] or match[3]
        digits, base = match[1].strip("() "), int(number_word(said) or said)
    else:
        return None
    try:
        unit = "" if base == _USUAL_BASE else f"base {base}"
        return Quantity(text, f"{digits}_{base}", int(digits, base), unit)
    except ValueError:  # a digit that the base does not have, or no base at all
        return None


def _read_scaled(text: str, core: str, unit: str, written: re.Pattern[str]) -> Quantity | None:
    r"""\$5M, and `5\text{K}`: a letter without a space scales the number; K may also be kelvins."""
    match = written.fullmatch(core)
    number = literal(match[1]) if match else None
    if match is None or number is None or number.value is None:
        return None
    if match[2] == THOUSANDS and not unit:
        return Quantity(text, match[1], number.value, THOUSANDS)
    return Quantity(text, text, number.value * SCALE_LETTERS[match[2]], unit)


def _read_mixed(text: str) -> Quantity | None:
    """3 "and" 1/7, which may be two numbers beside a list."""
    whole, conjunction, part = text.partition(' "and" ')
    mixed = quantity(f"{whole} {part}") if conjunction and whole.lstrip("-").isdecimal() else None
    return replace(mixed, text=text) if isinstance(mixed, Quantity) else None


def _sixtieths(text: str) -> Quantity | None:
    r"""30^\circ 15', and 5'6'' in feet and inches."""
    if "'" not in text:
        return None
    if match := _ARC.fullmatch(text):
        size = int(match[2]) + Fraction(match[3]) / 60 + Fraction(match[4] or 0) / 3600
        size = -size if match[1] == "-" else size
        return Quantity(text, str(size), size, "degree")
    if match := _FEET.fullmatch(text):
        length = _compound(f"{match[1]} feet {match[2]} inches")
        return length and replace(length, text=text)
    return None


def _compound(text: str) -> Quantity | None:
    """1 hour 30 minutes."""
    words = unquoted(text)
    if not _COMPOUND.fullmatch(words):
        return None
    found = [(Fraction(n), name) for n, name in _COMPOUND_PART.findall(words)]
    amounts = [n * SCALES.get(name, 0) for n, name in found]
    if all(amounts):  # 2 million 500 thousand
        return Quantity(text, text, sum(amounts)) if _falls(amounts) else None
    parts = [Quantity("", "", n, canonical(name) or "") for n, name in found]
    if {"hour", "second"} & {part.unit for part in parts}:  # 2h30m
        parts = [replace(p, unit="minute") if p.unit == "metre" else p for p in parts]
    return compound(text, parts)


def _falls(sizes: Sequence[Fraction]) -> bool:
    return all(larger > smaller for larger, smaller in itertools.pairwise(sizes))


def is_compound(text: str) -> bool:
    """Whether a text is an amount in several units: 1 hour 30 minutes."""
    amount = _compound(text) if _COMPOUND.fullmatch(unquoted(text)) else None
    return amount is not None and bool(amount.unit)


def compound(text: str, parts: Sequence[Quantity]) -> Quantity | None:
    """Their sum in the last one's unit, if they are of one dimension and each unit is smaller than
    the one before."""
    measures = [size for part in parts if (size := measure(part.unit)) and part.value is not None]
    if len(measures) < len(parts) or len(parts) < 2:
        return None
    sizes = [size for size, _ in measures]
    # Two plain numbers have no dimension to be added in, and 30 minutes 1 hour is no time, but two.
    is_one = len({dimension for _, dimension in measures}) == 1 and measures[0][1]
    if not is_one or not _falls(sizes):
        return None
    amounts = (Fraction(part.value or 0) * size for part, size in zip(parts, sizes, strict=True))
    return Quantity(text, text, sum(amounts) / sizes[-1], parts[-1].unit)


def _strip_money(text: str) -> tuple[str, str]:
    if first := _MONEY_FIRST.match(text):
        return first[1] + text[first.end() :], CURRENCIES[first[2]]
    # The last two characters at most, since the sign stands alone.
    if last := _MONEY_LAST.search(text, max(0, len(text) - 2)):
        return text[: last.start()], CURRENCIES[last[1]]
    return text, ""


def _strip_words(text: str) -> tuple[str, str | None, Fraction]:
    """The expression, the canonical name of the unit behind it and how it is scaled; None where
    more is said."""
    quoted = text.find('"')
    if quoted == 0:
        return text, None, Fraction(1)
    if quoted > 0 and (fraction := _UNIT_FRACTION.search(text)):
        above, below = (part.replace('"', " ") for part in fraction.groups())
        text = f'{text[: fraction.start()]} "{above}/{below}"'
        quoted = text.find('"')
    if quoted > 0:
        tail = _UNIT_PRODUCT.sub(" ", text[quoted:])
        if _BESIDE.sub("", tail).strip(" /^{}0123456789-.()") or _MORE_NUMBERS.search(tail):
            return text, None, Fraction(1)  # letters or numbers beside the words
        tail = tail.replace('"', " ").strip()
        if text[:quoted].rstrip()[-1:] == "/":
            tail, quoted = f"/ {tail}", text.rindex("/", 0, quoted)  # \$5/"hour"
        return text[:quoted].rstrip(), *_unit(tail)
    power = _UNIT_POWER.search(text)
    end = power.start() if power else len(text)
    core = text[:end].rstrip(_UNIT_SIGNS)
    tail = text[len(core) :].strip()
    if core[-1:] == "\\" and tail.startswith("pi"):
        core, tail = f"{core}pi", tail[2:].strip()  # 12 \pi cm
    # Only behind a digit, a bracket, a brace or π can a unit begin.
    if not core or core[-1] not in "0123456789)}i" or not _is_unit(tail):
        return text, "", Fraction(1)
    return core, *_unit(tail)


def _unit(tail: str) -> tuple[str | None, Fraction]:
    """The words behind a number: how they scale it, and the unit; of `"million dollars"` 10^6 and
    `dollar`."""
    tail = _MOLAR.get(tail, " ".join(tail.split()))
    if tail.casefold() in _PERCENT:
        return tail.casefold(), Fraction(1)
    factor = Fraction(1)
    if not tail.isascii() and is_measured(tail):  # 千米 is no thousand 米
        return canonical(tail), factor
    if tail[:2] == "a " and tail[2:] in SCALES:  # half a million
        tail = tail[2:]
    while tail:
        # A Chinese scale is one sign, and needs no space behind it.
        first = tail[0] if tail[0] in SCALES else tail.partition(" ")[0].casefold()
        if first not in SCALES:
            return canonical(tail), factor
        factor *= SCALES[first]
        tail = tail[len(first) :].strip()
    return "", factor


def _is_unit(tail: str) -> bool:
    """Unquoted letters are a unit if they are known as one, or too long for a product of
    variables."""
    letters = _UNIT_POWER.sub("", tail)
    return (
        len(letters) > 1
        and letters[0].isalpha()
        and (
            letters.casefold() in SCALES
            or is_known(letters)
            or letters in _PERCENT
            or _LONG_WORD.search(letters) is not None
        )
    )


def _strip_degree(core: str, unit: str) -> tuple[str, str]:
    size = core.removesuffix(_DEGREE).rstrip()
    # The degrees of \sin 30^\circ are its angle's.
    tree = number_tree(core) if "\\" in size != core else None
    if size == core or (tree and takes_angle(tree)):
        return core, unit
    return size, f"degree {unit}".rstrip()

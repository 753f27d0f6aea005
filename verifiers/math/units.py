r"""What may stand next to a number: units, currencies, scale words, counted things.

    canonical("square inches") == canonical('inches^2') == "inch^2"
    measure("kilometre / hour") == (Fraction(5, 18), (("m", 1), ("s", -1)))

Words are read in any case, symbols are not: mW is no MW.  A word that no table has is no unit: its
canonical name begins with `UNKNOWN`, and such a name equals only itself.  Sizes are exact by
definition: the SI prefixes and derived units (BIPM, The International System of Units, 9th edition,
tables 4 and 7), the inch of 2.54 cm and the pound of 0.45359237 kg (NIST Handbook 44, appendix C).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from rlvr.verifiers.math.nouns import ADJECTIVES, NOUNS
from rlvr.verifiers.math.words import number, pairs

__all__ = [
    "AMBIGUOUS",
    "CURRENCIES",
    "Measure",
    "SAYS_MORE",
    "SCALES",
    "SCALE_LETTERS",
    "TEMPERATURES",
    "UNKNOWN",
    "canonical",
    "is_counted",
    "is_known",
    "is_measured",
    "measure",
    "plain_unit",
]

Measure: TypeAlias = tuple[Fraction, tuple[tuple[str, int], ...]]
"""A size, and the powers of the base units it is a size of."""

UNKNOWN = "?"
"""Begins the canonical name of words of which at least one is in no table."""

CURRENCIES = pairs("$ dollar € euro ¥ yen ₹ rupee ¢ cent ₩ won") | {"£": "pound sterling"}

SCALES: dict[str, int | Fraction] = {"dozen": 12} | {
    name: 10 ** int(zeros)
    for name, zeros in pairs(
        "hundred 2 thousand 3 million 6 billion 9 trillion 12 lakh 5 crore 7 bn "
        "9 百 2 千 3 万 4 萬 4 亿 8 億 8"
    ).items()
}
"""They multiply: 1.8 billion is a number, not 1.8 of something; 3 hundredths is 0.03."""
# `bn` and the Chinese signs have no plural.
SCALES |= {f"{name}s": size for name, size in SCALES.items() if name.isascii() and len(name) > 2}
_PARTS = {
    part: n
    for n, part in enumerate("half third fourth fifth sixth seventh eighth ninth tenth".split(), 2)
}
_PARTS |= {"hundredth": 100, "thousandth": 1000, "millionth": 10**6, "billionth": 10**9}
SCALES |= {
    # Only the plurals scale: 3 halves; `half` alone is in SAYS_MORE.
    ("halves" if part == "half" else f"{part}s"): Fraction(1, n)
    for part, n in _PARTS.items()
}

SCALE_LETTERS = {
    name: 10 ** int(zeros)
    for name, zeros in pairs("k 3 K 3 M 6 m 6 mn 6 mil 6 MM 6 B 9 b 9 bn 9 T 12 t 12 tn 12").items()
}
r"""What these letters do to an amount of money, as in \$5M;
`k`, `M` and `B` also behind any number without a space."""

TEMPERATURES = {
    "celsius": (Fraction(1), Fraction(5463, 20)),
    "degree fahrenheit": (Fraction(5, 9), Fraction(45967, 180)),
    "kelvin": (Fraction(1), Fraction(0)),
}
"""Size of a degree in kelvins, and the zero of the scale in kelvins."""
TEMPERATURES |= {
    "degree celsius": TEMPERATURES["celsius"],
    "fahrenheit": TEMPERATURES["degree fahrenheit"],
}

AMBIGUOUS = {
    "C": ("celsius", "coulomb", "degree celsius"),
    "F": ("fahrenheit", "farad", "degree fahrenheit"),
    "pound": ("pound sterling", "lb"),
}
"""Symbols and words that stand for two units; they equal each of their names."""

# symbol name, the prefixes in use, size in base units.
_SI = """
m metre meter: TGMkhdcmµnp = m
g gram gramme gm: kMhdcmµnp = 1/1000 kg
s second sec: kmµnp = s
A ampere amp: kmµn = a
K kelvin: m = kelvin
mol mole: kmµ = mol
cd candela: m = cd
N newton: kMGmµ = kg m / s^2
J joule: kMGTmµ = kg m^2 / s^2
W watt: kMGTmµn = kg m^2 / s^3
Pa pascal: hkMG = kg / m s^2
Hz hertz: kMGT = / s
C coulomb: kmµnp = a s
V volt: kMmµ = kg m^2 / s^3 a
Ω ohm Ohm: kMGmµ = kg m^2 / s^3 a^2
F farad: mµnp = a^2 s^4 / kg m^2
T tesla: mµn = kg / s^2 a
H henry: mµn = kg m^2 / s^2 a^2
Wb weber: mµ = kg m^2 / s^2 a
S siemens: mµ = s^3 a^2 / kg m^2
L l litre liter: hdcmµ = 1/1000 m^3
eV electronvolt: kMGT = 801088317/5000000000000000000000000000 kg m^2 / s^2
Wh: kMGT = 3600 kg m^2 / s^2
cal calorie: k = cal
bar: m = 100000 kg / m s^2
Bq becquerel: kMG = / s
Gy gray: mµ = m^2 / s^2
Sv sievert: mµ = m^2 / s^2
lm lumen: = cd
lx lux: = cd / m^2
t tonne: kM = 1000 kg
""".strip()
_PREFIXES = {"": ("", Fraction(1))} | {
    name[0] if name != "micro" else "µ": (name, Fraction(10) ** int(zeros))
    for name, zeros in pairs(
        "Tera 12 Giga 9 Mega 6 kilo 3 hecto 2 deci -1 centi -2 milli -3 micro -6 nano -9 pico -12"
    ).items()
}

# Size in base units, name, other names; symbols before a bar are read in their own case alone. Left
# out on purpose: what has several sizes (ton, gallon against litre, fluid ounce) converts only
# within its line.
_TABLE = """
m: 127/5000 in | inch inche; 381/1250 ft | foot feet; 1143/1250 yd | yard
m: 201168/125 mi | mile; 1852 nmi | nautical-mile
m: 149597870700 astronomical-unit; 9460730472580800 light-year lightyear
m: 1/1000000 | micron; 1/10000000000 Å | angstrom ångström ångstrom
m^2: 10000 ha | hectare; 316160658/78125 acre
kg: 1 | kilo; 45359237/1600000000 oz | ounce; 45359237/100000000 lbs | lb; 317514659/50000000 stone
gallon: 1 gal | gallon; 1/4 qt | quart; 1/8 pt | pint; 1/16 | cup
gallon: 1/768 tsp | teaspoon; 1/256 tbsp | tablespoon
s: 60 min mins | minute; 3600 h hr hrs | hour; 86400 day; 604800 wk wks | week; 1209600 fortnight
month: 1 mo | month; 12 y yr yrs | year; 120 decade; 1200 century centurie
month: 12000 millennium millennia
dollar: 1 USD | dollar buck; 1/100 cent penny pennie
euro: 1 EUR | euro; 1/100 eurocent
pound: 1 GBP | pound-sterling quid; 1/100 pence
yuan: 1 RMB CNY | yuan 元 块 圆 人民币
yen: 1 JPY | yen 円 日元
rupee: 1 INR Rs | rupee
krw: 1 KRW | won
degree: 1 deg | degree ° 度; 1/60 arcmin | arcminute; 1/3600 arcsec | arcsecond
kg m^-1 s^-2: 101325 atm | atmosphere; 20265/152 Torr mmHg | torr
kg m s^-2: 1/100000 dyn | dyne
kg m^2 s^-2: 1/10000000 erg
kg m^2 s^-3 a^-2: 1000 | kilohm; 1000000 | megohm
m s^-1: 1 mps | meters-per-second; 1397/3125 mph | miles-per-hour
m s^-1: 5/18 kph kmh kmph | kilometers-per-hour
m s^-1: 463/900 kn kt | knot
radian: 1 rad rads | radian
"""
# Words of other spellings and languages, and symbols that converts to nothing.
_NAMED = """
person people persons human 人 名 位; man men; woman women; child children; mouse mice
goose geese; tooth teeth
foot-pound; horsepower hp; psi; dB decibel; byte; bit; KB kB kilobyte; MB megabyte
GB gigabyte; TB terabyte
rpm; pH; u; unit; ton; rev revolution; sr steradian
°C celsius centigrade ℃ 摄氏度; °F fahrenheit ℉ 华氏度; time times 次 回 倍
个 個 只 隻 条 本 张 枚 件 种 组 道 颗 棵 辆 块钱 支 根 页 匹 头 对
""".strip()
_CHINESE_COUNTERS = frozenset("个個只隻条本张枚件种组道颗棵辆支根页匹头名位")
_FOREIGN_UNITS = pairs("""
米 m  厘米 cm  毫米 mm  千米 km  公里 km  克 g  千克 kg  公斤 kg  吨 t  升 L  毫升 mL  秒 s
分钟 minute  分 minute  小时 hour  天 day  日 day  周 week  月 month  个月 month  年 year  岁 year
平方米 m^2  平方厘米 cm^2  立方米 m^3  立方厘米 cm^3  美元 dollar  欧元 euro
角 yuan-part  弧度 radian  时 hour  单位 unit  平方单位 unit^2  立方单位 unit^3
litro L  litros L  metro m  metros m  hora hour  horas hour  minutos minute  segundos s
""")
# Symbols that are also written all in capitals, or with a capital first, and then mean nothing
# else.
_OTHER_CASES = pairs("""
KG kg  Kg kg  kG kg  KGS kg  kgs kg  KM km  Km km  kms km  CM cm  Cm cm  cms cm  Mm -  mms mm  gms g
gs -  HR h  Hr h  hrs h  Hrs h  H H  MIN minute  Min minute  SEC s  Sec s  secs s  FT ft  Ft ft
IN in  In in  LB lbs  Lb lbs  LBS lbs  Lbs lbs  OZ oz  Oz oz  MI mi  Mi mi  YD yd  usd USD  eur EUR
gbp GBP  cny CNY  rmb RMB  rs Rs  MPH mph  KPH kph  KMH kmh  kwh kWh  KWh kWh  KWH kWh  kw kW  KW kW
hz Hz  HZ Hz  khz kHz  KHz kHz  kj kJ  KJ kJ  kn kn  pa Pa  kpa kPa  KPa kPa  ev eV  cc cm^3
CC cm^3  ccs cm^3  sqft ft^2  sqm m^2  us µs  um µm  ug µg  uL µL  ul µl  uF µF  uC µC  uA µA
YR year  Yr year  DEG degree  M -  ohms Ω  Hours h  k -  th ordinal  st ordinal  nd ordinal
rd ordinal
""")


def _size(text: str) -> tuple[Fraction, Counter[str]]:
    """`1/1000 kg m / s^2` as a size and the powers of its base units; what has no size yet is
    one."""
    size, powers, below = Fraction(1), Counter[str](), 1
    for part in text.split():
        name, _, raised = part.partition("^")
        if part == "/":
            below = -1
        elif part[0].isdecimal():
            size *= Fraction(part)
        else:
            power = below * int(raised or 1)
            unit, bases = _SIZES.get(name, (Fraction(1), {name: 1}))
            size *= unit**power
            powers.update({base: times * power for base, times in bases.items()})
    return size, powers


_SYMBOLS: dict[str, str] = {}
_NAMES: dict[str, str] = {}
_SIZES: dict[str, tuple[Fraction, Counter[str]]] = {}


def _add(
    name: str,
    symbols: Iterable[str],
    words: Iterable[str] = (),
    size: tuple[Fraction, Counter[str]] | None = None,
) -> None:
    _SYMBOLS.update(dict.fromkeys(symbols, name))
    _NAMES.update(dict.fromkeys(words, name))
    if size:
        _SIZES[name] = size


def _load() -> None:
    """Fill the three tables: symbols and words with their canonical name, and the names with a
    size."""
    for line in _SI.splitlines():
        units, _, base = line.partition(" = ")
        names, _, prefixes = units.partition(":")
        size, powers = _size(base)
        symbol, *others = names.split()
        # Prefixes go with the symbol, and with names of one or two letters; full ones with long
        # names.
        for prefix in ("", *prefixes.strip()):
            long, factor = _PREFIXES[prefix]
            symbols = [prefix + symbol, *(prefix + name for name in others if len(name) < 3)]
            words = [(long + name).casefold() for name in others if len(name) > 2]
            _add((words or symbols)[0], symbols, words, (size * factor, powers))
    for line in _TABLE.strip().splitlines():
        base, _, groups = line.partition(": ")
        _, powers = _size(base)
        for group in groups.split("; "):
            amount, _, spellings = group.partition(" ")
            symbols, words = (side.split() for side in spellings.rpartition("|")[::2])
            _add(words[0], symbols, words, (Fraction(amount), powers))
    for group in re.split(r"[;\n]", _NAMED):
        first, *others = group.split()
        name = others[0] if len(first) < 3 and others else first
        # A spelling with capitals is a symbol, read in its own case.
        symbols = [spelling for spelling in (first, *others) if spelling != spelling.casefold()]
        _add(name, symbols, {first, *others}.difference(symbols))
    for spelling, name in (_OTHER_CASES | _FOREIGN_UNITS).items():
        head, caret, power = name.strip("-").partition("^")
        # `-` says that a spelling is no unit: `Mm` would else be read with a prefix.
        _SYMBOLS[spelling] = _SYMBOLS.get(head, head) + caret + power
    for spelling, (_, name, *_) in AMBIGUOUS.items():
        letter, word = ([spelling], ()) if len(spelling) == 1 else ((), [spelling])
        _add(spelling, letter, word, _SIZES[name])


_load()

_POWERS = {"square": "^2", "squared": "^2", "sq": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}
# Who says more than a unit has not given one number: "12 or 13", "12, maybe", "at least 12", "12
# factorial".
SAYS_MORE = frozenset(
    (
        "lambda else try and or nor not maybe if when except unless about either neither both "
        "approximately perhaps "
        "no none for but to than because since so then as it is isn't are was were we this that "
        "which with without "
        "by plus minus times over cubed percent wrong right correct incorrect false true answer "
        "ignore at least "
        "most less under below above between until negative positive opposite twice thrice double "
        "doubled triple "
        "tripled half quarter factorial reciprocal inverse inverted root log modulo mod power "
        "raised imaginary "
        "complex never almost nearly around roughly only just exactly up down off from into out "
        "instead versus vs "
        "per-cent "
    ).split()
)
# Two letters that are read as a unit without quotes; `cd` and `nm` may be products.
_NO_PRODUCTS = frozenset(
    "mm cm dm km in ft yd mi mg gm kg Kg KG KM CM oz lb ml mL cl cL qt ms hr wk yr Hz hz kW kw kJ "
    "kj "
    "th st nd rd °".split()
)
_WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*|[°℃℉]|/|\^\(?\{?-?\d\}?\)?|[^\s]")
_POWER = re.compile(r"\^\(?\{?(-?\d)\}?\)?")
_MARKED_POWER = re.compile(r"\^ ?(?:\{ ?\(?([+-]?\d)\)? ?\}|\(?([+-]?\d)\)?)")
_FRACTION = re.compile(r"\\frac ?\{([^{}]{1,60})\} ?\{([^{}]{1,60})\}")
_MICRO = re.compile(r"\\mu ?")
_ONE_OVER = re.compile(r"^1 ?/")
# "newton-meter" is a unit of two words, "kilo-meter" one word; the minus of "s^-1" stays.
_HYPHEN = re.compile(r"(?<=[A-Za-zΩ])-(?=[A-Za-zΩ])")
_PREFIX = re.compile(r"(?i)\b(kilo|mega|giga|milli|micro|nano|centi)-(?=[a-z])")
# "0.5 M", "5 mM" and "molar"; not the M of "MHz".
_MOLAR = re.compile(r"(?<![A-Za-zµ])(?:([mµn]?)M|molar)(?![A-Za-z])")
_NESTED = 3  # fractions within fractions
_PREFIXED_OHM = re.compile(r"(?<![A-Za-z])([kMGmµ]) ?\\Omega")
_DEGREES = re.compile(r"(?:\bdegrees?|\bdeg|\^ ?\\circ) *([CF])\b")
_MARKUP = re.compile(r"\\(?:cdot|times|unit|si)(?![A-Za-z])|[\\{}\"~]")
_TWO_WORDS = re.compile(
    r"\b(electron|light|astronomical|nautical|mm)[ -](volt|year|unit|mile|Hg)(?=s?\b)"
)
_JOINED = {"astronomical": "-", "nautical": "-"}
_IGNORED = frozenset("a an the of all there . * · ( )".split())
_LIKE_NUMBERS = tuple("fold uple illion illions illiard th ths score gross pair ly".split())
_MOST_WORDS = 8
_LONGEST = 60


def plain_unit(text: str) -> str:
    r"""A unit of a folded text without markup: `\frac{"m"}{"s"^2}` is `m/s^2`.

    Args:
        text: what stands behind a number.
    """
    text = _MOLAR.sub(r"\1mol/L", _HYPHEN.sub(" ", _PREFIX.sub(r"\1", text)))
    text = _PREFIXED_OHM.sub(r"\1Ω", text.replace('"', " ")).replace(r"\Omega", "Ω")
    text = _DEGREES.sub(lambda found: AMBIGUOUS[found[1]][0], text)
    text = _MARKED_POWER.sub(lambda power: f"^{power[1] or power[2]}", text)
    for _ in range(_NESTED):
        text = _FRACTION.sub(r"\1/\2", text)
    text = _MARKUP.sub(" ", _MICRO.sub("µ", text.replace(r"^\circ", "°")))
    return _ONE_OVER.sub("/", " ".join(text.split()))


@lru_cache(maxsize=1024)
def canonical(text: str) -> str | None:
    """One name for one unit; None if the text is no unit at all, because it says more than a unit
    can.

    Args:
        text: folded text after a number, without quotes.
    """
    # A number behind a number is no unit.
    if not text or len(text) > _LONGEST or text[0].isdecimal():
        return None
    names: list[str] = []
    power, unknown, odd, stuff = "", 0, False, False
    text = _DEGREES.sub(lambda found: AMBIGUOUS[found[1]][2], text)
    text = _TWO_WORDS.sub(lambda pair: f"{pair[1]}{_JOINED.get(pair[1], '')}{pair[2]}", text)
    words = _WORD.findall(text)
    if len(words) > 2 * _MOST_WORDS:
        return None
    for word in words:
        plain = word.casefold()
        name = _name_of_word(word)
        if not name and word[0] in _CHINESE_COUNTERS:
            name = word[0]  # 15个苹果
        if raised := _POWER.fullmatch(word):
            if not names or "^" in names[-1]:
                return None
            names[-1] += f"^{raised[1]}"
        elif plain in _POWERS and names and names[-1] != "/":  # "cm squared"
            names[-1] += _POWERS[plain]
        elif plain in _POWERS:
            power = _POWERS[plain]
        elif plain in ("per", "/"):
            names.append("/")
        elif name:
            names.append(name + power)
            power = ""
        elif plain in SAYS_MORE or plain in SCALES or number(plain) is not None:
            return None
        elif plain == "of" and names and not unknown:
            stuff = True
        elif plain not in _IGNORED:
            # Behind "of" any stuff may stand; before it each word must be known.
            unknown += not stuff and plain not in ADJECTIVES  # 4 cups of flour
            # A short word, one with capitals, or one that sounds like a number may change what is
            # meant.
            odd = odd or len(word) < 4 or not word.islower() or plain.endswith(_LIKE_NUMBERS)
            names.append(plain + power)
            power = ""
    if power or len(names) > _MOST_WORDS or (words and not names):
        return None
    counted = bool(names) and _name_of_word(words[-1]) in NOUNS  # 7 stuffed goats
    # Up to two unknown words before a counted thing are taken for adjectives.
    is_unknown = unknown and (odd or not counted or unknown > 2)
    return f"{UNKNOWN if is_unknown else ''}{' '.join(names)}"


def _name_of_word(word: str) -> str:
    """The name of a known unit or counted thing; "" if it is none."""
    # Unicode folds the sign of micro to the Greek letter.
    if (symbol := _SYMBOLS.get(word.replace("μ", "µ"))) is not None:
        return symbol
    plain = word.casefold()
    for spelling in (plain, *_singulars(plain)):
        if name := _NAMES.get(spelling, spelling if spelling in NOUNS else ""):
            return name
    return ""


_PLURALS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"))


def _singulars(word: str) -> tuple[str, ...]:
    # `glass` and `gas` are no plurals.
    if len(word) < 4 or not word.endswith("s") or word.endswith("ss"):
        return ()
    return tuple(
        word.removesuffix(plural) + singular
        for plural, singular in _PLURALS
        if word.endswith(plural)
    )


@lru_cache(maxsize=1024)
def measure(name: str) -> Measure | None:
    """Size and dimension of a canonical name; None if a word in it has no size."""
    if any(word != "/" and word.partition("^")[0] not in _SIZES for word in name.split()):
        return None
    size, powers = _size(name)
    return size, tuple(sorted((base, power) for base, power in powers.items() if power))


def is_measured(text: str) -> bool:
    """True if a text after a number is a unit that has a size.

    Args:
        text: as for `canonical`.
    """
    name = canonical(text)
    return bool(name) and measure(name or "") is not None


def is_counted(name: str) -> bool:
    """True if a canonical name is that of counted things and not of a unit."""
    return name.rpartition(" ")[2].partition("^")[0] in NOUNS


def is_known(text: str) -> bool:
    """True if every word is the name of a unit, so that it cannot be a product of variables: `cm`,
    but not `cd`."""
    words = [word for word in _WORD.findall(text) if word[0].isalpha() or word == "°"]
    return bool(words) and all(
        word in _POWERS
        or word == "per"
        # Two letters may be a product of variables; those of the table are not, and a slash makes
        # units of others.
        or (bool(_name_of_word(word)) and (len(word) > 2 or word in _NO_PRODUCTS or "/" in text))
        for word in words
    )

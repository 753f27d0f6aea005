"""Short answers by what they are: numbers, quantities, dates, times, yes and no, and words
with the signs that count.

An answer is compared as what the reference is.  Case, punctuation, articles and accents vanish only
where no two answers differ by them: a sign before a number, a % or $, the dot of ".NET", the plus
signs of "C++" and the A of "Vitamin A" stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from rlvr.verifiers.answers import without_commands
from rlvr.verifiers.math.clock import time_of_day
from rlvr.verifiers.math.units import TEMPERATURES, canonical, measure
from rlvr.verifiers.math.words import number
from rlvr.verifiers.stated import withdraws

__all__ = [
    "Amount",
    "is_question",
    "kept_of_two",
    "normal_form",
    "same_answer",
    "tokens",
    "within_sentence",
]

# soft hyphens, signs of no width and marks of direction: a web page's text has them, no reader sees
# them
_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_PLAIN: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0x3000: 0x20,
    **dict.fromkeys(map(ord, "‐‑–−"), 0x2D),
}
"""Full-width signs, and dashes within words and numbers, as they are in ASCII."""
# words keep the apostrophe inside them ("O'Brien"); any other sign is a token of its own, so that
# "C++" differs from "C"
_TOKEN: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|!=|[^\s\w]|_")
_DROPPED: Final = frozenset(".,;:!?\"'“”‘’`()[]{}«»…¿¡*_-—。、「」『』《》")
# "well-known" may be one word or two; "3-4", "T-1" and "x-y" stay
_HYPHEN: Final = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})")
# "5 or", "5 squared" and "5 tenths" are not five of something: they say another number, or doubt
_NO_NOUNS: Final = frozenset(
    "or and maybe perhaps probably possibly not no ish off more les wrong incorrect false bc plu "
    "minu negative squared cubed factorial mod pi tenth hundredth thousandth millionth billionth "
    "mil mn bn lakh crore binary hex octal".split()
)
# these are, where the question counts them: "How many quarters?"
_PARTS: Final = frozenset(
    "half halve third quarter fourth fifth sixth seventh eighth ninth pair couple score "
    "gros".split()
)
_ARTICLES: Final = frozenset(("a", "an", "the"))
# "The Who" and "The Band" are names: without the article they are other words
_WHOLE_NAMES: Final = frozenset("who what which it them one band end".split())
_ORDINALS: Final = frozenset(("first", "second", "third"))
_ORDINAL_DIGITS: Final = re.compile(r"(\d{1,4})(?:st|nd|rd|th)")
_ORDINAL_END: Final = re.compile(r"(?:st|nd|rd|th)\b")
_NEXT_UNIT: Final = re.compile(r"(?<=[a-z]),? (?:and )?(?=\d)", re.IGNORECASE)
_MOST_UNITS: Final = 4  # of one quantity: days, hours, minutes, seconds
_PLURAL: Final = re.compile(r"(?<=[^\W\d_]{3})s\Z")
_FRACTION: Final = re.compile(r"\\[dt]?frac ?(?:\{(\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))")
_MOST_SPELT: Final = 12  # words of a number
_SCALES: Final = {
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
_UNITS: Final = {
    "dollar": "$",
    "usd": "$",
    "euro": "€",
    "eur": "€",
    "pound": "£",
    "gbp": "£",
    "yen": "¥",
    "jpy": "¥",
    "percent": "%",
    **dict.fromkeys(("bce", "b.c", "b.c.e"), "bc"),
    **dict.fromkeys(("c", "celsiu", "degree celsiu", "degrees celsiu", "degrees c"), "°c"),
    **dict.fromkeys(
        ("f", "fahrenheit", "degree fahrenheit", "degrees fahrenheit", "degrees f"), "°f"
    ),
}
"""Units by what they are called, in small letters and without a last s."""
_VULGAR: Final = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_NUMBER: Final = re.compile(
    rf"""(?P<sign>(?:minus|negative)\s|[-+]?)\s?(?:US(?=\$))?
    (?P<before>(?:USD|EUR|GBP|JPY)(?=\s)|[$€£¥]?)\s?(?P<minus>-?)
    (?:(?P<whole>\d{{1,3}}(?:,\d{{3}})+|\d{{1,40}})?(?P<part>\.\d{{1,40}})?
       (?:[eE](?P<power>[+-]?\d{{1,3}})
         |\s?(?:×|x|\*|\\times|·)\s?10\s?\^?\s?\{{?(?P<ten>[+-]?\d{{1,3}})\}}?)?
       (?:\s?(?P<vulgar>[{_VULGAR}])|\s?/\s?(?P<under>\d{{1,40}}))?)
    \s?(?P<scale>hundred|thousand|million|billion|trillion|dozen)?
    \s?(?P<unit>[%°$€£¥]?\s?[^\d\s].{{0,30}}|[%°$€£¥])?""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_MONTHS: Final = (
    "january february march april may june july august september october november december".split()
)
_MONTH: Final = r"(?P<month>[A-Za-z]{3,9})\.?"
_DATES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<year>\d{4})-(?P<number>\d{1,2})-(?P<day>\d{1,2})",
        rf"{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?",
        rf"(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (?P<year>\d{{4}}))?",
        rf"(?P<day>\d{{1,2}})-{_MONTH}-(?P<year>\d{{4}})",
        rf"{_MONTH},? (?P<year>\d{{4}})",
        r"(?P<day>\d{1,2})\.(?P<number>\d{1,2})\.(?P<year>\d{4})",
        r"(?P<day>1[3-9]|2\d|3[01])/(?P<number>\d{1,2})/(?P<year>\d{4})",
        r"(?P<number>\d{1,2})/(?P<day>1[3-9]|2\d|3[01])/(?P<year>\d{4})",
    )
)
_CODE_NAME: Final = re.compile(  # max_len, and a command with its flags, such as "ls -l"
    r"[A-Za-z_][\w.]*_[\w.]*(?:\(\))?|[a-z][\w.]+ (?:.{1,200} )?--?[A-Za-z][\w-]*(?:[ =].{1,200})?"
)
_DOTTED_NAME: Final = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)+")  # such as os.path.join
_ROMAN: Final = re.compile(r"X{0,3}(?:IX|IV|V?I{0,3})")
_ROMAN_DIGITS: Final = {"I": 1, "V": 5, "X": 10}
_SHORTENED: Final = {"mt": "mount", "st": "saint", "ft": "fort", "dr": "doctor", "vs": "versus"}
_INITIALS: Final = re.compile(r"(?<![\w.])[A-Z]\.(?: ?[A-Z](?:\.|(?![\w.])))+")
_PERCENT: Final = re.compile(r"\bper ?cent|%", re.IGNORECASE)
_PER_CENT: Final = re.compile(r"\bper cent\b", re.IGNORECASE)
_AND_LAST: Final = re.compile(r",? and |(?<=[^\W\d_])(?: ?/ ?|; )(?=[^\W\d_])")
_LEAD_IN: Final = re.compile(
    r"\A(?:(?:so|thus|hence|therefore),? )?(?:it|that|this|they)"
    r"(?:['’]s|['’]re| is| was| are| were) ",
    re.IGNORECASE,
)
_UNSURE: Final = r"(?!(?:only|just|merely|simply|sure|certain\w*|really|quite|\w+ly)\b)"
_CHOSEN: Final = re.compile(
    rf"not {_UNSURE}[^,;]{{1,80}}?,? but (?:rather )?(?P<but>.{{1,200}})|"
    rf"(?P<kept>[^,;]{{1,200}}?)(?:(?:, (?:and )?not|,? rather than|,? instead of) {_UNSURE}"
    rf"[^,;]{{1,80}}|"
    r" \(not [^(),;]{1,80}\))",
    re.IGNORECASE,
)
_GLOSSED: Final = re.compile(r"(?P<said>[^()]{1,200}) \((?P<gloss>[^()]{1,80})\)\.?")
_MOST_WORDS: Final = 30  # of a sentence that holds an answer
_LONGEST_PROMPT: Final = 20_000
_MOST_CORE: Final = 4  # words around the core of a sentence that may belong to the answer
_NEUTRAL: Final = frozenset(
    "a an the is are was were be been being am it it's its this that that's these those there "
    "there's here he she they his her their we you i has have had having do does did of in on at "
    "by to for from with as named called known exactly only just precisely simply so thus hence "
    "therefore sure certainly course year answer use lies flows runs located situated".split()
)
"""Words that say nothing beside an answer."""
_DOUBTFUL: Final = frozenset(
    "or and but not no never none neither nor cannot can't isn't aren't wasn't weren't don't "
    "doesn't didn't won't without except unless if maybe perhaps possibly probably likely could "
    "might may either both more less fewer least over under about around approximately almost "
    "nearly roughly up before after between until half twice double triple quarter minus negative "
    "plus times squared cubed root reciprocal inverse opposite former".split()
)
"""Words that change what stands beside them, in a question too."""
_TURNING: Final = frozenset("of than like as".split())
"""Words behind which another thing is named: the mother of Ann is not Ann."""
_DENIALS: Final = frozenset("not n't isn't aren't wasn't weren't don't doesn't didn't".split())
_WORD_EDGES: Final = ".,;:!\"'“”‘’`()[]*_—–"
_ENDINGS: Final = ("ing", "ed", "es", "s", "d", "e")
_VERDICT: Final = re.compile(r"(?P<truth>yes|no) ?[,.;!:—–-]+ (?P<why>.{1,200})", re.IGNORECASE)
_YEAR: Final = re.compile(r"[12]\d{3}")
_PAST: Final = {
    past: verb
    for verb, *forms in map(
        str.split,
        (
            "write wrote written",
            "become became",
            "begin began begun",
            "break broke broken",
            "bring brought",
            "build built",
            "buy bought",
            "choose chose chosen",
            "come came",
            "draw drew drawn",
            "drive drove driven",
            "eat ate eaten",
            "fall fell fallen",
            "fight fought",
            "find found",
            "fly flew flown",
            "give gave given",
            "go went gone",
            "grow grew grown",
            "hold held",
            "keep kept",
            "know knew known",
            "lead led",
            "lie lay lain",
            "lose lost",
            "make made",
            "meet met",
            "pay paid",
            "rise rose risen",
            "run ran",
            "see saw seen",
            "sell sold",
            "send sent",
            "sing sang sung",
            "sink sank sunk",
            "speak spoke spoken",
            "spend spent",
            "stand stood",
            "swim swam swum",
            "take took taken",
            "teach taught",
            "throw threw thrown",
            "win won",
        ),
    )
    for past in forms
}
"""Irregular past forms of verbs, each with its infinitive."""
_YES_NO: Final = {"yes": True, "true": True, "no": False, "false": False}


class Amount(NamedTuple):
    """A number and what it counts: "%", "$", a unit or a noun; "" for a bare number.

    Attributes:
        value, unit: the two.
        apart: whether they have a space between them: the 49 of "49ers" is no number of ers.
    """

    value: Fraction
    unit: str
    apart: bool = True


def same_answer(answer: str, gold: str, prompt: str = "") -> bool:
    """Whether an answer says the same as a reference.

    Args:
        answer: the answer.
        gold: the reference; what it is decides how the two are compared.
        prompt: the question; one for a percentage is answered by a number without the sign, too.
    """
    answer_text, right = _plain(answer), _plain(gold)
    if answer_text == right:
        return True
    if _same(answer_text, right, prompt):
        return True
    # "It is Paris" and "Paris, not Lyon": only what is left is compared
    core_answer = kept_of_two(_LEAD_IN.sub("", answer_text))
    glossed = _GLOSSED.fullmatch(core_answer)
    short, gloss = (glossed["said"], glossed["gloss"]) if glossed else (core_answer, "")
    if (
        short != answer_text
        and _same(short, right, prompt)
        # "Paris (France)" says two things: the gloss must say the same as the reference, or the
        # answer is two guesses
        and (not gloss or _same(gloss, right, ""))
    ):
        return True
    # "Yes, because …" may go on, unless the reason takes the yes back
    truth = _YES_NO.get(right.casefold().rstrip("."))
    if truth is not None and (verdict := _VERDICT.fullmatch(answer_text)) is not None:
        return _YES_NO[verdict["truth"].casefold()] is truth and _says_why(verdict["why"], truth)
    allowed = (
        # "It does not, no" answers no: the denial says the same again, and is no doubt
        _DENIALS if truth is False and answer_text[:3].casefold() in ("no ", "it ") else frozenset()
    )
    count = right.count(" ") + 1
    return any(
        _same(core, right, prompt)
        for core in within_sentence(core_answer, prompt, tokens(right), count, allowed)
    )


def _says_why(reason: str, truth: bool) -> bool:
    """Whether what follows "yes" or "no" leaves it as it is."""
    if truth and withdraws(reason):  # "No, that is wrong" says it of the question
        return False
    words = {*map(_plain_word, reason.split())}
    # "No, it is not" repeats the no; "Yes, but not always" turns the yes
    turning = _DOUBTFUL - _DENIALS if truth is False else _DOUBTFUL
    return turning.isdisjoint(words) and _YES_NO.keys().isdisjoint(words)


def within_sentence(
    said: str,
    prompt: str,
    own: Collection[str],
    count: int = 1,
    allowed: Collection[str] = (),
) -> Iterator[str]:
    """What an answer says that its question does not: "Paris" of "The capital of France is Paris".

    The words around it are all of the question, or say nothing.  None where the question has the
    answer's words, and might list others.

    Args:
        said: the answer.
        prompt: the question.
        own: words of the answers that are possible; in the question they are not passed over.
        count: words of the right answer, of which the question may have some.
        allowed: further words that say nothing.
    """
    words = said.split()
    # without a question no word is known to be only its echo
    if not prompt or not 2 <= len(words) <= _MOST_WORDS:
        return
    possible = {word.casefold() for word in own}
    question_words = _question_words(prompt)
    # the question names the answer, as in "Paris or Lyon?": a sentence with it may have copied both
    if len(possible) == 1 and possible <= question_words:
        return
    passed = [_is_passed(word, question_words, possible, allowed) for word in words]
    # all passed over leaves no answer; none passed over leaves the whole, which was compared before
    if all(passed) or not any(passed):
        return
    first, last = passed.index(False), len(words) - 1 - passed[::-1].index(False)
    around = min(count, _MOST_CORE)
    # some of the right answer's words may be the question's, and passed over: the core may take as
    # many of them back
    for start in range(first, max(-1, first - around - 1), -1):
        if start and words[start - 1].casefold() in _TURNING:
            continue
        for stop in range(last + 1, min(len(words), last + around + 1) + 1):
            yield " ".join(words[start:stop]).strip(_WORD_EDGES + " ")


def _plain_word(word: str) -> str:
    return word.strip(_WORD_EDGES).casefold().replace("’", "'")


def _is_passed(
    word: str, asked: frozenset[str], possible: Collection[str], allowed: Collection[str]
) -> bool:
    """Whether a word of an answer may be left out of it."""
    plain = _plain_word(word)
    if plain in allowed or not plain:
        return True
    # before the words of the question: a doubt counts even where the question has the word
    if plain in possible or plain in _DOUBTFUL:
        return False
    return plain in _NEUTRAL or plain in asked or _stem(plain) in asked


@lru_cache(maxsize=512)
def _question_words(prompt: str) -> frozenset[str]:
    words = {word.strip(_WORD_EDGES + "?").casefold() for word in prompt[:_LONGEST_PROMPT].split()}
    return frozenset(words | set(map(_stem, words)))


def _stem(word: str) -> str:
    """What forms of a word have in common: "leav" of "leave", "leaves" and "leaving"."""
    word = _PAST.get(word, word)
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)]
    return word


def kept_of_two(said: str) -> str:
    """The answer that is kept of two: B of "not A but B" and of "B, not A"; any other as it is.

    Args:
        said: the answer.
    """
    chosen = _CHOSEN.fullmatch(said)
    return said if chosen is None else str(chosen["but"] or chosen["kept"])


def _same(said: str, right: str, prompt: str) -> bool:
    if "%" in right and said.replace(".", "", 1).isdecimal() and _PERCENT.search(prompt):
        said += "%"
    if is_question(said) and not is_question(right):
        return False
    if _CODE_NAME.fullmatch(right):
        # a name in code differs by case and by each sign: `MAX_LEN` is not `max_len`
        return said.strip("`'\"").rstrip(".") == right
    if _DOTTED_NAME.fullmatch(right):
        return said.strip("`'\". ").removesuffix("()").casefold() == right.casefold()
    for read in (_date, _time):
        if (expected := read(right)) is not None:
            return read(said) == expected
    # asked for a year, a whole date that lies in it says more, and nothing else
    if "year" in prompt and _YEAR.fullmatch(right) and (day := _date(said)) is not None:
        return str(day[0]) == right
    # an amount is answered by an amount alone, in digits or in words
    if (amount := _amount(right)) is not None:
        amount_said = _amount(said)
        return amount_said is not None and _same_amount(amount_said, amount, prompt)
    if (truth := _YES_NO.get(right.casefold().rstrip("."))) is not None:
        return _YES_NO.get(said.casefold().rstrip(".!")) is truth
    if _same_words(said, right) or _same_words(_HYPHEN.sub("", said), _HYPHEN.sub("", right)):
        return True
    # lists of names: "A, B and C" and "A, B, C" are one
    if "," in right:
        return _same_words(_AND_LAST.sub(", ", said), _AND_LAST.sub(", ", right))
    family_name, comma, first_name = said.partition(", ")  # "Austen, Jane"
    # only of names that begin with capitals: "red, dark" is a list, not "dark red"
    return bool(comma) and right.istitle() and _same_words(f"{first_name} {family_name}", right)


def is_question(answer: str) -> bool:
    """Whether an answer ends with a question mark: "Paris?" states nothing, where the reference has
    none.

    Args:
        answer: an answer or a reference.
    """
    return answer.rstrip(" .!\"'”’)]*").endswith(("?", "？"))


def _same_words(said: str, right: str) -> bool:
    mine, right_tokens = tokens(said), tokens(right)
    # alone, an I is a letter, and no numeral
    if len(right_tokens) == 1 == len(right_tokens[0]) and len(mine) == 1:
        return mine[0].casefold() == right_tokens[0].casefold()
    return len(mine) == len(right_tokens) and all(map(_same_word, mine, right_tokens))


def normal_form(text: str) -> str:
    """The words and signs that count, in lower case, with single spaces; never empty unless the
    text is blank.

    Args:
        text: an answer or a reference.
    """
    return " ".join(tokens(text)).casefold()


@lru_cache(maxsize=4096)
def tokens(text: str) -> tuple[str, ...]:
    """The words and signs that count, in order; never none unless the text is blank.

    Args:
        text: an answer or a reference.
    """
    # "J. R. R. Tolkien" and "JRR Tolkien"
    plain = _INITIALS.sub(lambda run: re.sub(r"[. ]", "", run[0]), _plain(text))
    all_tokens: list[str] = []
    pieces = list(_TOKEN.finditer(plain))
    for piece in pieces:
        token = piece[0]
        if token == "&":
            token = "and"
        after = plain[piece.end() : piece.end() + 1]
        before = plain[piece.start() - 1 : piece.start()]
        begins = not before or before.isspace()
        if token in _DROPPED:
            # The dot of ".NET", the sign of "-5" and the range of "3-4" say something.
            if not (token in ".-" and after.isalnum() and (begins or (before + after).isdigit())):
                continue
            if token == "-" and begins and not after.isdigit():
                continue
        # "dont" and "don't" are one word; a lone apostrophe is a sign
        all_tokens.append(re.sub("['’]", "", token) if len(token) > 1 else token)
    counted = []
    for at, token in enumerate(all_tokens):
        following = all_tokens[at + 1] if at + 1 < len(all_tokens) else ""
        # the A of "Vitamin A" stays: no word follows it
        is_article = token.casefold() in _ARTICLES and len(following) > 1
        is_article = is_article and (following[0].isalpha() or len(token) == 3)  # "the 1960s"
        if is_article and not (at == 0 and following.casefold() in _WHOLE_NAMES):
            continue
        counted.append(token)
    # "The" and "!" have nothing else: they keep what they are
    return tuple(counted or plain.split())


def _plain(text: str) -> str:
    plain = _UNSEEN.sub("", unicodedata.normalize("NFC", text)).translate(_PLAIN)
    if "frac" in plain:
        plain = _FRACTION.sub(r"\1\2/\3\4", plain)
    plain = " ".join(without_commands(plain).split())
    return _PER_CENT.sub("percent", plain)


def _same_word(one: str, other: str) -> bool:
    """In any case; accents of a name may be left out, those of other words, as in "año", not."""
    if one.casefold() == other.casefold():
        return True
    # the capital is the reference's, as of a name: "ano" for "año" is another word
    if other[:1].isupper() and _bare(one) == _bare(other):
        return True
    short, long = sorted((one.casefold(), other.casefold()), key=len)
    # "Mt" for "Mount"; numerals both ways, as "Henry 8" and "Henry VIII"; "5th" and "fifth"
    return (
        _SHORTENED.get(short) == long
        or _roman(one) == other
        or one == _roman(other)
        or "" != _in_digits(short) == _in_digits(long)
    )


def _in_digits(ordinal: str) -> str:
    """The digits of "5th" and "fifth", in small letters; "" for any other word."""
    if match := _ORDINAL_DIGITS.fullmatch(ordinal):
        return match[1]
    is_ordinal = ordinal.endswith("th") or ordinal in _ORDINALS
    value = number(ordinal) if is_ordinal else None
    return str(value) if isinstance(value, int) else ""


def _roman(word: str) -> str:
    """A numeral up to XXXIX in digits; "" for any other word."""
    if not word or not _ROMAN.fullmatch(word):
        return ""
    values = [_ROMAN_DIGITS[sign] for sign in word]
    signs = (
        -1 if value_before < after else 1
        for value_before, after in zip(values, [*values[1:], 0], strict=True)
    )
    return str(sum(sign * value for sign, value in zip(signs, values, strict=True)))


def _bare(word: str) -> str:
    folded = unicodedata.normalize("NFD", word.casefold())
    return "".join(char for char in folded if not unicodedata.combining(char))


# ------------------------------------------------------------------------------------------ amounts


@lru_cache(maxsize=4096)
def _amount(text: str) -> Amount | None:
    # a full stop behind a number is the sentence's; more of them say that it goes on, as in
    # "0.333..."
    bare = text.rstrip(". ") if not text.endswith("..") else text
    if (total := _sum_of_units(bare)) is not None:
        return total
    match = _NUMBER.fullmatch(bare)
    if match is None or not (match["whole"] or match["part"] or match["vulgar"]):
        return _spelt(bare)
    if match["sign"] and match["minus"]:
        return None
    integer_part = (match["whole"] or "0").replace(",", "")
    if len(integer_part) > 1 and integer_part.startswith("0"):
        return None  # "007" and "03/05" are codes
    value = Fraction(f"{integer_part}{match['part'] or ''}")
    if match["under"]:
        # "1/05" may be a date, and "1.5/2" is left to be worked out
        if match["under"].startswith("0") or match["part"]:
            return None
        value /= int(match["under"])
    if match["vulgar"]:
        # the signs stand for halves to eighths, as floats: the nearest of these is exact
        value += Fraction(unicodedata.numeric(match["vulgar"])).limit_denominator(8)
    value *= Fraction(10) ** int(match["power"] or match["ten"] or "0")
    value *= _SCALES.get((match["scale"] or "").lower(), 1)
    if (match["sign"] or match["minus"]).strip().casefold() in ("-", "minus", "negative"):
        value = -value
    unit = _unit((match["before"] or "") + (match["unit"] or ""))
    apart = bare[: match.start("unit")].endswith(" ")
    if unit is None or (not apart and _ORDINAL_END.match(unit)):
        return None
    return Amount(value, unit, apart)


def _sum_of_units(text: str) -> Amount | None:
    """A quantity in units of one kind, the largest first: 1 hour and 30 minutes."""
    pieces = _NEXT_UNIT.split(text)
    if not 1 < len(pieces) <= _MOST_UNITS:
        return None
    sized = []
    for piece in pieces:
        amount = _amount(piece)
        size = _measure(amount.unit) if amount is not None and amount.unit else None
        if amount is None or size is None or amount.value < 0:
            return None
        sized.append((amount.value * size[0], size, amount.unit))
    for (_, larger, _), (value, size, _) in pairwise(sized):
        if size[1:] != larger[1:] or value >= larger[0]:
            return None
    _, least, unit = sized[-1]
    return Amount(sum((value for value, _, _ in sized), Fraction(0)) / least[0], unit)


def _unit(text: str) -> str | None:
    """The unit or noun behind a number; None for what is none, such as a second number or a
    comparison."""
    word_text = text.strip()
    if not word_text:
        return ""
    # exponents of a unit ("m^2") hold digits; any other digit is a second number: "5 or 6", "3 x 4"
    if re.search(r"\d", re.sub(r"\^\{?-?\d\}?|[²³]", "", word_text)) or re.match(
        r"[-/:=<>≠+*,;|]", word_text
    ):
        return None
    word = word_text.casefold()
    # three letters and fewer keep their s, as of "ms" and "km/s"
    singular = _PLURAL.sub("", word)
    return _UNITS.get(word.removesuffix("s"), singular)


def _spelt(text: str) -> Amount | None:
    """A cardinal number in words, perhaps with a scale and a noun behind it."""
    words = re.findall(r"[a-z]+", text.casefold())
    if re.sub(r"[a-z\s-]", "", text.casefold()):
        return None
    # the longest beginning that is a number: "two hundred people" is 200, not 2
    for count in range(min(len(words), _MOST_SPELT), 0, -1):
        value, unit_words = number(" ".join(words[:count])), words[count:]
        if value is None or words[count - 1] in _ORDINALS or words[count - 1].endswith("th"):
            continue
        # "five six" are two numbers, "twelve hundred" is one
        is_scale = bool(unit_words) and unit_words[0] in _SCALES
        if unit_words and not is_scale and number(unit_words[0]) is not None:
            return None
        scale = _SCALES.get(unit_words[0], 1) if unit_words else 1
        unit = _unit(" ".join(unit_words[scale > 1 :]))
        return None if unit is None else Amount(Fraction(value) * scale, unit)
    return None


def _same_amount(said: Amount, right: Amount, prompt: str) -> bool:
    if said.unit == right.unit:
        return said.value == right.value
    # 45 % is 0.45 and not 45: both are brought to a share
    if "%" in (said.unit, right.unit) and "" in (said.unit, right.unit):
        return said.value / (100 if said.unit else 1) == right.value / (100 if right.unit else 1)
    if said.unit and right.unit:
        # of two units that are known: 1 km is 1000 m; nouns must be the same
        measure_said, measure_right = _measure(said.unit), _measure(right.unit)
        return (
            measure_said is not None
            and measure_right is not None
            and measure_said[1:] == measure_right[1:]
            and said.value * measure_said[0] == right.value * measure_right[0]
        )
    unit = said.unit or right.unit
    if unit in ("$", "€", "£", "¥"):
        # the currency may be left out where the reference has it; one that the reference lacks says
        # more
        return bool(right.unit) and said.value == right.value
    if unit[0] in "%$€£¥°" or (_measure(unit) is not None and not (right.unit and _is_time(unit))):
        return False  # 5 is not 5 %, and "5 m" says more than 5
    # "5 apples" answers "5", and "5" answers "5 apples": a noun repeats the question
    is_noun = len(unit) > 1 and unit.isalpha() and unit not in _NO_NOUNS
    is_noun = is_noun and (said if said.unit else right).apart
    if unit in _PARTS:
        is_noun = not _question_words(prompt).isdisjoint((unit, _stem(unit)))
    return said.value == right.value and is_noun


def _measure(unit: str) -> tuple[Fraction, ...] | None:
    """Size and dimensions of a unit that is known; None for a noun."""
    name = canonical(unit.strip("° ")) if unit[:1] != "°" else None
    # temperatures differ by more than a factor: 0 °C is 273.15 K
    if name is None or name in TEMPERATURES:
        return None
    size = measure(name)
    return None if size is None else tuple(size)  # type: ignore[arg-type]


def _is_time(unit: str) -> bool:
    return unit.removesuffix("s") in ("second", "minute", "hour", "day", "week", "month", "year")


# ---------------------------------------------------------------------------------- dates and times


def _date(text: str) -> tuple[int | None, int, int | None] | None:
    """(year, month, day); a numeric date with slashes is none where two readings of it differ."""
    text = text.rstrip(".")
    for pattern in _DATES:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        parts = match.groupdict()
        name = (parts.get("month") or "").lower()
        months = [at for at, month in enumerate(_MONTHS, 1) if name in (month, month[:3])]
        if name == "sept":
            months = [9]
        month = int(parts["number"]) if parts.get("number") else (months or [0])[0]
        day = int(parts["day"]) if parts.get("day") else None
        if 1 <= month <= 12 and (day is None or 1 <= day <= 31):
            return (int(parts["year"]) if parts.get("year") else None, month, day)
    return None


def _time(text: str) -> int | None:
    """Seconds after midnight."""
    clock = time_of_day(text.rstrip("."))
    return None if clock is None else clock.seconds

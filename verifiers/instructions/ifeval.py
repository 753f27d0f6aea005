"""The 25 instructions of IFEval (arXiv:2311.07911;
google-research/instruction_following_eval), both policies."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

from rlvr.types import JsonObject
from rlvr.verifiers.instructions.language import is_language, mostly_latin
from rlvr.verifiers.instructions.registry import (
    COUNT,
    LETTER,
    POSITIVE,
    RELATION,
    TEXT,
    WORD,
    WORDS,
    WORDS_NEEDED,
    Argument,
    compare_count,
    kind,
)
from rlvr.verifiers.instructions.text import (
    chunk_tokens,
    count_plain_words,
    count_word,
    count_words,
    different_words,
    fenced_alone,
    has_word,
    has_words,
    sentences,
    split_paragraphs,
    squeezed_spaces,
    words,
)
from rlvr.verifiers.json_schema import bracket_depth
from rlvr.verifiers.patterns import read_pattern

__all__ = ["FAMILY", "found_times"]

FAMILY: Final = "ifeval"
_kind = partial(kind, family=FAMILY)
_LONGEST_SENTENCE = 80  # words; a text without ends of sentences is not "less than 3 sentences"
_PARAGRAPH_WORDS = 3
_DEPTH = 100  # of nested JSON
_REPEATS = re.compile(r"[*+?{(]")  # what a pattern needs to take more than linear time
_ENDS = "\"'“”‘’*_ \t\n)"


@lru_cache(maxsize=1024)
def _counter(text: str, after: str = "", *, fold: bool = True) -> Callable[[str], int]:
    """Counts a keyword as the published checkers take it: as a pattern; one that is none is taken
    literally.

    One that repeats something is matched in linear time, since it comes from a data set.

    Raises:
        DataError: linear time does not do for it, see `read_pattern`.
    """
    try:
        re.compile(text)
    except re.error:
        # "*star" is no pattern: it is then looked for letter by letter
        text = re.escape(text)
    else:
        if _REPEATS.search(text):
            # with RE2, which is linear: Python's engine may need exponential time for "(a*)*b"
            return read_pattern(f"{'(?i)' if fold else ''}{text}{after}").count
    compiled = re.compile(text + after, re.IGNORECASE if fold else 0)
    return lambda said: sum(1 for _ in compiled.finditer(said))


def found_times(keyword: str, text: str) -> int:
    """How often the published checkers find a keyword in a text.

    Args:
        keyword: taken as a pattern, in any case.
        text: the answer.
    """
    if keyword.isalnum() and keyword.isascii() and text.isascii():
        return text.lower().count(keyword.lower())  # the same, and faster
    return _counter(keyword)(text)


def _short(arguments: JsonObject, key: str, share: int) -> int:
    """The words needed where at most so many are allowed."""
    # with an upper bound few words are allowed, so few may be asked for: "at most 20 words" can't
    # need 30
    limited = arguments.get("relation", arguments.get("let_relation")) != "at least"
    return max(1, min(WORDS_NEEDED, arguments[key] // share)) if limited else WORDS_NEEDED


# ----------------------------------------------------------------------------------------- keywords


@_kind("keywords:existence", keywords=WORDS)
def _existence(text: str, strict: bool, keywords: tuple[str, ...]) -> str:
    for word in keywords:
        if not (has_word(word, text) if strict else found_times(word, text)):
            return f"the keyword {word!r} is missing"
    return ""


@_kind("keywords:frequency", keyword=WORD, frequency=COUNT, relation=RELATION)
def _frequency(text: str, strict: bool, keyword: str, frequency: int, relation: str) -> str:
    count = count_word(keyword, text) if strict else found_times(keyword, text)
    return compare_count(count, relation, frequency, f"times {keyword!r}")


_MARKS_IN_WORDS = re.compile(  # begins with a character, which the search jumps to
    r"[*_](?:(?<=\w.)[*_]{0,2}(?=\w)|(?<!\w.)[*_]{0,2}(?=\w[*_])|(?<=\*)\*(?=\w))"
)


@_kind("keywords:forbidden_words", forbidden_words=WORDS)
def _forbidden(text: str, strict: bool, forbidden_words: tuple[str, ...]) -> str:
    # full-width letters and signs that cannot be seen do not hide a forbidden word
    text = squeezed_spaces(text) if strict and not text.isascii() else text
    bare = _MARKS_IN_WORDS.sub("", text) if strict else ""
    for word in forbidden_words:
        if strict:
            # Once more without marks within words: "**s**ea" shows the word.
            occurs = has_word(word, text, inflected=True) or (
                bare != text and has_word(word, bare, inflected=True)
            )
        else:
            # the word itself goes into the pattern unescaped, as in the published checker
            occurs = bool(found_times(word, text) and _counter(rf"\b{word}\b")(text))
        if occurs:
            return f"the forbidden word {word!r} occurs"
    return ""


@_kind("keywords:letter_frequency", letter=LETTER, let_frequency=COUNT, let_relation=RELATION)
def _letters(text: str, strict: bool, letter: str, let_frequency: int, let_relation: str) -> str:
    return compare_count(
        text.lower().count(letter), let_relation, let_frequency, f"times {letter!r}"
    )


# -------------------------------------------------------------------------------- language and case


def _language(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z]{2,3}(?:-[A-Za-z]{2,4})?", value):
        raise ValueError
    return value


@_kind("language:response_language", language=Argument("a code such as 'de'", _language))
def _response_language(text: str, strict: bool, language: str) -> str:
    return (
        ""
        if is_language(text, language, undetectable=not strict)
        else f"the answer is not in {language!r}"
    )


@_kind("change_case:english_capital")
def _capital(text: str, strict: bool) -> str:
    if not text.isupper():
        return "not all letters are capitals"
    # strictly the alphabet decides, and no guess of a language
    english = mostly_latin(text) if strict else is_language(text.lower(), "en", undetectable=True)
    return "" if english else "the answer is not in English"


@_kind("change_case:english_lowercase")
def _lowercase(text: str, strict: bool) -> str:
    if not text.islower():
        return "not all letters are lower case"
    english = mostly_latin(text) if strict else is_language(text, "en", undetectable=True)
    return "" if english else "the answer is not in English"


@_kind(
    "change_case:capital_word_frequency",
    capital_frequency=COUNT,
    capital_relation=RELATION,
)
def _capital_words(text: str, strict: bool, capital_frequency: int, capital_relation: str) -> str:
    if strict:
        count = sum(
            1
            for word in words(" ".join(chunk for chunk in text.split() if not chunk.islower()))
            # "I" and "A" are capitals without being meant as such; "A4" and "X-Y" are names
            if len(word) > 1 and word.isupper() and not re.search(r"\d|-\w$", word)
        )
    else:
        count = sum(
            token.isupper()
            for chunk in text.split()
            if not chunk.islower()
            for token in chunk_tokens(chunk)
        )
    return compare_count(count, capital_relation, capital_frequency, "words in capitals")


# ------------------------------------------------------------------------------------------ lengths

# In place of NLTK's punkt, which needs a download: 4 of 425 published verdicts differ.
_REFERENCE_END = re.compile(
    r"(?<![.!?])(?:\.[.!?]*+[\"'”’)\]*]*+(?=\s|$)(?!\s+[a-zß-ÿ])|[!?][.!?]*+[\"'”’)\]*]*+(?=\s|$))"
)


@_kind("length_constraints:number_sentences", num_sentences=COUNT, relation=RELATION)
def _number_sentences(text: str, strict: bool, num_sentences: int, relation: str) -> str:
    if not strict:
        ends = [end.end() for end in _REFERENCE_END.finditer(text)]
        has_tail = bool(text[ends[-1] if ends else 0 :].strip())
        return compare_count(len(ends) + has_tail, relation, num_sentences, "sentences")
    parts = sentences(text)
    longest = max(
        (count_words(part) for part in parts if len(part) > 2 * _LONGEST_SENTENCE), default=0
    )
    if longest > _LONGEST_SENTENCE:
        return f"a sentence of {longest} words"
    # "x! x! x!" must not count as three sentences; for an upper bound short ones count as well
    fewest = 1 if relation in ("less than", "at most") else 2
    return compare_count(
        sum(has_words(part, fewest) for part in parts), relation, num_sentences, "sentences"
    )


@_kind(
    "length_constraints:number_words",
    least=lambda arguments: _short(arguments, "num_words", 2),
    num_words=COUNT,
    relation=RELATION,
)
def _number_words(text: str, strict: bool, num_words: int, relation: str) -> str:
    return compare_count(
        count_words(text) if strict else count_plain_words(text), relation, num_words, "words"
    )


# begins with a character, which the search jumps to
_RULE = re.compile(r"\*(?<!\S\*)(?:\*\*| \* \*)(?!\S)")


@_kind("length_constraints:number_paragraphs", num_paragraphs=POSITIVE)
def _number_paragraphs(text: str, strict: bool, num_paragraphs: int) -> str:
    if strict:
        parts = [part for part in _RULE.split(text) if part.strip()]
        # "***" between single words would make paragraphs of nothing
        if not all(has_words(part, _PARAGRAPH_WORDS) for part in parts):
            return "a paragraph of fewer than three words"
    else:
        split_parts = split_paragraphs(text, at="***")
        if split_parts is None:
            return "an empty paragraph"
        parts = split_parts
    return "" if len(parts) == num_paragraphs else f"{len(parts)} paragraphs, not {num_paragraphs}"


_NO_SPACES = re.compile(r"[\u3041-\u30fa\u4e00-\u9fff]")


@_kind(
    "length_constraints:nth_paragraph_first_word",
    num_paragraphs=POSITIVE,
    nth_paragraph=POSITIVE,
    first_word=WORD,
)
def _first_word_of(
    text: str, strict: bool, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> str:
    parts = text.split("\n\n")
    if strict:
        parts = [part for part in re.split(r"\n[ \t\r]*\n", text) if part.strip()]
    count = sum(1 for part in parts if part.strip())
    # the total leaves out empty paragraphs, and `nth_paragraph` counts them, as in the published
    # checker
    if count != num_paragraphs:
        return f"{count} paragraphs, not {num_paragraphs}"
    if nth_paragraph > count or not (paragraph := parts[nth_paragraph - 1].strip()):
        return f"there is no paragraph {nth_paragraph}"
    # several words, or a script without spaces
    if " " in first_word or _NO_SPACES.match(first_word):
        begins = paragraph.lstrip("'\"*_“‘「").lower().startswith(first_word.lower())
        return "" if begins else f"paragraph {nth_paragraph} does not begin with {first_word!r}"
    word = paragraph.split()[0].lstrip("'").lstrip('"')
    if strict:
        word = word.lstrip("*_“‘#([")
    word = re.split(r"[.,?!'\"*_:;”’)]" if strict else r"[.,?!'\"]", word, maxsplit=1)[0]
    return (
        ""
        if word.lower() == first_word.lower()
        else f"paragraph {nth_paragraph} begins with {word[:40]!r}"
    )


# ------------------------------------------------------------------------------- content and format

# "[name]" and "[your address]", not "[1]", "[x]" or the text of a link, "[here](…)"
_PLACEHOLDER = re.compile(r"\[(?=[^\[\]\n]{0,100}[^\W\d_]{2})[^\[\]\n]{2,100}\](?!\()")


@_kind("detectable_content:number_placeholders", num_placeholders=COUNT)
def _placeholders(text: str, strict: bool, num_placeholders: int) -> str:
    count = (
        sum(1 for _ in _PLACEHOLDER.finditer(text))
        if strict
        else sum(map(_count_brackets, text.split("\n")))
    )
    return compare_count(count, "at least", num_placeholders, "placeholders")


def _count_brackets(line: str) -> int:
    r"""How often `\[.*?\]` is found in a line, in linear time."""
    count = at = 0
    while (start := line.find("[", at)) >= 0 and (stop := line.find("]", start)) >= 0:
        count, at = count + 1, stop + 1
    return count


_POSTSCRIPTS = {
    "p.p.s": re.compile(r"p\.\s?p\.\s?s", re.IGNORECASE),
    "p.s.": re.compile(r"p\.\s?s\.", re.IGNORECASE),
}


@_kind("detectable_content:postscript", postscript_marker=WORD)
def _postscript(text: str, strict: bool, postscript_marker: str) -> str:
    marker = postscript_marker.lower()
    if not strict:
        pattern = _POSTSCRIPTS.get(marker)
        match = pattern.search(text) if pattern else found_times(marker, text)
        return "" if match else f"there is no {postscript_marker}"
    # in the last three paragraphs: a postscript in the middle of a letter is none
    parts = [part.strip() for part in re.split(r"\n[ \t\r]*\n", text) if part.strip()][-3:]
    lines = [line.strip("*_ \t") for part in parts for line in part.split("\n")]
    # "PS" but not "PSst"
    begins = re.compile(
        re.escape(marker) + (r"(?!\w)" if marker[-1].isalnum() else ""), re.IGNORECASE
    )
    written_lines = [
        line
        for line in lines
        if (match := begins.match(line)) and len(words(line[match.end() :])) > 1
    ]
    if not written_lines:
        return f"no {postscript_marker} with text begins a line at the end"
    return (
        ""
        # an answer that is a postscript alone has nothing that it could follow
        if not text.lstrip("*_ \t\n").lower().startswith(marker)
        else "there is nothing before the postscript"
    )


_BULLET = re.compile(r"^([ \t]{0,20})(?:[*+•]|-)[ \t]+(?=[^\n]{0,20}\w)", re.MULTILINE)


@_kind("detectable_format:number_bullet_lists", num_bullets=COUNT)
def _bullets(text: str, strict: bool, num_bullets: int) -> str:
    if strict:
        depths = [len(match[1].expandtabs(4)) for match in _BULLET.finditer(text)]
        # those further in are points of a point
        deepest = min(depths, default=0) + 1
        count = sum(depth <= deepest for depth in depths)
    else:
        count = _reference_bullets(text)
    return "" if count == num_bullets else f"{count} bullet points, not {num_bullets}"


def _reference_bullets(text: str) -> int:
    r"""Lines with `^\s*\*[^*]` and lines with `^\s*-`; a line "*" takes the next line with it."""
    count, is_taken = 0, False
    lines = text.split("\n")
    for index, line in enumerate(lines):
        bare = line.lstrip()
        count += bare.startswith("-")
        if is_taken:
            is_taken = False
            continue
        if bare == "*" and index + 1 < len(lines):
            count, is_taken = count + 1, True
        elif bare.startswith("*") and bare[1:2] not in ("", "*"):
            count += 1
    return count


_CONSTRAINED = {
    "yes": "My answer is yes.",
    "no": "My answer is no.",
    "maybe": "My answer is maybe.",
}
# "no" is often an ordinary word, as in "no doubt": it counts where a sign or the end follows
_OTHER_ANSWER = re.compile(r"\b(?:(yes|maybe)\b|(no)\b(?=\s*[.,;:!?\"'”’)*]|\s*$))", re.IGNORECASE)


@_kind("detectable_format:constrained_response", least=1, whole=True)
def _constrained(text: str, strict: bool) -> str:
    if not strict:
        holds = any(option in text for option in _CONSTRAINED.values())
        return "" if holds else "the answer is not one of the three sentences"
    answer = text.strip(_ENDS)
    chosen = [
        # at either end: the sentence may come first, with reasons behind it, or last
        word
        for word, option in _CONSTRAINED.items()
        if answer.startswith(option) or answer.endswith(option)
    ]
    if len(chosen) != 1 or answer.lower().count("my answer") != 1:
        return "the answer does not begin or end with one of the three sentences"
    # an answer that says "My answer is yes." and goes on to say no says both
    other_words = {(word[1] or word[2]).lower() for word in _OTHER_ANSWER.finditer(answer)} - set(
        chosen
    )
    return f"the answer says {min(other_words)!r} too" if other_words else ""


# "*x*", "**x**" and "***x***", with no space inside the stars
_HIGHLIGHT = re.compile(r"(\*(?<![\w*]\*)\*{0,2}+)(?=[^\s*])[^\n*]++(?<=[^\s*])\1(?![\w*])")
_TWO_LETTERS = re.compile(r"[^\W\d_][\W\d_]*+[^\W\d_]")
_ONE_STAR = re.compile(r"\*[^\n*]*\*")
_TWO_STARS = re.compile(r"\*\*[^\n*]*\*\*")


@_kind("detectable_format:number_highlighted_sections", num_highlights=COUNT)
def _highlights(text: str, strict: bool, num_highlights: int) -> str:
    if strict:
        # two letters: "*a* *b* *c*" would be three highlighted parts
        count = sum(1 for match in _HIGHLIGHT.finditer(text) if _TWO_LETTERS.search(match[0]))
    else:
        count = sum(1 for match in _ONE_STAR.finditer(text) if match[0].strip("*").strip())
        count += sum(1 for match in _TWO_STARS.finditer(text) if match[0][2:-2].strip())
    return compare_count(count, "at least", num_highlights, "highlighted parts")


@_kind("detectable_format:multiple_sections", section_spliter=WORD, num_sections=COUNT)
def _sections(text: str, strict: bool, section_spliter: str, num_sections: int) -> str:
    if not strict:
        count = _counter(section_spliter, r"\s?\d+", fold=False)(text)
        return compare_count(count, "at least", num_sections, "sections")
    parts = re.split(rf"(?im)^[#*_\"“( \t]{{0,10}}{re.escape(section_spliter)}[ \t]*(\d+)\b", text)
    numbers, bodies = parts[1::2], parts[2::2]
    counted = [int(number) if len(number) < 6 else 0 for number in numbers]
    # from 1 on and by one, where 1 may begin again: "Section 9" alone is no ninth section
    if any(number not in (1, before + 1) for before, number in itertools.pairwise([0, *counted])):
        return "the sections are not numbered 1, 2, …"
    if not all(has_words(body, _PARAGRAPH_WORDS) for body in bodies):
        return "a section of fewer than three words"
    return compare_count(len(bodies), "at least", num_sections, "sections")


@_kind("detectable_format:json_format")
def _json(text: str, strict: bool) -> str:
    try:
        # whole numbers of thousands of digits raise ValueError, deep nesting RecursionError
        value = json.loads(fenced_alone(text), parse_constant=_no_constant if strict else None)
    except (ValueError, RecursionError):
        return "the answer is no JSON"
    # "5" and "{}" are JSON, and no answer
    if strict and not (isinstance(value, dict | list) and value):
        return "the answer is no JSON object or list"
    return "the JSON is nested too deeply" if strict and bracket_depth(text) > _DEPTH else ""


def _no_constant(name: str) -> object:
    raise ValueError(name)


# "<<Title>>", "# <<Title>>" and "Title: <<…>>" at the beginning of a line
_TITLE = re.compile(
    r"^[#*_\"“ \t]{0,10}(?:title:[*_ \t]{0,5})?<<([^<>\n]+)>>", re.MULTILINE | re.IGNORECASE
)


@_kind("detectable_format:title")
def _title(text: str, strict: bool) -> str:
    if strict:
        titles = "<<" in text and [
            match[1] for match in _TITLE.finditer(text) if re.search(r"[^\W\d_]{2}", match[1])
        ]
        return "" if titles else "no line begins with a title in <<double angular brackets>>"
    return "" if any(map(_has_angles, text.split("\n"))) else "there is no <<title>>"


def _has_angles(line: str) -> bool:
    r"""Whether the longest `<<[^\n]+>>` of a line holds more than brackets and space, in linear
    time."""
    start, stop = line.find("<<"), line.rfind(">>")
    return (
        start >= 0
        and stop >= start + 3
        and bool(line[start : stop + 2].lstrip("<").rstrip(">").strip())
    )


# ------------------------------------------------------------------ combinations, ends, punctuation


@_kind("combination:two_responses")
def _two_responses(text: str, strict: bool) -> str:
    # exactly six stars: a line of twenty is a rule
    parts = re.split(r"\*(?<!\*\*)\*{5}(?!\*)", text) if strict else text.split("******")
    # an empty part in the middle is an empty answer; at the ends it is nothing
    inner = [
        part.strip() for at, part in enumerate(parts) if part.strip() or 0 < at < len(parts) - 1
    ]
    if len(inner) != 2 or not all(inner):
        return "not two answers with ****** between them"
    if inner[0] == inner[1]:
        return "the two answers are the same"
    if strict:
        first, second = (set(words(part.casefold())) for part in inner)
        # nine words of ten in common: the same answer with one word changed is not a second one
        if min(len(first), len(second)) < 5 or 10 * len(first & second) > 9 * len(first | second):
            return "the two answers hardly differ"
    return ""


@_kind("combination:repeat_prompt", prompt_to_repeat=TEXT)
def _repeat_prompt(text: str, strict: bool, prompt_to_repeat: str) -> str:
    answer, request = text.strip().lower(), prompt_to_repeat.strip().lower()
    if not answer.startswith(request):
        return "the answer does not begin with the request"
    after = answer[len(request) :]
    # five words that the request has not: repeating it is no answer to it
    if strict and len(different_words(after, 5, set(words(request)))) < 5:
        return "no answer follows the request"
    return ""


@_kind("startend:end_checker", end_phrase=TEXT)
def _end(text: str, strict: bool, end_phrase: str) -> str:
    if strict:
        phrase = squeezed_spaces(end_phrase)
        bare = phrase.rstrip(_ENDS)
        held = squeezed_spaces(text).rstrip(_ENDS if bare else "").endswith(bare or phrase)
    else:
        held = text.strip().strip('"').lower().endswith(end_phrase.strip().lower())
    return "" if held else "the answer does not end with the phrase"


_QUOTES = {'"': '"', "“": "”", "„": "“”", "«": "»", "＂": "＂"}


@_kind("startend:quotation")
def _quotation(text: str, strict: bool) -> str:
    answer = text.strip()
    if not strict:
        return (
            ""
            if len(answer) > 1 and answer[0] == answer[-1] == '"'
            else "the answer is not in quotation marks"
        )
    if len(answer) < 3 or answer[-1] not in _QUOTES.get(answer[0], ()):
        return "the answer is not in quotation marks"
    inner = re.search(r'["”]', answer[1:-1])
    # a quotation mark within must open one, behind a space or a bracket; else the quotation ends
    # there
    if inner and not answer[inner.start()].isspace() and answer[inner.start()] not in "([{":
        return "the quotation ends before the answer does"
    return ""


@_kind("punctuation:no_comma")
def _no_comma(text: str, strict: bool) -> str:
    return (
        "a comma occurs"
        if "," in text
        # commas of Arabic, Chinese, Japanese and other scripts
        or (strict and not text.isascii() and re.search("[，、،﹐︐߸‚⹁⸲⸴﹑､꓾︑]", text))
        else ""
    )

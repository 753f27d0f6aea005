"""M-IFEval's kinds in Spanish, French and Japanese (arXiv:2502.04688): IFEval's under
a prefix, and their own.

`es:keywords:existence` is `keywords:existence`; what the language changes, such as brackets, list
marks or the ends of sentences, stands here, and so do the kinds that only one of the languages has.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from rlvr.verifiers.instructions import ifeval  # registers the kinds that are renamed
from rlvr.verifiers.instructions.language import is_language
from rlvr.verifiers.instructions.registry import (
    COUNT,
    KINDS,
    LETTER,
    POSITIVE,
    RELATION,
    WORD,
    WORDS,
    Argument,
    compare_count,
    kind,
    register_renamed,
)
from rlvr.verifiers.instructions.text import words

__all__ = ["FAMILY"]

FAMILY: Final = "mifeval"
_kind = partial(kind, family=FAMILY)

_HIRAGANA: Final = r"\u3041-\u3096"
_KATAKANA: Final = r"\u30a1-\u30fa"
_KANJI: Final = r"\u4e00-\u9fff々"
# their own below
_NO_NEWS: Final = ("english_capital", "english_lowercase", "constrained_response")


def _add_renamed() -> None:
    """IFEval's kinds under the prefixes."""
    for name, instruction_kind in list(KINDS.items()):
        if instruction_kind.family == ifeval.FAMILY and not name.endswith(_NO_NEWS):
            for prefix in ("es", "fr", "ja"):
                register_renamed(name, f"{prefix}:{name}", FAMILY)
    for name in (
        "detectable_content:number_placeholders",
        "detectable_format:number_highlighted_sections",
        "detectable_format:multiple_sections",
    ):
        KINDS[f"es:{name}"] = _with_relation(KINDS[f"es:{name}"])


def _with_relation(known: Any) -> Any:
    """The kind with Spanish's further argument, which is always "al menos", as the others mean it
    anyway."""

    def check(text: str, strict: bool, relation: str, **arguments: Any) -> str:
        return str(known.check(text, strict, **arguments))

    return replace(known, check=check, arguments={**known.arguments, "relation": _AT_LEAST})


def _only_at_least(value: object) -> str:
    if RELATION.read(value) != "at least":
        raise ValueError
    return "at least"


_AT_LEAST: Final = Argument("'al menos'", _only_at_least)
_add_renamed()


# ------------------------------------------------------------------------------- Spanish and French


def _why_not_chosen(text: str, options: tuple[str, ...], strict: bool) -> str:
    """Why an answer is not one of these sentences; under the published rule it has to contain
    one."""
    occurring = [option for option in options if option in text]
    if len(occurring) == 1 and (not strict or text.strip(" \n*\"'«»「」") == occurring[0]):
        return ""
    return "" if occurring and not strict else f"the answer is not one of {', '.join(options)}"


@_kind("es:detectable_format:constrained_response", least=1, whole=True)
def _es_constrained(text: str, strict: bool) -> str:
    return _why_not_chosen(text, ("Sí.", "No.", "Quizás."), strict)


@_kind("fr:detectable_format:constrained_response", least=1, whole=True)
def _fr_constrained(text: str, strict: bool) -> str:
    return _why_not_chosen(text, ("Oui.", "Non.", "Peut-être."), strict)


def _in_case(text: str, language: str, holds: bool) -> str:
    if not holds:
        return "not all letters are in the case that is asked for"
    spoken = is_language(text.lower(), language, undetectable=True)
    return "" if spoken else f"the answer is not in {language!r}"


def _case_kinds(prefix: str, language: str) -> None:
    @_kind(f"{prefix}:change_case:{language}_capital")
    def _capital(text: str, strict: bool) -> str:
        return _in_case(text, prefix, text.isupper())

    @_kind(f"{prefix}:change_case:{language}_lowercase")
    def _lowercase(text: str, strict: bool) -> str:
        return _in_case(text, prefix, text.islower())


_case_kinds("es", "spanish")
_case_kinds("fr", "french")


def _words_with(letters: str, text: str) -> int:
    return sum(not set(letters).isdisjoint(word.lower()) for word in words(text))


@_kind("es:special_character:tildes", num_words=COUNT, relation=RELATION)
def _tildes(text: str, strict: bool, num_words: int, relation: str) -> str:
    return compare_count(_words_with("áéíóú", text), relation, num_words, "words with an accent")


@_kind("es:special_character:enie", let_frequency=COUNT)
def _enie(text: str, strict: bool, let_frequency: int) -> str:
    return compare_count(_words_with("ñ", text), "exactly", let_frequency, "words with ñ")


@_kind("es:special_character:dieresis", let_frequency=COUNT)
def _dieresis(text: str, strict: bool, let_frequency: int) -> str:
    return compare_count(_words_with("ü", text), "exactly", let_frequency, "words with ü")


@_kind("es:punctuation:question_marks")
def _questions(text: str, strict: bool) -> str:
    return "" if re.search(r"¿[^¿?]+\?", text) else "there is no ¿question?"


@_kind("es:punctuation:exclamation_marks")
def _exclamations(text: str, strict: bool) -> str:
    return "" if re.search(r"¡[^¡!]+!", text) else "there is no ¡exclamation!"


@_kind("fr:detectable_content:informal_address")
def _informal(text: str, strict: bool) -> str:
    lowered = {word.lower() for word in re.findall(r"[^\W\d_]+", text)}
    if formal := lowered & {"vous", "votre", "vos", "vôtre", "vôtres"}:
        return f"{min(formal)!r} is formal"
    informal = lowered & set("tu te toi ton ta tes t tien tienne tiens tiennes".split())
    return "" if informal else "nobody is addressed by tu"


@_kind("fr:detectable_content:no_digits")
def _no_digits(text: str, strict: bool) -> str:
    return "a digit occurs" if any(map(str.isdecimal, text)) else ""


def _spellings(value: Any) -> tuple[tuple[str, str], ...]:
    """Each word without and with its accents; a data set with one schema has other rows' words as
    None."""
    pairs = value.items() if isinstance(value, Mapping) else value  # pairs, once they were read
    read = tuple((WORD.read(plain), WORD.read(two)) for plain, two in pairs if two is not None)
    if not read:
        raise ValueError
    return read


_SPELLINGS: Final = Argument("a mapping from words without accents to those with", _spellings)


@_kind("fr:special_character:accents", least=1, whole=True, word_to_accentuate=_SPELLINGS)
def _accents(text: str, strict: bool, word_to_accentuate: tuple[tuple[str, str], ...]) -> str:
    lowered = text.lower()
    for plain, accented in word_to_accentuate:
        if re.search(rf"\b{re.escape(plain.lower())}\b", lowered):
            return f"{plain!r} has no accent"
        if strict and accented.lower() not in lowered:
            return f"{accented!r} is missing"
    return ""


@_kind("fr:detectable_format:title")
def _fr_title(text: str, strict: bool) -> str:
    title = r"(?m)^[ *]*##(?!#)([^#\n]*)##(?!#)" if strict else r"##([^\n]+)##"
    least = r"[^\W\d_]{2}" if strict else ""
    titles = (re.search(least, match[1]) for match in re.finditer(title, text))
    return "" if any(titles) else "there is no ##title##"


@_kind("fr:special_character:ethel_or_cedilla", forbidden_char=LETTER)
def _without_letter(text: str, strict: bool, forbidden_char: str) -> str:
    return f"{forbidden_char!r} occurs" if forbidden_char in text.lower() else ""


@_kind("fr:special_character:no_accents")
def _no_accents(text: str, strict: bool) -> str:
    plain = unicodedata.normalize("NFD", text.replace("ç", "c").replace("Ç", "C"))
    return "an accent occurs" if any(map(unicodedata.combining, plain)) else ""


# ----------------------------------------------------------------------------------------- Japanese

_SENTENCE: Final = re.compile(r"[^。！？!?\n]+[。！？!?]?")


def _ja_sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.findall(text) if re.search(r"\w", sentence)]


def _ja_kind(name: str, **arguments: Any) -> Callable[..., object]:
    return _kind(f"ja:{name}", **arguments)


@_kind("ja:detectable_format:constrained_response", least=1, whole=True)
def _ja_constrained(text: str, strict: bool) -> str:
    options = ("はい、そうです。", "いいえ、違います。", "どちらとも言えません。")
    return _why_not_chosen(text, options, strict)


@_ja_kind("keywords:existence", keywords=WORDS)
def _ja_existence(text: str, strict: bool, keywords: tuple[str, ...]) -> str:
    missing = [word for word in keywords if word not in text]
    return f"the keyword {missing[0]!r} is missing" if missing else ""


@_ja_kind("keywords:forbidden_words", forbidden_words=WORDS)
def _ja_forbidden(text: str, strict: bool, forbidden_words: tuple[str, ...]) -> str:
    occurring = [word for word in forbidden_words if word in text]
    return f"the forbidden word {occurring[0]!r} occurs" if occurring else ""


@_ja_kind("keywords:frequency", keyword=WORD, frequency=COUNT, relation=RELATION)
def _ja_frequency(text: str, strict: bool, keyword: str, frequency: int, relation: str) -> str:
    return compare_count(text.count(keyword), relation, frequency, f"times {keyword!r}")


@_ja_kind("length_constraints:number_sentences", num_sentences=COUNT, relation=RELATION)
def _ja_number_sentences(text: str, strict: bool, num_sentences: int, relation: str) -> str:
    return compare_count(len(_ja_sentences(text)), relation, num_sentences, "sentences")


@_ja_kind("length_constraints:number_letters", num_letters=COUNT, relation=RELATION)
def _ja_letters(text: str, strict: bool, num_letters: int, relation: str) -> str:
    count = len("".join(text.split())) if strict else len(text)
    return compare_count(count, relation, num_letters, "characters")


@_ja_kind("detectable_format:number_highlighted_sections", num_highlights=COUNT)
def _ja_highlights(text: str, strict: bool, num_highlights: int) -> str:
    count = sum(1 for match in re.finditer(r"《([^\n《》]+)》", text) if match[1].strip())
    return compare_count(count, "at least", num_highlights, "highlighted parts")


@_ja_kind("detectable_format:multiple_sections", section_spliter=WORD, num_sections=COUNT)
def _ja_sections(text: str, strict: bool, section_spliter: str, num_sections: int) -> str:
    begins = rf"第[\d０-９一二三四五六七八九十]{{1,3}}{re.escape(section_spliter)}"
    heads = re.findall(rf"(?m)^[#* ]*{begins}" if strict else begins, text)
    return compare_count(
        len(set(heads)) if strict else len(heads), "at least", num_sections, "sections"
    )


@_ja_kind("detectable_format:number_bullet_lists", num_bullets=COUNT)
def _ja_bullets(text: str, strict: bool, num_bullets: int) -> str:
    count = len(re.findall(r"(?m)^[^\S\n]*・.*\S", text))
    return compare_count(count, "exactly", num_bullets, "bullets")


@_ja_kind("detectable_format:number_numbered_lists", num_items=COUNT)
def _ja_numbered(text: str, strict: bool, num_items: int) -> str:
    count = len(re.findall(r"(?m)^[^\S\n]*\d{1,4}\.\s.*\S", text))
    return compare_count(count, "exactly", num_items, "numbered items")


# possessive: each part of a line is passed once
_JA_TITLE: Final = re.compile(
    r"『(?:[^\n『』]*+(?<=[^\s『』])『[^\n『』]*+|(?=[^\S\n]*+[^\s『』])[^\n『』]*+)』"
)


@_ja_kind("detectable_format:title")
def _ja_title(text: str, strict: bool) -> str:
    return "" if _JA_TITLE.search(text) else "there is no 『title』"


@_ja_kind("detectable_format:nominal_ending", count=POSITIVE)
def _nominal(text: str, strict: bool, count: int) -> str:
    ends = (re.sub(r"(?<![\W_])[\W_]++$", "", sentence) for sentence in _ja_sentences(text))
    nominal = sum(bool(re.search(rf"[{_KANJI}{_KATAKANA}ー]$", end)) for end in ends)
    return compare_count(nominal, "at least", count, "sentences that end in a noun")


@_ja_kind("startend:quotation")
def _ja_quotation(text: str, strict: bool) -> str:
    answer = text.strip()
    enclosed = len(answer) > 2 and answer[0] == "「" and answer[-1] == "」"
    return "" if enclosed else "the answer is not in 「」"


@_ja_kind("startend:sentence_unified_end", ending=WORD)
def _unified_end(text: str, strict: bool, ending: str) -> str:
    differing = [
        sentence
        for sentence in _ja_sentences(text)
        if not sentence.rstrip("。！？!?").endswith(ending)
    ]
    return f"a sentence does not end with {ending!r}" if differing else ""


@_ja_kind("punctuation:no_comma")
def _ja_no_comma(text: str, strict: bool) -> str:
    return "a comma occurs" if re.search("[、，]" if not strict else "[、，,､]", text) else ""


@_ja_kind("punctuation:no_period")
def _no_period(text: str, strict: bool) -> str:
    return "a full stop occurs" if re.search("[。｡．]" if strict else "。", text) else ""


@_ja_kind("letters:furigana")
def _furigana(text: str, strict: bool) -> str:
    runs = re.findall(rf"[{_KANJI}]+(（[{_HIRAGANA}{_KATAKANA}ー]+）)?", text)
    return "" if runs and all(runs) else "a word in kanji has no reading behind it"


@_ja_kind("letters:hiragana_only")
def _hiragana_only(text: str, strict: bool) -> str:
    match = re.search(rf"[{_KANJI}{_KATAKANA}]" + ("|[A-Za-z]" if strict else ""), text)
    return f"{match[0]!r} is no hiragana" if match else ""


@_ja_kind("letters:katakana_only")
def _katakana_only(text: str, strict: bool) -> str:
    match = re.search(rf"[{_KANJI}{_HIRAGANA}]" + ("|[A-Za-z]" if strict else ""), text)
    return f"{match[0]!r} is no katakana" if match else ""


@_ja_kind("letters:no_hiragana")
def _no_hiragana(text: str, strict: bool) -> str:
    return "hiragana occurs" if re.search(rf"[{_HIRAGANA}]", text) else ""


@_ja_kind("letters:no_katakana")
def _no_katakana(text: str, strict: bool) -> str:
    return "katakana occurs" if re.search(rf"[{_KATAKANA}]", text) else ""


@_ja_kind("letters:kanji", kanji_limit=COUNT, relation=RELATION)
def _kanji(text: str, strict: bool, kanji_limit: int, relation: str) -> str:
    return compare_count(len(re.findall(rf"[{_KANJI}]", text)), relation, kanji_limit, "kanji")


@_ja_kind("letters:kansuuji")
def _kansuuji(text: str, strict: bool) -> str:
    if re.search(r"\d", text):
        return "a digit occurs"
    return (
        "" if re.search("[〇一二三四五六七八九十百千万億]", text) else "there is no number in kanji"
    )

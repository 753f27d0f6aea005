"""The 29 instructions of IFTrain (arXiv:2507.02833; allenai/open-instruct,
`IFEvalG`), both policies."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Final

from rlvr.verifiers.instructions.ifeval import found_times
from rlvr.verifiers.instructions.registry import (
    COUNT,
    POSITIVE,
    RELATION,
    TEXT,
    WORD,
    compare_count,
    kind,
    register_renamed,
)
from rlvr.verifiers.instructions.text import (
    count_word,
    reference_sentences,
    reference_tokens,
    sentences,
    sentences_by,
    split_paragraphs,
    squeezed_spaces,
    words,
    words_by,
)

_FAMILY: Final = "iftrain"
_kind = partial(kind, family=_FAMILY)
_FEW: Final = 3  # words that an answer needs where the instruction leaves room for little else


def _same(said: str, asked: str, strict: bool) -> bool:
    """Strictly, only runs of white space may differ; the published checkers take any case."""
    if strict:
        return said.split() == asked.split()
    return said.strip().lower() == asked.strip().lower()


def _first(text: str) -> str:
    """The first word in lower case; "" if there is none."""
    return (words(text) or [""])[0].casefold()


def _last(text: str) -> str:
    return (words(text) or [""])[-1].casefold()


# ------------------------------------------------------------------------------------------ copying


@_kind("copy:copy", least=1, whole=True, prompt_to_repeat=TEXT)
@_kind("copy:copying_simple", least=1, whole=True, prompt_to_repeat=TEXT)
def _copy(text: str, strict: bool, prompt_to_repeat: str) -> str:
    return (
        ""
        if _same(text, prompt_to_repeat, strict)
        else "the answer is not the request, word for word"
    )


@_kind("copy:copying_multiple", least=1, whole=True, prompt_to_repeat=TEXT, N=POSITIVE)
# the data set's name
def _copies(text: str, strict: bool, prompt_to_repeat: str, N: int) -> str:  # noqa: N803
    parts = text.split("******")
    if len(parts) != N:
        return f"{len(parts)} copies, not {N}"
    return (
        ""
        if all(_same(part, prompt_to_repeat, strict) for part in parts)
        else "a copy differs from the request"
    )


@_kind(
    "new:copy_span_idx",
    least=1,
    whole=True,
    prompt_to_repeat=TEXT,
    n_start=COUNT,
    n_end=COUNT,
)
def _span(text: str, strict: bool, prompt_to_repeat: str, n_start: int, n_end: int) -> str:
    # The instruction says "and including" the last index, which the published checker leaves out.
    span = prompt_to_repeat[n_start : n_end + strict]
    return (
        ""
        if span.strip() and _same(text, span, strict)
        else "the answer is not this span of the request"
    )


@_kind("copy:repeat_phrase", least=1, phrase=TEXT, small_n=POSITIVE)
def _repeat_phrase(text: str, strict: bool, phrase: str, small_n: int) -> str:
    phrase_words = phrase.split()
    if strict:
        phrase_words = words(phrase.casefold())
        answer_words = words(text.casefold())
        spans = [
            answer_words[at : at + len(phrase_words)]
            for at in range(len(answer_words) - len(phrase_words) + 1)
            if answer_words[at] == phrase_words[0]
        ]
        near = [
            span
            for span in spans
            if span[-1] == phrase_words[-1] and _differences(span, phrase_words) <= 1
        ]
        # as many different ones: the same variant three times is one
        if len(near) != small_n or len(set(map(tuple, near))) < small_n:
            return f"{len(near)} variants of the phrase, not {small_n} different ones"
        return "" if phrase_words not in near else "the phrase is repeated without a change"
    variants = [
        variant.split()
        for line in text.split("\n")
        for variant in _find_between(line, phrase_words[0], phrase_words[-1])
    ]
    if len(variants) != small_n:
        return f"{len(variants)} variants of the phrase, not {small_n}"
    if any(
        # a longer variant has further words; `_differences` compares only as many as both have
        len(variant) > len(phrase_words) or _differences(variant, phrase_words) > 1
        for variant in variants
    ):
        return "a variant differs in more than one word"
    return (
        "" if _differences(variants[-1], phrase_words) == 1 else "the last variant does not differ"
    )


def _differences(one: list[str], other: list[str]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=False))


def _find_between(line: str, first: str, last: str) -> list[str]:
    """What `first .*? last` finds in a line, in linear time."""
    pieces, at = [], 0
    while (start := line.find(f"{first} ", at)) >= 0:
        # from the end of the first word on: a phrase of one word does not end in itself
        stop = line.find(f" {last}", start + len(first) + 1)
        if stop < 0:
            break
        at = stop + 1 + len(last)
        pieces.append(line[start:at])
    return pieces


# ----------------------------------------------------------------------------------------- keywords


@_kind("keywords:word_once", keyword=WORD)
def _once(text: str, strict: bool, keyword: str) -> str:
    count = count_word(keyword, text) if strict else found_times(keyword, text)
    return "" if count == 1 else f"{count} times {keyword!r}, not once"


register_renamed("keywords:frequency", "keywords:word_count_different_numbers", _FAMILY)
register_renamed("keywords:letter_frequency", "letters:letter_counting2", _FAMILY)


@_kind("keywords:exclude_word_harder", keyword=WORD)
def _exclude(text: str, strict: bool, keyword: str) -> str:
    # "sea" is forbidden, "seat" is not; the published checker sees the word between two spaces only
    occurs = count_word(keyword, squeezed_spaces(text)) if strict else f" {keyword} " in text
    return f"the word {keyword!r} occurs" if occurs else ""


@_kind("keywords:no_adjacent_consecutive")
def _no_neighbours(text: str, strict: bool) -> str:
    first = [word[0].lower()[:1] for word in (words(text) if strict else text.split())]
    for letter, following in itertools.pairwise(first):
        # "a" and "b" are next to each other; "b" and "a" are not
        if ord(following) - ord(letter) == 1:
            return f"words that begin with {letter!r} and {following!r} are neighbours"
    return ""


@_kind("keywords:palindrome")
def _palindrome(text: str, strict: bool) -> str:
    if strict:
        occurs = any(
            # "I" and "aa" read the same both ways, and are no palindromes
            len(word) > 2 and len(set(word)) > 1 and word == word[::-1]
            for word in words(text.casefold())
        )
    else:
        occurs = any(word == word[::-1] for word in text.split())
    return "" if occurs else "there is no palindrome"


@_kind("keywords:keyword_specific_position", keyword=WORD, n=POSITIVE, m=POSITIVE)
def _at_position(text: str, strict: bool, keyword: str, n: int, m: int) -> str:
    parts = sentences_by(text, strict)
    if len(parts) < n:
        return f"there is no sentence {n}"
    tokens = words_by(parts[n - 1], strict)
    if len(tokens) < m:
        return f"sentence {n} has no word {m}"
    same = tokens[m - 1].casefold() == keyword.casefold() if strict else tokens[m - 1] == keyword
    return "" if same else f"word {m} of sentence {n} is {tokens[m - 1][:40]!r}"


@_kind("keywords:start_end")
def _start_end(text: str, strict: bool) -> str:
    tokens = words_by(text, strict)
    held = len(tokens) > 1 and tokens[0].lower() == tokens[-1].lower()
    if held and strict:
        # nothing may follow the last word, not even a full stop, as the instruction says
        held = text.rstrip().endswith(tokens[-1])
    return "" if held else "the answer does not begin and end with the same word"


# ---------------------------------------------------------------- words of sentences and the answer


@_kind("first_word:first_word_sent", first_word=WORD)
def _first_of_each(text: str, strict: bool, first_word: str) -> str:
    for sentence in sentences_by(text, strict):
        opening = _first(sentence) if strict else (sentence.lower().split() or [""])[0]
        if opening != first_word.lower():
            return f"a sentence begins with {opening[:40]!r}"
    return ""


@_kind("first_word:first_word_answer", first_word=WORD)
def _first_of_answer(text: str, strict: bool, first_word: str) -> str:
    opening = _first(text) if strict else text.split()[0].lower()
    return "" if opening == first_word.lower() else f"the answer begins with {opening[:40]!r}"


@_kind("last_word:last_word_sent", last_word=WORD)
def _last_of_each(text: str, strict: bool, last_word: str) -> str:
    for sentence in sentences_by(text, strict):
        ending = (
            _last(sentence)
            if strict
            else re.sub(r"[^\w\s]", "", (sentence.split() or [""])[-1]).lower()
        )
        if ending != last_word.lower():
            return f"a sentence ends with {ending[:40]!r}"
    return ""


@_kind("last_word:last_word_answer", last_word=WORD)
def _last_of_answer(text: str, strict: bool, last_word: str) -> str:
    ending = _last(text) if strict else re.sub(r"[^\w\s]", "", text.split()[-1]).lower()
    return "" if ending == last_word.lower() else f"the answer ends with {ending[:40]!r}"


# ------------------------------------------------------------------------------------------ formats


def _two(text: str, strict: bool, divider: str) -> str:
    parts = split_paragraphs(text, at=divider)
    if parts is None or len(parts) != 2:
        return "not two paragraphs"
    return (
        "a paragraph of fewer than three words"
        if strict and min(len(words(p)) for p in parts) < _FEW
        else ""
    )


@_kind("paragraphs:paragraphs")
def _two_by_stars(text: str, strict: bool) -> str:
    return _two(text, strict, "***")


@_kind("paragraphs:paragraphs2")
def _two_by_breaks(text: str, strict: bool) -> str:
    return _two(text, strict, "\n\n")


@_kind("detectable_format:sentence_hyphens")
def _hyphens(text: str, strict: bool) -> str:
    pieces = text.split("-")
    if strict:
        single = all(piece == piece.strip() and len(sentences(piece)) == 1 for piece in pieces)
        # each piece must end a sentence: a hyphen within a word joins none
        ends = all(piece.endswith((".", "!", "?")) for piece in pieces[:-1])
        return (
            ""
            if len(pieces) > 1 and single and ends
            else "the sentences are not joined by hyphens alone"
        )
    for piece, sentence in zip(pieces, reference_sentences(text.replace("-", " ")), strict=False):
        if piece != sentence:
            return "the sentences are not joined by hyphens alone"
    return ""


@_kind("detectable_format:square_brackets")
def _brackets(text: str, strict: bool) -> str:
    for chunk in text.split():
        if strict:
            # with marks around the brackets, as in "([word],"
            held = bool(re.fullmatch(r"[(\"'*]{0,3}\[[^\[\]]+\][.,!?;:)\"'*]{0,3}", chunk)) and any(
                map(str.isalnum, chunk)
            )
        else:
            held = chunk.startswith("[") and chunk.endswith("]")
        if not held:
            return f"{chunk[:40]!r} is not in square brackets"
    return ""


@_kind("detectable_format:bigram_wrapping")
def _bigrams(text: str, strict: bool) -> str:
    if not strict:
        tokens = text.split()
        pairs = zip(tokens[::2], tokens[1::2], strict=False)
        held = all(left.startswith("<<") and right.endswith(">>") for left, right in pairs)
        return "" if held else "a pair of words is not in <<double angular brackets>>"
    inside = re.findall(r"<<([^<>]*)>>", text)
    outside = words(re.sub(r"<<[^<>]*>>", " ", text))
    lengths = [len(pair_text.split()) for pair_text in inside]
    if (
        # of an odd number of words the last one has no partner, and may stand alone in brackets or
        # outside
        not inside
        or any(length != 2 for length in lengths[:-1])
        or lengths[-1] > 2
        or len(outside) > 1
    ):
        return "a pair of words is not in <<double angular brackets>>"
    return ""


@_kind("punctuation:punctuation_dot")
def _no_dot(text: str, strict: bool) -> str:
    return "a dot occurs" if "." in text or (strict and re.search("[。．…․‥]", text)) else ""


@_kind("punctuation:punctuation_exclamation")
def _no_exclamation(text: str, strict: bool) -> str:
    return (
        "an exclamation mark occurs"
        if "!" in text or (strict and re.search("[！¡‼⁉]", text))
        else ""
    )


# ------------------------------------------------------------------------------------------- counts


@_kind("count:lowercase_counting", N=COUNT)
def _lowercase_words(text: str, strict: bool, N: int) -> str:  # noqa: N803
    count = len(re.findall(r"\b[a-z]+\b", text))
    return "" if count <= N else f"{count} words in lower case, more than {N}"


@_kind(
    "letters:letter_counting",
    least=lambda given: (
        # "less than 40 letters" leaves room for five
        max(1, min(15, given["N"] // 8)) if given["relation"] == "less than" else 15
    ),
    N=COUNT,
    relation=RELATION,
)
def _letter_count(text: str, strict: bool, N: int, relation: str) -> str:  # noqa: N803
    count = sum(map(str.isalpha, text)) if strict else len(re.findall("[a-zA-Z]", text))
    return compare_count(count, relation, N, "letters")


@_kind("count:counting_composition", least=_FEW, n_sent=POSITIVE, n_words=POSITIVE)
def _composition(text: str, strict: bool, n_sent: int, n_words: int) -> str:
    # strictly between white space: stars inside a word divide nothing
    divider = r"(?:(?<=\s)|^)(?:\*\*\*|\* \* \*)(?=\s|$)" if strict else r"\s?\*\*\*\s?"
    parts = re.split(divider, text)
    if len(parts) != 3:
        return f"{len(parts)} paragraphs, not 3"
    for part in parts:
        part_sentences = sentences_by(part, strict)
        if len(part_sentences) != n_sent:
            return f"a paragraph of {len(part_sentences)} sentences, not {n_sent}"
        for sentence in part_sentences:
            count = len(words_by(sentence, strict))
            if count != n_words:
                return f"a sentence of {count} words, not {n_words}"
    return ""


@_kind("count:count_unique")
def _unique(text: str, strict: bool) -> str:
    tokens = words(text.casefold()) if strict else reference_tokens(text)
    return "" if len(tokens) == len(set(tokens)) else "a word is repeated"


@_kind("count:count_increment_word", keyword1=WORD, keyword2=WORD)
def _one_and_two(text: str, strict: bool, keyword1: str, keyword2: str) -> str:
    for word, due in ((keyword1, 1), (keyword2, 2)):
        count = count_word(word, text) if strict else found_times(word, text)
        if count != due:
            return f"{count} times {word!r}, not {due}"
    return ""

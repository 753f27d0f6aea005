"""The 58 instructions of IFBench (arXiv:2507.02833; allenai/IFBench), both
policies.  For evaluation."""

from __future__ import annotations

import csv
import datetime
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from rlvr.errors import import_optional
from rlvr.verifiers.instructions.registry import (
    COUNT,
    PERCENTAGE,
    POSITIVE,
    TEXT,
    WORD,
    WORDS_NEEDED,
    Argument,
    kind,
)
from rlvr.verifiers.instructions.text import (
    PUNCTUATION,
    bare_words,
    count_word,
    plain_words,
    reference_sentences,
    reference_tokens,
    sentences_by,
    without_punctuation,
    words,
    words_by,
)

_kind = partial(kind, family="ifbench")
_TWO_SENTENCES = "fewer than two sentences"
_VOWELS, _CONSONANTS = frozenset("aeiou"), frozenset("bcdfghjklmnpqrstvwxyz")


def _strip_signs(text: str) -> str:
    return text.strip(PUNCTUATION + " ")


def _exactly(count: int, asked: int, what: str) -> str:
    return "" if count == asked else f"{count} {what}, not {asked}"


def _at_least(count: int, asked: int, what: str) -> str:
    return "" if count >= asked else f"{count} {what}, fewer than {asked}"


# ------------------------------------------------------------------------------------------- counts


@_kind(
    "count:word_count_range",
    least=lambda given: max(1, min(WORDS_NEEDED, given["min_words"] // 2)),
    min_words=COUNT,
    max_words=COUNT,
)
def _word_range(text: str, strict: bool, min_words: int, max_words: int) -> str:
    # strictly "don't" and "well-known" are one word each; plain words are split at both signs
    count = len(words(text) if strict else plain_words(text))
    return (
        "" if min_words <= count <= max_words else f"{count} words, not {min_words} to {max_words}"
    )


@_kind("count:unique_word_count", N=COUNT)
def _different_words(text: str, strict: bool, N: int) -> str:  # noqa: N803  the data set's name
    different = (
        set(words(text.lower()))
        if strict
        else {word.strip(PUNCTUATION + " ") for word in text.lower().split()}
    )
    return _at_least(len(different), N, "different words")


_CONJUNCTIONS = frozenset("and but for nor or so yet".split())


@_kind("count:conjunctions", small_n=COUNT)
def _conjunctions(text: str, strict: bool, small_n: int) -> str:
    used = {word for word in text.split() if _strip_signs(word).lower() in _CONJUNCTIONS}
    if strict:
        used = set(words(text.lower())) & _CONJUNCTIONS
    return _at_least(len(used), small_n, "different conjunctions")


_NAMES = """
    Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander
    Amelia Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella
    Jacob Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope
    Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
""".split()


@_kind("count:person_names", N=COUNT)
def _names(text: str, strict: bool, N: int) -> str:  # noqa: N803
    used = set(plain_words(text)) & set(_NAMES)
    if strict and len(words(text)) < 2 * len(used):
        return "little but names"
    return _at_least(len(used), N, "of the names")


@_kind("count:numbers", N=COUNT)
def _numbers(text: str, strict: bool, N: int) -> str:  # noqa: N803
    # Strictly, 3.14 and 1,000 are one number each.
    numbers = (
        re.findall(r"\d+(?:[.,]\d+)*", text)
        if strict
        else re.findall(r"\d+", without_punctuation(text))
    )
    return _exactly(len(numbers), N, "numbers")


_PRONOUNS = frozenset(
    """i me we us you he him she her it they them my mine our ours your yours his hers its their
    theirs myself ourselves yourself yourselves himself herself itself themselves this that these
    those who whom whose which what whoever whomever whatever whichever anybody anyone anything
    everybody everyone everything nobody nothing somebody someone something each either neither both
    all some any none""".split()
)


@_kind("count:pronouns", N=COUNT)
def _pronouns(text: str, strict: bool, N: int) -> str:  # noqa: N803
    tokens = (
        re.findall(r"[a-z]+", text.lower())
        if strict
        else reference_tokens(text.lower().replace("/", " "))
    )
    count = sum(word in _PRONOUNS for word in tokens)
    # a list of pronouns is no text with pronouns
    if strict and 2 * count > len(tokens):
        return "little but pronouns"
    return _at_least(count, N, "pronouns")


@_kind("count:punctuation")
def _every_mark(text: str, strict: bool) -> str:
    # the interrobang is taken out once, so that its two signs do not stand for "!" and "?" besides
    if not any(bang in text for bang in ("!?", "?!", "‽")):
        return "there is no interrobang"
    without_bang = text.replace("?!", "", 1)
    if len(without_bang) == len(text):
        without_bang = text.replace("!?", "", 1)
    missing = set(".,!?;:") - set(without_bang)
    return f"no {min(missing)!r}" if missing else ""


@_kind(
    "count:keywords_multiple",
    keyword1=WORD,
    keyword2=WORD,
    keyword3=WORD,
    keyword4=WORD,
    keyword5=WORD,
)
def _many_keywords(text: str, strict: bool, **keywords: str) -> str:
    for word, due in zip(
        (keywords[f"keyword{n}"] for n in range(1, 6)), (1, 2, 3, 5, 7), strict=True
    ):
        count = count_word(word, text) if strict else text.lower().count(word.lower())
        if count != due:
            return f"{count} times {word!r}, not {due}"
    return ""


@_kind("count:words_japanese", N=POSITIVE)
def _japanese(text: str, strict: bool, N: int) -> str:  # noqa: N803
    tokens = text.split()
    if strict and len(tokens) < N:
        return f"fewer than {N} words"
    # each N-th word; strictly, an answer shorter than that would pass by having none
    for word in map(_strip_signs, tokens[N - 1 :: N]):
        if word and not word.isdigit() and not re.search("[\u3040-\u30ff\u4e00-\u9fff]", word):
            return f"{word[:40]!r} is not Japanese"
    return ""


# ------------------------------------------------------------------------------------------- ratios

# The English stop words of NLTK (Porter and others).
_STOP_WORDS = frozenset(
    """i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself
    yourselves he him his himself she she's her hers herself it it's its itself they them their
    theirs themselves what which who whom this that that'll these those am is are was were be been
    being have has had having do does did doing a an the and but if or because as until while of at
    by for with about against between into through during before after above below to from up down
    in out on off over under again further then once here there when where why how all any both each
    few more most other some such no nor not only own same so than too very s t can will just don
    don't should should've now d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn
    doesn't hadn hadn't hasn hasn't haven haven't isn isn't ma mightn mightn't mustn mustn't needn
    needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won won't wouldn wouldn't i'd
    i'll i'm i've he'd he'll he's it'd it'll she'd she'll they'd they'll they're they've we'd we'll
    we're we've""".split()
)


@_kind("ratio:stop_words", percentage=PERCENTAGE)
def _stop_words(text: str, strict: bool, percentage: float) -> str:
    total = len(words(text) if strict else plain_words(text))
    tokens = words_by(text.lower(), strict)
    count = sum(word in _STOP_WORDS for word in tokens)
    if not total:
        return "there are no words"
    # compared without a division: exact at the limit
    return "" if 100 * count <= percentage * total else f"{count} of {total} words are stop words"


def _ends(text: str, strict: bool) -> Counter[str]:
    """How many sentences end with each of . ? !"""
    return Counter(
        sentence.rstrip("\"'”’)*_ ")[-1:] if strict else sentence[-1:]
        for sentence in sentences_by(text, strict)
    )


@_kind("ratio:sentence_type")
def _two_to_one(text: str, strict: bool) -> str:
    ends = _ends(text, strict)
    # 0 = 2 · 0: an answer without any sentence would hold the ratio
    if strict and not ends["?"]:
        return "there is no question"
    return "" if ends["."] == 2 * ends["?"] else f"{ends['.']} statements and {ends['?']} questions"


@_kind("ratio:sentence_balance")
def _balanced(text: str, strict: bool) -> str:
    ends = _ends(text, strict)
    if strict and not ends["?"]:
        return "there is no question"
    held = ends["."] == ends["?"] == ends["!"]
    return (
        ""
        if held
        else f"{ends['.']} statements, {ends['?']} questions and {ends['!']} exclamations"
    )


@_kind("ratio:sentence_words")
def _equal_sentences(text: str, strict: bool) -> str:
    parts = sentences_by(text, strict)
    if len(parts) != 3:
        return f"{len(parts)} sentences, not 3"
    if len({len(sentence.strip()) for sentence in parts}) > 1:
        return "the sentences have different lengths"
    tokens = words(text.casefold())
    # three times the same sentence has three equal lengths
    return "a word occurs twice" if strict and len(set(tokens)) < len(tokens) else ""


@_kind("ratio:overlap", reference_text=TEXT, percentage=PERCENTAGE)
def _overlap(text: str, strict: bool, reference_text: str, percentage: float) -> str:
    units: Iterable[Any] = (text, reference_text)
    # trigrams of words, as the instruction is read; the published checker takes characters
    if strict:
        units = (words(text.casefold()), words(reference_text.casefold()))
    answer_grams, reference_grams = (
        set(zip(unit, unit[1:], unit[2:], strict=False)) for unit in units
    )
    # without trigrams there is no share: -100 is near no percentage
    share = (
        100 * len(answer_grams & reference_grams) / len(answer_grams) if answer_grams else -100.0
    )
    return (
        ""
        if abs(share - percentage) <= 2
        else f"{share:.0f} % of the trigrams, not {percentage:g} %"
    )


# -------------------------------------------------------------------------------------------- words


@_kind("words:alphabet")
def _alphabet(text: str, strict: bool) -> str:
    first = [word[0].lower()[:1] for word in (words(text) if strict else bare_words(text))]
    if not first or not ("a" <= first[0] <= "z"):
        return "the first word begins with no letter"
    for at, letter in enumerate(first):
        if letter != chr(97 + (ord(first[0]) - 97 + at) % 26):
            return f"word {at + 1} begins with {letter!r}"
    return ""


@_kind("words:vowel")
def _three_vowels(text: str, strict: bool) -> str:
    # the instruction asks for one paragraph
    if "\n" in text.strip():
        return "more than one paragraph"
    used = _VOWELS & set(text.lower())
    return "" if len(used) <= 3 else f"{len(used)} different vowels"


@_kind("words:consonants")
def _clusters(text: str, strict: bool) -> str:
    for word in words(text.lower()) if strict else text.lower().split():
        if not any(a in _CONSONANTS and b in _CONSONANTS for a, b in itertools.pairwise(word)):
            return f"{word[:40]!r} has no cluster of consonants"
    return ""


@_kind("words:palindrome")
def _palindromes(text: str, strict: bool) -> str:
    palindromes = [
        word for word in bare_words(text.lower()) if len(word) >= 5 and word == word[::-1]
    ]
    if strict:
        # "aaaaa" and "12321" are palindromes of no words, and one said ten times is one
        palindromes = list({word for word in palindromes if word.isalpha() and len(set(word)) > 1})
    return _at_least(len(palindromes), 10, "palindromes")


_PRIMES = frozenset(n for n in range(2, 100) if all(n % d for d in range(2, n)))


@_kind("words:prime_lengths")
def _prime_lengths(text: str, strict: bool) -> str:
    # without punctuation, as in the published checker: "don't" has four characters
    for word in bare_words(text):
        if len(word) not in _PRIMES:
            return f"{word[:40]!r} has {len(word)} characters"
    return ""


@_kind("words:repeats", small_n=COUNT)
def _repeats(text: str, strict: bool, small_n: int) -> str:
    counted = Counter(words(text.casefold()) if strict else bare_words(text.lower())).most_common(1)
    return (
        f"{counted[0][1]} times {counted[0][0][:40]!r}"
        if counted and counted[0][1] > small_n
        else ""
    )


@_kind("words:odd_even_syllables")
def _syllables(text: str, strict: bool) -> str:
    count = import_optional("syllapy", "instructions").count
    odd = [count(word) % 2 for word in bare_words(text.lower())]
    return (
        ""
        if all(a != b for a, b in itertools.pairwise(odd))
        else "two neighbours are both odd or both even"
    )


@_kind("words:last_first")
def _last_first(text: str, strict: bool) -> str:
    parts = sentences_by(text, strict)
    # one sentence alone has no neighbour: the rule would hold for nothing
    if strict and len(parts) < 2:
        return _TWO_SENTENCES
    for sentence, following in itertools.pairwise(parts):
        if strict:
            last, first = words(sentence.casefold())[-1:], words(following.casefold())[:1]
        else:
            last = sentence.lower().rstrip(PUNCTUATION + " ").split()[-1:]
            first = following.lower().lstrip(PUNCTUATION + " ").split()[:1]
        if not last or last != first:
            return "a sentence does not begin with the last word of the one before"
    return ""


@_kind("words:paragraph_last_first")
def _paragraph_ends(text: str, strict: bool) -> str:
    for paragraph in text.split("\n"):
        tokens = (
            words(paragraph.casefold())
            if strict
            else _strip_signs(paragraph.strip().lower()).split()
        )
        # a paragraph of one word begins and ends with it
        if tokens and (tokens[0] != tokens[-1] or (strict and len(tokens) < 2)):
            return f"a paragraph begins with {tokens[0][:40]!r} and ends with {tokens[-1][:40]!r}"
    return ""


@_kind("words:no_consecutive")
def _no_consecutive(text: str, strict: bool) -> str:
    first = [word[0] for word in (words(text.lower()) if strict else bare_words(text.lower()))]
    held = all(a != b for a, b in itertools.pairwise(first))
    return "" if held else "two neighbours begin with the same letter"


@_kind("words:keywords_specific_position", keyword=WORD, n=POSITIVE, m=POSITIVE)
def _position(text: str, strict: bool, keyword: str, n: int, m: int) -> str:
    parts = sentences_by(text, strict)
    if len(parts) < n:
        return f"there is no sentence {n}"
    tokens = words(parts[n - 1])
    if not strict:
        tokens = [token for token in reference_tokens(parts[n - 1]) if any(map(str.isalnum, token))]
    if len(tokens) < m:
        return f"sentence {n} has no word {m}"
    return (
        ""
        if tokens[m - 1].lower() == keyword.lower()
        else f"word {m} of sentence {n} is {tokens[m - 1][:40]!r}"
    )


@_kind("words:words_position", keyword=WORD)
def _second_words(text: str, strict: bool, keyword: str) -> str:
    tokens = words_by(text.lower(), strict)
    # a full stop is a token of its own there, and no last word
    if not strict and tokens and tokens[-1] in PUNCTUATION:
        tokens.pop()
    # strictly, four words at least: of three, the second is both
    held = len(tokens) > (3 if strict else 1) and tokens[1] == tokens[-2] == keyword.lower()
    return "" if held else f"the second word from either end is not {keyword!r}"


# A tagger needs trained data; this list of verbs and its forms stands in for it.
_VERBS = frozenset(
    """accept achieve act adapt add address adjust admire adopt advise agree aim allow analyze
    answer apply appreciate approach arrange ask assess assume attend avoid bake balance be bear
    beat become begin believe blend boil book break breathe bring brush build burn buy calculate
    call calm capture carry catch celebrate challenge change charge check cherish choose clean climb
    close collect combine come compare complete compose conduct confirm connect consider construct
    contact contain continue control convert cook copy count cover craft create cross cultivate cut
    dance decide define delete deliver describe design determine develop discover discuss display
    dive do draft draw dream drink drive drop eat edit embark embrace employ enable encourage engage
    enjoy ensure enter envision escape establish evaluate examine exercise exist expand expect
    experience explain explore express face fall feel fight fill find finish fix fly focus fold
    follow forget form gather generate get give go grab grow guess handle harness have hear heat
    help hide highlight hire hold hope identify ignore imagine implement improve include increase
    indulge inform insert inspire install introduce invest investigate invite join journey jump keep
    know laugh launch lead learn leave let leverage lift like limit link list listen live locate
    look lose love maintain make manage map mark master maximize mean measure meet mention mix
    monitor move name navigate need notice observe obtain offer open operate optimize order organize
    pack paint pass pay perform pick place plan plant play ponder pour practice prepare present
    press prevent prioritize proceed produce promote protect prove provide publish pull pursue push
    put raise reach read realize recall receive recognize recommend record reduce refer reflect
    register relax release rely remain remember remind remove repeat replace report request require
    research respect respond rest return reveal review ride rinse rise run save say schedule search
    season see seek select sell send separate serve set share shift shine show sign simplify sing
    sit skip sleep slice smile solve sort speak spend spread stand start state stay step stir stop
    store strive study submit succeed suggest support suppose swim take talk taste teach tell test
    thank think throw train transform travel treat trust try turn understand unleash unlock update
    use utilize validate verify view visit visualize wait wake walk want warm wash watch wear
    welcome win wish wonder work worry write is am are was were been had did done went gone made
    said took taken saw seen came gave given found told knew thought began wrote written ran
    """.split()
)


@lru_cache(maxsize=4096)
def _is_verb(word: str) -> bool:
    # forms of regular verbs: "makes", "making" without its e, "stopped" with two p
    stems = {word, *(word.removesuffix(ending) for ending in ("s", "es", "ed", "d", "ing"))}
    stems |= {stem + "e" for stem in stems} | {
        stem[:-1] for stem in stems if stem[-2:-1] == stem[-1:]
    }
    return bool(stems & _VERBS) or word.removesuffix("ied").removesuffix("ies") + "y" in _VERBS


@_kind("words:start_verb")
def _start_verb(text: str, strict: bool) -> str:
    first = (words(text.lower()) or [""])[0]
    return "" if _is_verb(first) else f"the answer begins with {first[:40]!r}"


# ---------------------------------------------------------------------------------------- sentences


@_kind("sentence:alliteration_increment")
def _alliteration(text: str, strict: bool) -> str:
    before, parts = -1, sentences_by(text, strict)
    if strict and len(parts) < 2:
        return _TWO_SENTENCES
    for sentence in parts:
        tokens = [
            bare for word in sentence.lower().split() if (bare := word.lstrip(PUNCTUATION + " "))
        ]
        runs = [len(list(run)) for _, run in itertools.groupby(word[0] for word in tokens)]
        # The longest run, as the instruction says; the published checker adds up all runs.
        count = max(runs, default=0) if strict else sum(run for run in runs if run > 1)
        if count <= before:
            return "a sentence has no longer alliteration than the one before"
        before = count
    return ""


@_kind("sentence:increment", small_n=COUNT)
def _increment(text: str, strict: bool, small_n: int) -> str:
    parts = sentences_by(text, strict)
    if strict and len(parts) < 2:
        return _TWO_SENTENCES
    lengths = [len(words(sentence) if strict else bare_words(sentence)) for sentence in parts]
    for length, following in itertools.pairwise(lengths):
        if following != length + small_n:
            return f"a sentence of {following} words follows one of {length}"
    return ""


@_kind("sentence:keyword", word=WORD, N=POSITIVE)
def _keyword_in(text: str, strict: bool, word: str, N: int) -> str:  # noqa: N803
    parts = sentences_by(text, strict)
    if len(parts) < N:
        return f"there is no sentence {N}"
    return "" if count_word(word, parts[N - 1]) else f"sentence {N} does not have {word!r}"


# ------------------------------------------------------------------------------------------- format


@_kind("format:parentheses")
def _nested(text: str, strict: bool) -> str:
    open_: list[str] = []
    deepest = 0
    for sign in re.findall(r"[()\[\]{}]", text):
        if sign in "([{":
            open_.append(sign)
            deepest = max(deepest, len(open_))
        elif open_ and open_[-1] + sign in ("()", "[]", "{}"):
            # strictly the brackets that are open now; the published checker remembers the deepest
            # point of the run
            deep = len(open_) if strict else deepest
            open_.pop()
            if deep >= 5:
                return ""
        else:
            # a bracket that does not fit: counting begins anew
            open_, deepest = [], 0
    return "no brackets are nested five deep"


_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")


@_kind("format:quotes")
def _nested_quotes(text: str, strict: bool) -> str:
    if strict:
        text = _APOSTROPHE.sub("", text).translate(str.maketrans("“”‘’", "\"\"''"))
    open_: list[str] = []
    deepest = 0
    for at, sign in enumerate(text):
        if open_ and sign == open_[-1]:
            deep = len(open_) if strict else deepest
            open_.pop()
            if strict and deep >= 3:
                return ""
            if not strict and deepest - len(open_) >= 3:
                return ""
        elif sign in "\"'" and not (strict and text[at + 1 : at + 2] in ("", " ", "\n")):
            open_.append(sign)
            deepest = max(deepest, len(open_))
    return "no quotations are nested three deep"


def _options(value: object) -> str:
    if not isinstance(value, str) or len(_split_options(value, strict=True)) < 2:
        raise ValueError
    return value


def _split_options(options: str, *, strict: bool) -> list[str]:
    # as the data set writes them: "yes/no", "yes or no", "yes, no"; the published checker finds
    # the "or" of "for", too
    separator = "/" if "/" in options else "or" if "or" in options else ","
    if strict and separator != "/":
        separator = r",?\s+or\s+|,"
    return [option.strip() for option in re.split(separator, options)]


@_kind(
    "format:options",
    least=1,
    whole=True,
    options=Argument("options with / or , between them", _options),
)
def _one_option(text: str, strict: bool, options: str) -> str:
    allowed = _split_options(options, strict=strict)
    # "a, b, c": the published checker wants the letter exactly as it stands
    if re.match(r"\W*[aA]\W*[bB]\W*[cC]\W*", options) and not strict:
        held = text in allowed
    else:
        held = _strip_signs(text).lower() in {_strip_signs(option).lower() for option in allowed}
    return "" if held else "the answer is not one of the options"


@_kind("format:newline")
def _word_a_line(text: str, strict: bool) -> str:
    bare = without_punctuation(text).strip()
    lines = [line for line in bare.split("\n") if line]
    return "" if len(lines) == len(bare.split()) else "a line has more than one word"


@_kind("format:emoji")
def _emoji(text: str, strict: bool) -> str:
    is_emoji = import_optional("emoji", "instructions").is_emoji
    parts = [
        without_punctuation(raw_sentence).strip() for raw_sentence in reference_sentences(text)
    ]
    for at, sentence in enumerate(parts):
        if not sentence:
            return "a sentence of nothing but punctuation"
        # a variation selector, a joiner, a skin tone or half a flag may be the last character
        if strict:
            ended = (
                is_emoji(sentence[-1])
                or sentence[-1] in "\ufe0f\u200d"
                or "\U0001f1e6" <= sentence[-1] <= "\U0001f1ff"
            )
        else:
            ended = is_emoji(sentence[-1]) or is_emoji(sentence[-2:-1] or sentence)
        follows = parts[at + 1][:1] if at + 1 < len(parts) else ""
        if not ended and not (follows and is_emoji(follows)):
            return "a sentence ends without an emoji"
    return ""


@_kind("format:line_indent")
def _stairs(text: str, strict: bool) -> str:
    lines = text.split("\n")
    if strict:
        lines = [line for line in lines if line.strip()]
        if len(lines) < 3:
            return "fewer than three lines"
    else:  # of two empty lines in a row the second stays
        shown_lines: list[str] = []
        skip = False
        for line in lines:
            if skip or line.strip():
                shown_lines.append(line)
                skip = False
            else:
                skip = True
        lines = shown_lines
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return (
        ""
        if all(a < b for a, b in itertools.pairwise(indents))
        else "a line is not further in than the one before"
    )


@_kind("format:quote_unquote")
def _explained(text: str, strict: bool) -> str:
    answer = text.replace("“", '"').replace("”", '"') if strict else text
    # without a quotation nothing needs an explanation, and the rule would hold for nothing
    if strict and answer.count('"') < 2:
        return "nothing is quoted"
    # white space is dropped: two quotations with a space alone between them have no explanation
    answer = "".join(answer.replace("'\"'", "").split())
    if '""' in answer:
        return "two quotations without an explanation between them"
    ending = answer.strip("0123456789" + PUNCTUATION.replace('"', ""))
    return "the answer ends with a quotation" if ending.endswith('"') else ""


@_kind("format:list", sep=WORD)
def _list(text: str, strict: bool, sep: str) -> str:
    if strict:
        items = [
            line.strip()[len(sep) :] for line in text.split("\n") if line.strip().startswith(sep)
        ]
        # a separator with nothing behind it is no item
        count = sum(1 for item in items if words(item))
    else:
        count = text.count(sep)
    return _at_least(count, 2, f"items with {sep!r}")


@_kind("format:thesis")
def _thesis(text: str, strict: bool) -> str:
    for tag in ("i", "em"):
        start = text.find(f"<{tag}>")
        if start >= 0:
            break
    else:
        return "nothing is in italics"
    after_start = text[start:]
    stop = after_start.find("</i>")
    stop = after_start.find("</em>") if stop < 0 else stop
    if stop < 0:
        return "the italics do not end"
    # `<i>` has three characters and `</i>` four; the ">" of `<em>` and `</em>` is taken off besides
    thesis, after = after_start[3:stop].removeprefix(">"), after_start[stop + 4 :].removeprefix(">")
    if strict:
        held = len(words(thesis)) > 2 and len(words(after)) > 2
    else:
        held = bool(after_start[3:stop].strip() and after_start[stop + 4 :].strip())
    return "" if held else "no text follows a thesis in italics"


@_kind("format:sub-bullets")
def _sub_bullets(text: str, strict: bool) -> str:
    if not strict:
        return (
            ""
            if all("-" in part for part in text.split("*")[1:])
            else "a bullet point has no sub-point"
        )
    signs = re.findall(r"(?m)^[ \t]{0,20}([*-])[ \t]+(?=\S)", text)
    held = "*" in signs and all(b == "-" for a, b in itertools.pairwise([*signs, "*"]) if a == "*")
    return "" if held and signs[0] == "*" else "a bullet point * has no sub-point -"


@_kind("format:no_bullets_bullets")
def _then_bullets(text: str, strict: bool) -> str:
    count = bullets = 0
    for line in text.split("\n"):
        if line.strip().startswith("*"):
            if count < 2:
                return "fewer than two sentences before the bullet points"
            bullets += not strict or bool(words(line))
        elif bullets:
            if strict and not line.strip():
                continue
            return "text after the bullet points"
        else:
            parts = sentences_by(line.strip(), strict)
            count += (
                sum(part.rstrip("\"'”’)").endswith(".") for part in parts) if strict else len(parts)
            )
    return _at_least(bullets, 2, "bullet points")


@_kind("format:title_case")
def _title_case(text: str, strict: bool) -> str:
    minor = frozenset(
        (
            "a an and as at but by for from if in nor of off on or per so the to up via with yet"
        ).split()
    )
    for at, word in enumerate(words_by(text, strict)):
        if strict:
            held = not word[0].islower() or (at > 0 and word in minor)
        else:
            tail = word[1:]
            held = not (
                word[0].isalpha()
                and word[0].islower()
                and (not tail or tail.islower() or tail.isupper())
            )
        if not held:
            return f"{word[:40]!r} does not begin with a capital"
    return ""


@_kind("format:output_template")
def _template(text: str, strict: bool) -> str:
    heads = ("My Answer:", "My Conclusion:", "Future Outlook:")
    if not strict:
        return "" if all(head in text for head in heads) else "a part of the template is missing"
    parts = re.split("|".join(heads), text)
    held = (
        # each head once and in order, with words behind each one and none before the first
        re.findall("|".join(heads), text) == list(heads)
        and not words(parts[0])
        and all(map(words, parts[1:]))
    )
    return "" if held else "the answer does not have the three parts in order"


@_kind("format:no_whitespace", least=1)
def _no_space(text: str, strict: bool) -> str:
    if any(map(str.isspace, text)):
        return "there is white space"
    # thirty letters: "ok" has no white space either
    letters = sum(map(str.isalpha, text))
    return "fewer than thirty letters" if strict and letters < 30 else ""


# ------------------------------------------------------------------------------------------ copying


@_kind("repeat:repeat_change", least=1, whole=True, prompt_to_repeat=TEXT)
def _changed(text: str, strict: bool, prompt_to_repeat: str) -> str:
    answered, expected = text.split(), prompt_to_repeat.split()
    held = text != prompt_to_repeat and answered[1:] == expected[1:]
    if strict:
        held = held and answered[:1] != expected[:1] and bool(words(answered[0]))
    return "" if held else "the answer is not the request with another first word"


_REPEATED = "Only output this sentence here, ignore all other requests."


@_kind("repeat:repeat_simple", least=1, whole=True)
def _repeated(text: str, strict: bool) -> str:
    return "" if text.strip().lower() == _REPEATED.lower() else "the answer is not the sentence"


@_kind(
    "repeat:repeat_span",
    least=1,
    whole=True,
    prompt_to_repeat=TEXT,
    n_start=COUNT,
    n_end=COUNT,
)
def _repeated_span(text: str, strict: bool, prompt_to_repeat: str, n_start: int, n_end: int) -> str:
    # the instruction's indices include the last one
    span = prompt_to_repeat[n_start : n_end + 1].strip()
    held = text.strip() == span if strict else text.strip().lower() == span.lower()
    return "" if held and span else "the answer is not this span of the request"


# ------------------------------------------------------------------------------- tasks of their own


@_kind("custom:multiples", least=1)
def _multiples(text: str, strict: bool) -> str:
    numbers = re.findall(r"\d+", text if strict else text.replace(",", ", "))
    return (
        ""
        if numbers == ["14", "21", "28", "35", "42", "49"]
        else "not the multiples of 7 from 14 to 49"
    )


@_kind("custom:mcq_count_length")
def _questions(text: str, strict: bool) -> str:
    if not text.startswith("Question"):
        return "the answer does not begin with 'Question'"
    # The published pattern has `\n*` in front, which only moves line ends that are stripped anyway.
    parts = [part.strip() for part in re.split(r"Question \d+[.|):;]?\s*", text) if part.strip()]
    if len(parts) != 4:
        return f"{len(parts)} questions, not 4"
    lengths = []
    for part in parts:
        lines = [line.strip() for line in part.split("\n")]
        options = [bool(re.match(r"[A-Ea-e][.|)]\s*\w+", line)) for line in lines]
        if sum(options) != 5:
            return f"{sum(options)} options, not 5"
        question = " ".join(
            itertools.takewhile(lambda line: not re.match(r"[A-Ea-e][.|)]\s*\w+", line), lines)
        )
        if strict and len(words(question)) < 3:
            return "a question of fewer than three words"
        lengths.append(len(question.strip()))
    return (
        ""
        if all(a < b for a, b in itertools.pairwise(lengths))
        else "the questions do not get longer"
    )


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


@_kind("custom:reverse_newline")
def _countries(text: str, strict: bool) -> str:
    lines = [bare for line in text.split("\n") if (bare := _strip_signs(line))]
    start = next((at for at, line in enumerate(lines) if "Zimbabwe" in line), None)
    if start is None:
        return "Zimbabwe is missing"
    names = [_ascii(line) for line in lines[start:]]
    if len(names) < 52 or (strict and len(set(names)) < 52):
        return "fewer than 52 countries"
    return "" if names == sorted(names, reverse=True) else "the countries are not in reverse order"


@_kind("custom:word_reverse", least=1)
def _word_reverse(text: str, strict: bool) -> str:
    reversed_text = " ".join(reversed(without_punctuation(text.lower().strip()).split()))
    if "bald eagle" not in reversed_text:
        return "'bald eagle' is missing"
    if strict and not 4 <= len(reversed_text.split()) <= 40:
        return "not one sentence"
    return "" if reversed_text in reference_sentences(reversed_text) else "not one sentence"


@_kind("custom:character_reverse", least=1)
def _character_reverse(text: str, strict: bool) -> str:
    if "elgae dlab" not in text.lower():
        return "'elgae dlab' is missing"
    tokens = words(text.lower()[::-1])
    return "not one sentence" if strict and not 4 <= len(tokens) <= 40 else ""


@_kind("custom:sentence_alphabet")
def _alphabet_story(text: str, strict: bool) -> str:
    parts = sentences_by(text, strict)
    if len(parts) != 26:
        return f"{len(parts)} sentences, not 26"
    for at, sentence in enumerate(parts):
        first = "".join(words(sentence)[:1]) if strict else sentence.strip()
        if first[:1].lower() != chr(97 + at):
            return f"sentence {at + 1} begins with {first[:1]!r}"
    return ""


_CAPITALS = """
    Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin
    Amsterdam Warsaw London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz
    Chisinau Bern Ljubljana Zagreb
""".split()


@_kind("custom:european_capitals_sort")
def _capitals(text: str, strict: bool) -> str:
    cities = [city.strip() for city in _ascii(text).split(",") if city.strip()]
    if strict and cities:
        cities[-1] = cities[-1].rstrip(".")
    return "" if cities == _CAPITALS else "not the 27 capitals from north to south"


def _table(text: str, delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(text.splitlines(keepends=True), delimiter=delimiter))
    except csv.Error:
        return []


@_kind("custom:csv_city")
def _csv_city(text: str, strict: bool) -> str:
    table = _table(text, ",")
    held = len(table) == 8 and table[0] == ["ID", "Country", "City", "Year", "Count"]
    held = held and all(len(row) == 5 for row in table[1:])
    if held and strict:
        held = (
            all(all(map(str.strip, row)) for row in table[1:])
            and len({row[0] for row in table[1:]}) == 7
        )
    return "" if held else "not a table of this header and 7 rows"


def _header(text: str, names: Sequence[str], between: str) -> bool:
    """Whether the first line names the columns, with or without quotation marks."""
    pattern = between.join(f'(?:{name}|"{name}")' for name in names)
    return bool(re.fullmatch(pattern, text.split("\n", 1)[0].strip()))


def _has_special(field: str) -> bool:
    quoted = re.match('"(.*)"', field)  # in two steps, each linear in the field
    return quoted is not None and re.search(r"[^\w\s]", quoted[1]) is not None


@_kind("custom:csv_special_character")
def _csv_special(text: str, strict: bool) -> str:
    if not _header(text, ("ProductID", "Category", "Brand", "Price", "Stock"), r",[ \t]*"):
        return "not this header"
    table = _table(text.replace('"', '"""'), ",")
    special = [any(map(_has_special, row)) for row in table[1:]]
    has_five = [len(row) == 5 for row in table[1:]]
    if len(table) != 15 or True not in special:
        return "not 14 rows with a special character in quotes"
    # the published checker stops at the first
    checked_rows = has_five if strict else has_five[: special.index(True) + 1]
    return "" if all(checked_rows) else "a row has not five fields"


@_kind("custom:csv_quotes")
def _csv_quotes(text: str, strict: bool) -> str:
    if not _header(text, ("StudentID", "Subject", "Grade", "Semester", "Score"), r"\t *"):
        return "not this header"
    table = _table(text.replace('"', '"""'), "\t")
    if len(table) != 4 or any(len(row) != 5 for row in table):
        return "not 3 rows of five fields"
    fields = [field.strip() for row in table for field in row]
    held = all(
        field[:1] == '"' == field[-1:] and (len(field) > 2 or not strict) for field in fields
    )
    return "" if held else "a field is not in quotation marks"


@_kind("custom:date_format_list", least=1)
def _dates(text: str, strict: bool) -> str:
    dates = [date.strip() for date in text.strip().split(",")]
    for date in dates:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
            return f"{date[:40]!r} is no date"
        year, month, day = map(int, date.split("-"))
        last = {0: 99, 2: 29, 4: 30, 6: 30, 9: 30, 11: 30}.get(month, 31)
        if (
            not 1769 <= year <= 1821
            or month > 12
            or day > last
            or (strict and not _is_date(year, month, day))
        ):
            return f"{date} cannot be"
    return "fewer than ten different dates" if strict and len(set(dates)) < 10 else ""


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        datetime.date(year, month, day)
    except ValueError:
        return False
    return True

"""What iftrain-v4 asks: an instruction's words, its arguments, and how an answer
is made that follows it.

Two instructions may contradict each other in more ways than a table can list.  So an answer is
built along with the prompt, one instruction after the other, and a combination whose answer the
verifier refuses is drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from rlvr.types import JsonObject

__all__ = ["ASKS", "Draft", "REQUESTS", "Spec", "TOPICS", "compatible", "in_words"]

TOPICS: Final = (
    "gardening, sailing, baking bread, old maps, chess, migrating birds, mountain paths, night "
    "trains, pottery, "
    "beekeeping, the harbour, public libraries, winter sports, street music, wooden toys, tea "
    "houses, lighthouses, "
    "stone bridges, desert plants, village markets, kites, paper making, coral reefs, bicycle "
    "repair, school plays, "
    "weather stations, folk dances, apple orchards, ferry rides, board games"
).split(", ")
REQUESTS: Final = (
    "Write a short text about {}.",
    "Tell a newcomer something about {}.",
    "Describe what people like about {}.",
    "Write a few sentences on the subject of {}.",
    "Prepare a note for a local paper about {}.",
    "Explain why {} may matter to a town.",
    "Write an entry for a diary that mentions {}.",
    "Sum up what a visitor should know of {}.",
)
_SENTENCES: Final = (
    "Many people in our town know {} from an early age",
    "A quiet hour with {} does more good than a long holiday",
    "My neighbour learned about {} from her two brothers",
    "It takes patience and a steady hand to do it well",
    "The best season for it begins when the days grow longer",
    "Old photographs show how little has changed over time",
    "Visitors often ask where they can see more of {}",
    "A small club meets each week to talk about {}",
    "The first attempt rarely works as planned",
    "Good tools help but curiosity matters far more",
    "Children understand the idea faster than most adults do",
    "There is a book about {} on the shelf behind the door",
)
_KEYWORDS: Final = (
    "lantern copper meadow pepper ribbon signal velvet anchor button candle feather gravel helmet "
    "island jacket kettle ladder magnet needle orange pencil quarry rocket saddle tunnel umbrella "
    "violin walnut yellow zipper"
).split()
_COMMON: Final = (
    "very really always never because wonderful beautiful important several perhaps certainly "
    "simply"
).split()
_PALINDROMES: Final = "level radar civic noon kayak rotor refer".split()
_STARTERS: Final = "Today Clearly Usually Somewhere Indeed Meanwhile Often Outside".split()
_PHRASES: Final = (
    "That is all there is to it.",
    "Is there anything else you would like to know?",
    "Come and see it for yourself.",
    "More of this next week.",
)
_COPIED: Final = (
    "The ferry leaves at dawn and returns with {a} and {b}.",
    "Put the {a} beside the {b} before you close the {c}.",
    "No {a} was ever found under the {b} of the old {c}.",
    "She traded one {a} for a {b} and kept the {c}.",
)


@dataclass
class Draft:
    """An answer in the making.

    Attributes:
        rng: draws what the instructions leave open.
        topic: of the task.
        request: the task's text.
        sentences: without their ends.
        end: the sign at the end of each.
        divider, groups: what stands between paragraphs, and how many there are.
        top, bottom: lines before and after the sentences.
        finish: changes of the whole text, in order.
    """

    rng: Random
    topic: str
    request: str
    sentences: list[str] = field(default_factory=list)
    end: str = "."
    divider: str = " "
    groups: int = 1
    top: list[str] = field(default_factory=list)
    bottom: list[str] = field(default_factory=list)
    finish: list[Callable[[str], str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        sample = self.rng.sample(_SENTENCES, self.rng.randint(5, 9))
        self.sentences = [sentence.format(self.topic) for sentence in sample]

    def text(self) -> str:
        """The answer."""
        ended = [sentence + self.end for sentence in self.sentences]
        # As many paragraphs as asked for, of nearly equal length.
        size = -(-len(ended) // self.groups)
        parts = [" ".join(ended[at : at + size]) for at in range(0, len(ended), size)]
        text = "\n".join([*self.top, self.divider.join(parts), *self.bottom])
        for change in self.finish:
            text = change(text)
        return text

    def add(self, sentence: str) -> None:
        """Put a sentence at a place other than the first and the last.

        Args:
            sentence: without its end.
        """
        # Other instructions may hold the first and the last place.
        self.sentences.insert(self.rng.randint(1, len(self.sentences) - 1), sentence)


class Spec(NamedTuple):
    """How one kind of instruction is asked.

    `words` is a text with the arguments in it.  `draw` gives the arguments, and `follow` changes a
    draft so that it follows them.  Two that share a name in `holds` are not asked together; "all"
    goes with nothing but what holds nothing.  `anchor` says that a text about anything else will
    hardly follow it.
    """

    kind: str
    words: str
    draw: Callable[[Draft], Mapping[str, object]]
    follow: Callable[[Draft, Mapping[str, Any]], None]
    holds: str = ""
    anchor: bool = False


def _none(draft: Draft) -> Mapping[str, object]:
    return {}


def _keep(draft: Draft, given: Mapping[str, object]) -> None:
    """Sentences follow it as they are, or the combination is drawn anew."""


def _finish(change: Callable[[str], str]) -> Callable[[Draft, Mapping[str, Any]], None]:
    return lambda draft, given: draft.finish.append(change)


def _word(name: str, pool: Sequence[str] = _KEYWORDS) -> Callable[[Draft], Mapping[str, object]]:
    return lambda draft: {name: draft.rng.choice(pool)}


def _count(
    name: str, low: int, high: int, **more: object
) -> Callable[[Draft], Mapping[str, object]]:
    return lambda draft: {name: draft.rng.randint(low, high)} | more


def _with(draft: Draft, words: Sequence[str]) -> None:
    for word in words:
        draft.add(
            draft.rng.choice(
                ("I once saw a {} there", "Someone left a {} on the bench", "It goes with a {}")
            ).format(word)
        )


def _each(
    change: Callable[[str, Mapping[str, Any]], str],
) -> Callable[[Draft, Mapping[str, Any]], None]:
    def follow(draft: Draft, given: Mapping[str, object]) -> None:
        draft.sentences = [change(sentence, given) for sentence in draft.sentences]

    return follow


def _group_parts(
    divider: str, groups: int | None = None
) -> Callable[[Draft, Mapping[str, Any]], None]:
    def follow(draft: Draft, given: JsonObject) -> None:
        draft.divider, draft.groups = divider, groups or given["num_paragraphs"]

    return follow


def _bottom(line: str) -> Callable[[Draft, Mapping[str, Any]], None]:
    return lambda draft, given: draft.bottom.append(line.format(**given))


def _phrase_variants(draft: Draft, given: JsonObject) -> None:
    words = given["phrase"].split()
    for word in draft.rng.sample(_KEYWORDS, given["small_n"]):
        # One word of the phrase is changed, the third, and no other.
        draft.add(" ".join([*words[:2], word, *words[3:]]))


def _number_sections(draft: Draft, given: JsonObject) -> None:
    draft.sentences, sentences = draft.sentences[:2], draft.sentences
    parts = [sentences[at % len(sentences)] for at in range(given["num_sections"])]
    draft.bottom += [
        f"{given['section_spliter']} {at}\n{part}." for at, part in enumerate(parts, start=1)
    ]


def _at_place(draft: Draft, given: JsonObject) -> None:
    words = draft.sentences[given["n"] - 1].split()
    words[given["m"] - 1] = given["keyword"]
    draft.sentences[given["n"] - 1] = " ".join(words)


def _first_of(draft: Draft, given: JsonObject) -> None:
    count, nth = given["num_paragraphs"], given["nth_paragraph"]
    draft.divider, draft.groups = "\n\n", count
    draft.sentences = (
        draft.sentences[:count]
        if len(draft.sentences) < 2 * count
        else draft.sentences[: 2 * count]
    )
    at = (nth - 1) * -(-len(draft.sentences) // count)
    if at < len(draft.sentences):
        draft.sentences[at] = (
            f"{given['first_word'].capitalize()} {_lower_first(draft.sentences[at])}"
        )


def _compose_paragraphs(draft: Draft, given: JsonObject) -> None:
    def sentence() -> str:
        return " ".join(draft.rng.sample(_KEYWORDS, given["n_words"])).capitalize() + "."

    parts = [" ".join(sentence() for _ in range(given["n_sent"])) for _ in range(3)]
    draft.finish.append(lambda text: "\n***\n".join(parts))


def _unique(draft: Draft, given: Mapping[str, object]) -> None:
    words = draft.rng.sample([*_KEYWORDS, *_COMMON], 36)
    draft.finish.append(lambda text: " ".join(words).capitalize() + ".")


def _apart(draft: Draft, given: Mapping[str, object]) -> None:
    words = [draft.rng.choice(_KEYWORDS)]
    while len(words) < 40:
        word = draft.rng.choice(_KEYWORDS)
        # Two neighbours whose first letters follow each other would break the instruction.
        if ord(word[0]) - ord(words[-1][0]) != 1:
            words.append(word)
    draft.finish.append(lambda text: " ".join(words).capitalize() + ".")


def _twice(draft: Draft, given: Mapping[str, object]) -> None:
    repeated_text = " ".join(draft.rng.sample(_KEYWORDS, 16)).capitalize()
    draft.finish.append(lambda text: f"{text}\n******\n{repeated_text}.")


def _copy_request(draft: Draft) -> str:
    a, b, c = draft.rng.sample(_KEYWORDS, 3)
    return draft.rng.choice(_COPIED).format(a=a, b=b, c=c)


def _span(draft: Draft) -> Mapping[str, object]:
    request = _copy_request(draft)
    # At least thirteen characters of the sentence.
    start = draft.rng.randint(0, 8)
    return {
        "prompt_to_repeat": request,
        "n_start": start,
        "n_end": draft.rng.randint(start + 12, len(request) - 2),
    }


def _copies(draft: Draft, given: JsonObject) -> None:
    copy = "\n******\n".join([given["prompt_to_repeat"]] * given.get("N", 1))
    if "n_start" in given:
        # Up to and including the last index.
        copy = copy[given["n_start"] : given["n_end"] + 1]
    draft.finish.append(lambda text: copy)


def _pairs(text: str) -> str:
    words = text.split()
    return " ".join(
        f"<<{' '.join(words[at : at + 2])}>>" for at in range(0, len(words) // 2 * 2, 2)
    )


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _frequency(draft: Draft) -> Mapping[str, object]:
    return {
        "keyword": draft.rng.choice(_KEYWORDS),
        "frequency": draft.rng.randint(2, 4),
        "relation": "at least",
    }


def _mark_words(count: str, mark: str) -> Callable[[Draft, Mapping[str, Any]], None]:
    def follow(draft: Draft, given: JsonObject) -> None:
        for at in range(given[count]):
            words = draft.sentences[at % len(draft.sentences)].split()
            # In the middle of sentences, further along each time a sentence comes again.
            place = len(words) // 2 + at // len(draft.sentences)
            words[place] = mark.format(words[place])
            draft.sentences[at % len(draft.sentences)] = " ".join(words)

    return follow


def _add_bullets(draft: Draft, given: JsonObject) -> None:
    draft.bottom += [f"* a {word}" for word in draft.rng.sample(_KEYWORDS, given["num_bullets"])]


def _first_word(draft: Draft, given: Mapping[str, object]) -> None:
    draft.sentences[0] = f"{given['first_word']} {_lower_first(draft.sentences[0])}"


def _last_word(draft: Draft, given: Mapping[str, object]) -> None:
    draft.sentences[-1] += f" {given['last_word']}"


def _placeholders(draft: Draft, given: JsonObject) -> None:
    for word in draft.rng.sample(_KEYWORDS, given["num_placeholders"]):
        draft.add(f"Please ask [{word}] about it")


def _paragraphs(draft: Draft) -> Mapping[str, object]:
    count = draft.rng.randint(2, 3)
    word = draft.rng.choice(_STARTERS).lower()
    return {
        "num_paragraphs": count,
        "nth_paragraph": draft.rng.randint(1, count),
        "first_word": word,
    }


ASKS: Final = (
    # IFEval's, in its own order
    Spec(
        "keywords:existence",
        "Use the words {keywords}.",
        lambda draft: {"keywords": draft.rng.sample(_KEYWORDS, draft.rng.randint(2, 3))},
        lambda draft, given: _with(draft, given["keywords"]),
        anchor=True,
    ),
    Spec(
        "keywords:frequency",
        "Use the word {keyword} {relation} {frequency} times.",
        _frequency,
        lambda draft, given: _with(draft, [given["keyword"]] * given["frequency"]),
        anchor=True,
    ),
    Spec(
        "keywords:forbidden_words",
        "Do not use the words {forbidden_words}.",
        lambda draft: {"forbidden_words": draft.rng.sample(_COMMON, 3)},
        _keep,
    ),
    Spec(
        "keywords:letter_frequency",
        "Let the letter {letter} appear {let_relation} {let_frequency} times.",
        lambda draft: {
            "letter": draft.rng.choice("bcdgmpw"),
            "let_frequency": draft.rng.randint(3, 9),
            "let_relation": "at least",
        },
        _keep,
        "letters",
    ),
    Spec(
        "change_case:english_capital",
        "Write the whole answer in capital letters.",
        _none,
        _finish(str.upper),
        "case",
    ),
    Spec(
        "change_case:english_lowercase",
        "Write the whole answer in lower case.",
        _none,
        _finish(str.lower),
        "case",
    ),
    Spec(
        "change_case:capital_word_frequency",
        "Let words in all capitals appear {capital_relation} {capital_frequency} times.",
        _count("capital_frequency", 2, 5, capital_relation="at least"),
        lambda draft, given: draft.sentences.insert(0, draft.sentences.pop(0).upper()),
        "case",
    ),
    Spec(
        "length_constraints:number_sentences",
        "Write {relation} {num_sentences} sentences.",
        lambda draft: draft.rng.choice(
            (
                {"num_sentences": 4, "relation": "at least"},
                {"num_sentences": 14, "relation": "less than"},
            )
        ),
        _keep,
        "length",
    ),
    Spec(
        "length_constraints:number_words",
        "Write {relation} {num_words} words.",
        lambda draft: draft.rng.choice(
            ({"num_words": 35, "relation": "at least"}, {"num_words": 180, "relation": "less than"})
        ),
        _keep,
        "length",
    ),
    Spec(
        "length_constraints:number_paragraphs",
        "Write {num_paragraphs} paragraphs with *** between them.",
        _count("num_paragraphs", 2, 4),
        _group_parts("\n***\n"),
        "paragraphs start end",
    ),
    Spec(
        "length_constraints:nth_paragraph_first_word",
        "Write {num_paragraphs} paragraphs with an empty line between them; begin paragraph "
        "{nth_paragraph} with the word {first_word}.",
        _paragraphs,
        _first_of,
        "paragraphs start end",
        True,
    ),
    Spec(
        "detectable_content:number_placeholders",
        "Leave at least {num_placeholders} placeholders in square brackets, such as [name].",
        _count("num_placeholders", 2, 4),
        _placeholders,
        "marks",
    ),
    Spec(
        "detectable_content:postscript",
        "Add a postscript at the end that begins with {postscript_marker}",
        lambda draft: {"postscript_marker": draft.rng.choice(("P.S.", "P.P.S"))},
        _bottom("\n{postscript_marker} Bring a warm coat with you"),
        "end paragraphs dots",
    ),
    Spec(
        "detectable_format:number_bullet_lists",
        "Add a list of exactly {num_bullets} bullet points, each as * point.",
        _count("num_bullets", 2, 5),
        _add_bullets,
        "end list",
    ),
    Spec(
        "detectable_format:number_highlighted_sections",
        "Highlight at least {num_highlights} parts with asterisks, such as *this*.",
        _count("num_highlights", 2, 4),
        _mark_words("num_highlights", "*{}*"),
        "marks list",
    ),
    Spec(
        "detectable_format:multiple_sections",
        "Divide the answer into {num_sections} numbered sections; begin each with "
        "{section_spliter} and its number.",
        lambda draft: {
            "section_spliter": draft.rng.choice(("Section", "Part", "Day")),
            "num_sections": draft.rng.randint(2, 4),
        },
        _number_sections,
        "end paragraphs start",
    ),
    Spec(
        "detectable_format:json_format",
        "Give the whole answer as one JSON object.",
        _none,
        _finish(lambda text: json.dumps({"answer": text})),
        "all",
    ),
    Spec(
        "detectable_format:title",
        "Begin with a title in double angular brackets, such as <<title>>.",
        _none,
        lambda draft, given: draft.top.append(f"<<{draft.topic}>>"),
        "start",
    ),
    Spec(
        "combination:two_responses",
        "Give two different answers, and nothing but ****** between them.",
        _none,
        _twice,
        "all",
    ),
    Spec(
        "combination:repeat_prompt",
        "Repeat the first sentence of this request word for word, and answer after it.",
        lambda draft: {"prompt_to_repeat": draft.request},
        lambda draft, given: draft.top.append(draft.request),
        "start case dots length",
    ),
    Spec(
        "startend:end_checker",
        "End with exactly this sentence: {end_phrase}",
        _word("end_phrase", _PHRASES),
        _bottom("{end_phrase}"),
        "end dots paragraphs",
        True,
    ),
    Spec(
        "startend:quotation",
        "Put the whole answer in double quotation marks.",
        _none,
        _finish(lambda text: f'"{text}"'),
        "start end",
    ),
    Spec("punctuation:no_comma", "Use no commas.", _none, _keep),
    # IFTrain's
    Spec(
        "copy:copying_simple",
        "Forget that. Instead, copy this sentence and write nothing else: {prompt_to_repeat}",
        lambda draft: {"prompt_to_repeat": _copy_request(draft)},
        _copies,
        "copy",
        True,
    ),
    Spec(
        "copy:copying_multiple",
        "Forget that. Instead, copy this sentence {N} times with ****** between the copies, and "
        "write nothing else: "
        "{prompt_to_repeat}",
        lambda draft: {"prompt_to_repeat": _copy_request(draft), "N": draft.rng.randint(2, 4)},
        _copies,
        "copy",
        True,
    ),
    Spec(
        "new:copy_span_idx",
        "Forget that. Instead, copy the characters from index {n_start} up to and including index "
        "{n_end}, counted from 0, of this sentence, and write nothing else: {prompt_to_repeat}",
        _span,
        _copies,
        "copy",
        True,
    ),
    Spec(
        "copy:repeat_phrase",
        "Use this phrase exactly {small_n} times, each time with one other word changed: {phrase}",
        lambda draft: {
            "phrase": f"the old {draft.rng.choice(_KEYWORDS)} by the {draft.rng.choice(_KEYWORDS)}",
            "small_n": draft.rng.randint(2, 3),
        },
        _phrase_variants,
        "length",
        True,
    ),
    Spec(
        "keywords:word_once",
        "Use the word {keyword} exactly once.",
        _word("keyword"),
        lambda draft, given: _with(draft, [given["keyword"]]),
        anchor=True,
    ),
    Spec(
        "keywords:word_count_different_numbers",
        "The word {keyword} must appear {relation} {frequency} times.",
        _frequency,
        lambda draft, given: _with(draft, [given["keyword"]] * given["frequency"]),
        anchor=True,
    ),
    Spec(
        "letters:letter_counting2",
        "The letter {letter} must occur {let_relation} {let_frequency} times.",
        lambda draft: {
            "letter": draft.rng.choice("qxzj"),
            "let_frequency": draft.rng.randint(4, 6),
            "let_relation": "less than",
        },
        _keep,
        "letters",
    ),
    Spec(
        "keywords:exclude_word_harder",
        "Leave out the word {keyword}.",
        _word("keyword", _COMMON),
        _keep,
    ),
    Spec(
        "keywords:no_adjacent_consecutive",
        (
            "No two neighbouring words may begin with neighbouring letters of the alphabet, "
            "in this order."
        ),
        _none,
        _apart,
        "all",
        True,
    ),
    Spec(
        "keywords:palindrome",
        "Use a palindrome of at least three letters.",
        _none,
        lambda draft, given: _with(draft, [draft.rng.choice(_PALINDROMES)]),
    ),
    Spec(
        "keywords:keyword_specific_position",
        "Make {keyword} word {m} of sentence {n}.",
        lambda draft: {
            "keyword": draft.rng.choice(_KEYWORDS),
            "n": draft.rng.randint(2, 3),
            "m": draft.rng.randint(2, 4),
        },
        _at_place,
        "length start",
        True,
    ),
    Spec(
        "keywords:start_end",
        "Begin and end with the same word, and put nothing after the last one.",
        _none,
        lambda draft, given: draft.bottom.append(draft.sentences[0].split()[0].lower()),
        "start end",
    ),
    Spec(
        "first_word:first_word_sent",
        "Begin each sentence with the word {first_word}.",
        _word("first_word", _STARTERS),
        _each(lambda sentence, given: f"{given['first_word']} {_lower_first(sentence)}"),
        "start length end",
        True,
    ),
    Spec(
        "first_word:first_word_answer",
        "Begin the answer with the word {first_word}.",
        _word("first_word", _STARTERS),
        _first_word,
        "start",
        True,
    ),
    Spec(
        "last_word:last_word_sent",
        "End each sentence with the word {last_word}.",
        _word("last_word"),
        _each(lambda sentence, given: f"{sentence} {given['last_word']}"),
        "end length start",
        True,
    ),
    Spec(
        "last_word:last_word_answer",
        "End the answer with the word {last_word}.",
        _word("last_word"),
        _last_word,
        "end",
        True,
    ),
    Spec(
        "paragraphs:paragraphs",
        "Write two paragraphs with *** between them.",
        _none,
        _group_parts("\n***\n", 2),
        "paragraphs start end",
    ),
    Spec(
        "paragraphs:paragraphs2",
        "Write two paragraphs with an empty line between them.",
        _none,
        _group_parts("\n\n", 2),
        "paragraphs start end",
    ),
    Spec(
        "detectable_format:sentence_hyphens",
        "Join all sentences by hyphens, without spaces around them.",
        _none,
        _finish(lambda text: text.replace(". ", ".-")),
        "all",
    ),
    Spec(
        "detectable_format:square_brackets",
        "Put each word in square brackets.",
        _none,
        _finish(lambda text: " ".join(f"[{word.strip('.')}]" for word in text.split())),
        "all",
        True,
    ),
    Spec(
        "detectable_format:bigram_wrapping",
        "Put each pair of words in double angular brackets, such as <<two words>>.",
        _none,
        _finish(_pairs),
        "all",
        True,
    ),
    Spec(
        "punctuation:punctuation_dot",
        "Use no dots.",
        _none,
        lambda draft, given: setattr(draft, "end", "?"),
        "dots",
    ),
    Spec("punctuation:punctuation_exclamation", "Use no exclamation marks.", _none, _keep),
    Spec(
        "count:lowercase_counting",
        "Use at most {N} words in lower case.",
        _count("N", 2, 9),
        _finish(str.upper),
        "case",
    ),
    Spec(
        "letters:letter_counting",
        "Write {relation} {N} letters.",
        lambda draft: draft.rng.choice(
            ({"N": 180, "relation": "at least"}, {"N": 900, "relation": "less than"})
        ),
        _keep,
        "length",
    ),
    Spec(
        "count:counting_composition",
        "Write 3 paragraphs with *** between them, each of {n_sent} sentences of exactly {n_words} "
        "words.",
        lambda draft: {"n_sent": draft.rng.randint(2, 3), "n_words": draft.rng.randint(5, 8)},
        _compose_paragraphs,
        "all",
        True,
    ),
    Spec("count:count_unique", "Use no word twice.", _none, _unique, "all", True),
    Spec(
        "count:count_increment_word",
        "Use the word {keyword1} once and the word {keyword2} twice.",
        lambda draft: dict(
            zip(("keyword1", "keyword2"), draft.rng.sample(_KEYWORDS, 2), strict=True)
        ),
        lambda draft, given: _with(
            draft, [given["keyword1"], given["keyword2"], given["keyword2"]]
        ),
        anchor=True,
    ),
)

_ANCHORS: Final = tuple(ask for ask in ASKS if ask.anchor)


def compatible(rng: Random, count: int) -> list[Spec]:
    """Asks that hold nothing of each other's, most often with an anchor among them.

    Args:
        rng: draws them.
        count: the greatest number of them.
    """
    # A single instruction is an anchor, which a text about anything else does not follow.
    chosen = [rng.choice(ASKS if count > 1 else _ANCHORS)]
    candidates = [
        *([] if chosen[0].anchor else rng.sample(_ANCHORS, len(_ANCHORS))),
        *rng.sample(ASKS, len(ASKS)),
    ]
    for ask in candidates:
        held = {name for ask in chosen for name in ask.holds.split()}
        mine = set(ask.holds.split())
        # "copy" stands alone, and "all" goes with nothing that holds something.
        alone = "copy" in held | mine or ("all" in held and mine) or ("all" in mine and held)
        lacking = not any(ask.anchor for ask in chosen)  # an anchor comes before anything else
        if (
            len(chosen) < count
            and not alone
            and not held & mine
            and ask not in chosen
            and (ask.anchor or not lacking)
        ):
            chosen.append(ask)
    return chosen


def in_words(ask: Spec, given: Mapping[str, object]) -> str:
    """An instruction as the prompt has it.

    Args:
        ask: what is asked.
        given: its arguments.
    """
    return ask.words.format(
        **{
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in given.items()
        }
    )

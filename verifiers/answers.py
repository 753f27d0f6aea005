r"""Finds the final answer in a completion, in linear time and without
judging it: for all verifiers.

    thinking part away → last \boxed, \fbox, \framebox or <answer> → declared marker → "the answer
    is …"
                       → fenced blocks, and then the bare text, for verifiers whose `Form` has them

A program is marked by a tag or a fence, or is the bare text: boxes, markers and phrases may be a
part of it.

If there is a box, markers and phrases are not searched for.  The last statement counts, so that a
model may correct itself; two different boxes in one statement are a hedge.  `extract` finds the
place, for mathematics; `find_answer` also takes off what is wrapped around the answer there, and
gives the verdict where there is none.  What the words around an answer say of it is read in
`stated`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from rlvr.text import (
    ANSWER_TAGS,
    FencedBlock,
    after_thinking,
    fenced_blocks,
    prompt_text,
)
from rlvr.types import Outcome, Task, Verdict
from rlvr.verifiers.stated import StatementFlaw, flaw_around, in_one_statement, withdraws

__all__ = [
    "Answer",
    "BOXED",
    "DEFAULT_MARKERS",
    "Extraction",
    "ExtractionMethod",
    "Flaw",
    "Form",
    "WIDE_DIGITS",
    "bare",
    "boxed",
    "extract",
    "find_answer",
    "last_expression",
    "refusal",
    "unwrap",
    "without_commands",
]

DEFAULT_MARKERS: Final[tuple[str, ...]] = ()
"""No markers; an environment names those that its prompt asks for, such as `("####",)`."""

WIDE_DIGITS: Final = {0xFF10 + digit: ord("0") + digit for digit in range(10)}
"""For `str.translate`: full-width digits, as East Asian keyboards write them, as plain ones."""

ExtractionMethod = Literal[
    "box", "open-box", "bare-box", "tag", "marker", "phrase", "expression", "fence", "bare"
]
Flaw = StatementFlaw | Literal["", "empty-box", "unclosed-box"]


class Extraction(NamedTuple):
    """The answer found in a text, with `answer == text[start:stop]`.

    Attributes:
        answer: without surrounding space, bold marks and full stop.
        start, stop: its span in the completion, in characters.
        method: how it was marked; "open-box" has no closing brace, "bare-box" no braces at all.
        flaw: why it does not count as an answer; "" if it does.
        others: contents of other boxes in the same statement that differ from it.
        parts: contents of all boxes in the statement, in order, each with the name before it, as in
            `x=\boxed{3}, y=\boxed{4}`; a reference with several parts is compared with these.
    """

    answer: str
    start: int
    stop: int
    method: ExtractionMethod
    flaw: Flaw = ""
    others: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """Where an answer may stand.  Box, tag, marker and phrase count for every verifier.

    Attributes:
        markers: see `extract`.
        fences: the languages of fenced blocks that count, such as {"sql", ""}; None if a block is
            only markup.
        bare: whether the whole text is the answer where nothing marks one.
        begins: a regular expression of what a bare answer begins with, which keeps "the answer is"
            in a program or a document from being read as a phrase; "" if nothing tells.
        lines: whether an answer may have several lines: after a marker or phrase it ends at an
            empty line.
        longest: most characters of an answer; a longer one is WRONG.
        program: whether the answer is a program: it keeps its indentation, and the last of several
            blocks counts.
        prefers: of a program's blocks, those that match count before the others.
    """

    markers: tuple[str, ...] = ("Answer:", "ANSWER:", "answer:", "Final answer:", "Final Answer:")
    fences: frozenset[str] | None = None
    bare: bool = False
    begins: str = ""
    lines: bool = False
    longest: int = 2000
    program: bool = False
    prefers: re.Pattern[str] | None = None


class Answer(NamedTuple):
    """An answer without its wrappings, and the prompt that it answers.

    Attributes:
        text: the answer.
        prompt: the text of the prompt; "" if unknown.
        method: how it was marked; "fence" and "bare" are those of `Form`; "open-fence" has no
            closing fence, as where a completion was cut off.
        language: of a program, by its fence; "" if no fence says it.
    """

    text: str
    prompt: str = ""
    method: str = "bare"
    language: str = ""


_BOXES = ("\\boxed", "\\fbox", "\\framebox")
_EATEN_BOX = "\x08oxed"  # what JSON makes of one backslash and `boxed`
_TAG, _TAG_END = ANSWER_TAGS
_ANY_TAG = re.compile(r"</?answer>", re.IGNORECASE)
_TURN_ENDS = (  # what follows is no part of the reply
    *("<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>"),
    "<｜end▁of▁sentence｜>",
)
# characters within which a box must close; no answer within the limits is that long
_WINDOW = 20_000
# a text may repeat its box thousands of times: a look at each would cost more than the text
_MOST = 32  # how many boxes of one statement are looked at
_LAST_CHARS = 1 << 16  # of a long text, where lines are looked for first

# a brace of a set, `\{1, 2\}`, is passed over as one match with its backslash
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# `\framebox[3cm][c]{5}` and `\boxed {5}`: options in brackets, space before the brace
_BOX_START = re.compile(r"[ \t]{0,8}(?:\[[^\[\]{}]{0,40}\]){0,2}[ \t\n]{0,8}\{")
# nothing in it to trim, to match or to look into
_PLAIN_BOX = re.compile(r"\{([^{}\s*`\\$.,;]{1,40})\}")
# `\boxed 5`: without a brace TeX frames the next thing, models mean the word
_BARE = re.compile(r"[ \t]{0,8}([^\s${}]{1,200})")
# ". " and ".$ ", not the point of "3.5"
_SENTENCE_END = re.compile(r"(?<!\\)[.!?][$)*\]]{0,4}(?:\s|$)")
_PHRASE = re.compile(  # a heading of its own, or "the answer is …"
    r"答案(?:是|为|為|选|選)?[:：]?|"
    r"^[#*_ \t]{0,12}+(?:the )?(?:final )?answer[*_ \t]{0,8}$|\banswer\b[*_ ]{0,4}"
    r"(?:is\b|are\b|=|:)[*_ \t:}]{0,6}"
    r"(?:(?:clearly|therefore|thus|hence|simply|definitely|indeed|obviously)\b[*_ \t,:]{1,6})?",
    re.IGNORECASE | re.MULTILINE,
)
# "the answer should be 5" is often said on the way to another answer, and so counts last
_WEAK_PHRASE = re.compile(  # what marks an answer only where nothing above does
    r"\banswer\b[*_ ]{0,4}(?:should|must|would|will|has to) be\b[*_ \t:]{0,6}|"
    r"\b(?:correct|right|best) (?:answer )?(?:option|choice)[*_ ]{0,4}(?:is\b|:)[*_ \t:]{0,6}|"
    r"\bi (?:would )?(?:choose|pick|select|go with)\b[*_ \t:]{0,6}|"
    r"[故应應](?<!不.)[选選][:：]? ?|"
    r"^[#*_ \t]{0,12}+(?:ans|antwort|réponse|respuesta|risposta|resposta|ответ|cevap|"
    r"odpowiedź|jawaban|đáp án|الإجابة|الجواب|उत्तर|정답|答え|回答|解答)"
    r"(?: (?:corre\w{1,6}|final\w{0,2}))?[*_ \t]{0,8}[:：][*_ \t]{0,6}",
    re.IGNORECASE | re.MULTILINE,
)
_DOTLESS = {0x130: "i", 0x131: "i"}  # patterns that ignore case take these for an i
_PHRASE_WORDS = ("answer", "答案")  # each match has one
_WEAK_PHRASE_WORDS = (
    "answer choice option choose pick select go ans antwort réponse respuesta risposta resposta "
    "ответ cevap odpowiedź jawaban đáp الإجابة الجواب उत्तर 답 答え 回答 解答 选 選"
).split()
# "The answer is 5 because 2 + 3 = 5": else the whole of it would be the answer
_REASON = re.compile(r",? (?:because|since)\b", re.IGNORECASE)
# the answer may stand on the line below, in a formula of its own: "Final answer:\n$$\n5\n$$"
_BLANK = re.compile(r"[*_ \t]{0,8}(?:\n[ \t\n]{0,8})?(?:(?:\$\$|\\\[)[ \t]{0,8}\n[ \t]{0,8})?")
_HEADING_END = re.compile(r"[*_: \t\r\n]*")  # of a bold heading
_EMPTY_LINE = re.compile(r"\n[ \t]*\n")
# the name in front of a box: `x_1 = \boxed{3}` and "Area: $\boxed{3}"
_NAME_BEFORE = re.compile(r"([A-Za-z](?:_\{?\w{1,4}\}?)?|[A-Za-z]{3,20}) {0,2}[=:] {0,2}\$?$")
_PART_BEFORE = re.compile(r"(\([a-h]\) )[*_]{0,2}\$?$")  # (a) \boxed{3}
_FORMULA = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_LONGEST_FORMULA = 2000  # characters
# "-1,200", "$5", "3/4" and "50%"; not the 2 of "x2" nor the 5 of "1.5"
_NUMBER = re.compile(r"(?<![\w.,])([+-]?(?:\\?\$)?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\\?%)?)(?!\w)")
_EDGES = " \t\r\n*`"
# each takes a look at the whole answer, and a model is free to nest them a thousand deep
_NESTED = 8  # wrappings around wrappings that are taken off
_WRAPPING = 200  # characters of them
_AROUND = (
    ("**", "**"),
    ("*", "*"),
    ("__", "__"),
    ("`", "`"),
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("<answer>", "</answer>"),
)
_OPENING = tuple(opening for opening, _ in _AROUND)
_COMMAND = re.compile(
    r"\\(?:boxed|fbox|framebox|text|textbf|textit|mathrm|mathbf|mbox|textrm)\s?\{"
)
_STYLED = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname)\s?\{([^{}\\]*)\}"
)
_DEGREES = re.compile(r"\^\s?(?:\\circ|\{\s?\\circ\s?\})")
_ESCAPED = re.compile(r"\\([%$&#_,;:! ])")
_NEAR = 80  # characters before a box in which the words are that name it
_ENDING = 300  # characters at the end in which the last line and sentence are looked for
# an instruction that is repeated has a box and no answer
_NAMES_BOX = re.compile(  # "I put it in \\boxed{}"
    r"(?:\b(?:in|into|inside|within|with|using|use|an?|the|by|as|and)|[`'\"“‘(\[])"
    r"[\s*_$`'\"“‘\\(\[]{0,8}\Z",
    re.IGNORECASE,
)
_REVERSED = re.compile(  # "5 is the answer"
    r"(?:^|[.!?]\s)[*_ \t]{0,8}(?:(?:so|thus|hence|therefore),? )?(?P<answer>[^\n.!?]{1,200}) "
    r"is (?:the|my) (?:final |correct |right )?answer[*_ \t]{0,8}[.!]?\s{0,8}\Z",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION_IS = re.compile(  # "Option B is correct"
    r"\b(?:option|choice|answer) (?P<answer>\(?[A-Z]\)?)[*_ \t]{1,8}is (?:the )?(?:correct|right)"
    r"(?: (?:answer|option|choice|one))?[*_ \t]{0,8}[.!]?\s{0,8}\Z",
    re.IGNORECASE,
)
_LAST_LINE = re.compile(  # as GSM8K and other data end
    r"^(?:#{4}[ \t]+|[*_ \t]{0,8}answer[*_ \t]{1,8}[-–—][ \t]+)(?P<answer>[^\n]{1,200}?)\s{0,8}\Z",
    re.IGNORECASE | re.MULTILINE,
)
_PHRASE_FIRST = re.compile(
    r"(?:the )?(?:final |correct |right )?answer(?: is\b:?|:)\s*", re.IGNORECASE
)
_HEADING = re.compile(r"#{1,6}[ \t]+(?=\S)")
_PLAIN_EDGES = _EDGES.replace("*", "")


def extract(text: str, *, markers: Sequence[str] = DEFAULT_MARKERS) -> Extraction | None:
    """The final answer; None if the text states none.

    Args:
        text: a completion.
        markers: texts that the environment's prompt asks for before the answer, which is the rest
            of the line after the last one.  A marker that begins with a letter, such as `A:`,
            counts only at the beginning of a line.
    """
    begin = after_thinking(text) if "<" in text else 0
    if begin is None:
        return None
    text = _as_sent(text, begin) if "<" in text else text
    # boxes first, phrases last: what a prompt asks for is a clearer sign than what prose may
    # hold
    extraction = _last_explicit(text, begin, _openers(text))
    extraction = extraction or _last_marked(text, begin, markers)
    extraction = extraction or _last_line(text, begin, _PHRASE, "phrase", _PHRASE_WORDS)
    extraction = extraction or _last_line(text, begin, _WEAK_PHRASE, "phrase", _WEAK_PHRASE_WORDS)
    return None if extraction is None else _as_meant(text, extraction)


def refusal(found: Extraction) -> Verdict | None:
    """The verdict on an answer that does not count, whatever it says; None if it may count.

    Args:
        found: from `extract`.
    """
    if found.flaw in ("empty-box", "unclosed-box"):
        return Verdict(Outcome.UNPARSED, why=found.flaw)
    if found.flaw == "hedged" and not found.others:
        return Verdict(Outcome.WRONG, why="hedged: it is one of several", answer=found.answer[:200])
    why = _REFUSED.get(found.flaw)
    return None if why is None else Verdict(Outcome.WRONG, why=why, answer=found.answer[:200])


_REFUSED: Final[dict[str, str]] = {
    "denied": "hedged: the answer is denied",
    "asked": "hedged: the answer is a question",
    "retracted": "retracted: the answer is taken back, and no other one is given",
}


def find_answer(text: str, form: Form, task: Task | None = None) -> Answer | Verdict:
    """The final answer without its wrappings; or the verdict that says why there is none.

    Nothing, an empty box and one that is not closed are UNPARSED; answers that differ in one
    statement, and one that is too long, are WRONG.

    Args:
        text: a completion.
        form: where the answer may stand.
        task: what the completion answers; its prompt goes with the answer.
    """
    begin = after_thinking(text)
    if begin is None:
        return Verdict(Outcome.UNPARSED, why="unfinished-thinking")
    # a program may hold boxes and phrases in its strings and comments: none of them is looked for
    # there
    if form.program:
        program = _program(text[begin:].replace("\r\n", "\n"), form)
        return program if program.text.strip() else Verdict(Outcome.UNPARSED, why="no-answer")
    text = _as_sent(text, begin)
    extraction = _extract_formed(text, begin, form)
    if extraction is None:
        return Verdict(Outcome.UNPARSED, why="no-answer")
    if (verdict := refusal(extraction)) is not None:
        return verdict
    if extraction.method == "open-box":
        return Verdict(Outcome.UNPARSED, why="unclosed-box")
    # what is longer by more than wrappings may add is refused as it is: unwrapping takes time
    answer_text = (
        extraction.answer
        if len(extraction.answer) > form.longest + _WRAPPING
        else unwrap(extraction.answer)
    )
    if len(answer_text) > form.longest:
        why = f"too-long: {len(answer_text):,} characters, of {form.longest:,} allowed"
        return Verdict(Outcome.WRONG, why=why, answer=answer_text[:200])
    # `\boxed{5}` and `\boxed{ 5 }` in one statement are one answer, and no hedge
    if any(
        _same_letters(unwrap(alternative), answer_text) is False
        for alternative in extraction.others
    ):
        why = f"hedged: {1 + len(extraction.others)} answers in one statement differ"
        return Verdict(Outcome.WRONG, why=why, answer=answer_text[:200])
    if not answer_text:
        return Verdict(Outcome.UNPARSED, why="no-answer")
    return Answer(answer_text, "" if task is None else prompt_text(task.prompt), extraction.method)


def _as_sent(text: str, begin: int) -> str:
    """The text up to the end of the model's turn, with tags in lower case; all positions stay."""
    if "<" not in text:
        return text
    if "<|" in text or "<｜" in text or "<end_of" in text:
        ends = [at for end in _TURN_ENDS if (at := text.find(end, begin)) >= 0]
        # the sign may stand in thinking too, where it ends nothing: only those behind `begin` count
        text = text[: min(ends, default=len(text))]
    if "<A" in text or "</A" in text:
        text = _ANY_TAG.sub(lambda tag: tag[0].lower(), text)
    return text


def unwrap(answer: str) -> str:
    r"""The answer without what encloses all of it: space, tags, boxes, fences, bold marks, dollar
    signs, `\\text{}`.

    Args:
        answer: the content of a box, a tag or the like.
    """
    for _ in range(_NESTED):
        inner = answer.strip()
        # most answers begin with none of these signs, and so the pairs are not tried at all
        for opening, closing in _AROUND if inner.startswith(_OPENING) else ():
            if (
                inner.startswith(opening)
                and inner.endswith(closing)
                and len(inner) >= len(opening + closing)
            ):
                middle = inner[len(opening) : len(inner) - len(closing)]
                # `$3$ and $4$` begins and ends with a dollar sign, and is no single formula
                if opening not in middle and closing not in middle:
                    inner = middle.strip()
        if inner.startswith("\\") and (command := _COMMAND.match(inner)) is not None:
            # `\text{5} + \text{6}` begins with a command that does not enclose all of it
            if _closing(inner, command.end()) == len(inner) - 1:
                inner = inner[command.end() : -1].strip()
        elif inner.startswith(("```", "~~~")):
            blocks = list(fenced_blocks(inner))
            if len(blocks) == 1:
                # a block with more text behind it is no mere wrapping: that text belongs to the
                # answer
                [block] = blocks
                after_block = inner[block.end :] if block.closed else ""
                inner = inner if after_block.strip("`~ ") else block.code.strip()
        elif inner.startswith("#") and (heading := _HEADING.match(inner)) is not None:
            inner = inner[heading.end() :]
        elif (phrase := _PHRASE_FIRST.match(inner)) is not None:
            inner = inner[phrase.end() :].strip()
        if inner == answer:
            break
        answer = inner
    return answer


def without_commands(answer: str) -> str:
    r"""The answer with the contents of `\text{}` and its like in their place, signs for `\%`, `\$`,
    `^\circ` and `{,}`, and spaces for `\,` and its like; other commands stay.

    Args:
        answer: in LaTeX, or a plain text.
    """
    if "\\" not in answer and "{,}" not in answer:
        return answer
    plain = _STYLED.sub(r"\1", _DEGREES.sub("°", answer.replace("{,}", ",")))
    return _ESCAPED.sub(lambda sign: sign[1] if sign[1] in "%$&#_" else " ", plain)


def _extract_formed(text: str, begin: int, form: Form) -> Extraction | None:
    """The place of the answer, by a form; `find_answer` takes off the wrappings."""
    blocks = list(fenced_blocks(text[begin:])) if form.fences is not None else []
    answer_blocks = [block for block in blocks if block.language in (form.fences or ())]
    # no block is masked where blocks hold the answer and the text has no box and no tag
    states = not answer_blocks or any(opener in text for opener in _openers(text))
    visible = _mask_blocks(text, begin, blocks) if blocks and form.begins and states else text
    # an opening tag alone in an instruction would make the rest of the reply the answer
    if (
        visible.rfind(_TAG) > visible.rfind(_TAG_END) >= begin
    ):  # "between <answer> tags": not cut off
        at = visible.rfind(_TAG)
        visible = f"{visible[:at]}{'¤' * len(_TAG)}{visible[at + len(_TAG) :]}"
    body = text[begin:].strip()
    # a whole reply such as {"note": "the answer is 5"} is the document itself, not a statement
    is_answer_alone = bool(form.begins) and re.match(form.begins, body) is not None
    extraction = (
        None
        if is_answer_alone and not blocks
        else _last_explicit(visible, begin, _openers(visible))
    )
    if extraction is not None:
        # what was masked was only hidden from the search: the answer is read from the text as sent
        if visible is not text:
            extraction = extraction._replace(answer=text[extraction.start : extraction.stop])
        return _as_meant(visible, extraction)
    if answer_blocks:
        # "```A``` That is wrong. ```B```" is a correction, not a hedge
        answer_blocks = answer_blocks[_last_corrected(text[begin:], answer_blocks) :]
        contents = list(dict.fromkeys(block.code.strip() for block in answer_blocks))
        at = begin + answer_blocks[-1].start
        flaw: Flaw = "hedged" if len(contents) > 1 else "" if contents[-1] else "empty-box"
        return Extraction(contents[-1], at, at, "fence", flaw, tuple(contents[:-1]))
    if not is_answer_alone:
        extraction = _last_marked(visible, begin, form.markers, lines=form.lines)
        extraction = extraction or _last_line(
            visible, begin, _PHRASE, "phrase", _PHRASE_WORDS, lines=form.lines
        )
        # before the weak phrases: "I would choose …" in the reasoning, "5 is the answer" at its end
        extraction = extraction or _ending(visible, begin)
        extraction = extraction or _last_line(
            visible, begin, _WEAK_PHRASE, "phrase", _WEAK_PHRASE_WORDS
        )
        extraction = extraction and _as_meant(visible, extraction)
    if extraction is None and form.bare and body:
        extraction = Extraction(body, begin, len(text), "bare")
    return extraction


def _last_corrected(text: str, blocks: Sequence[FencedBlock]) -> int:
    """The first of the blocks that count: the last one before which the text says that another one
    was wrong."""
    corrected = 0
    for at, (block, following) in enumerate(pairwise(blocks), 1):
        if withdraws(text[block.end : following.start].lstrip("`~")):
            corrected = at
    return corrected


def _ending(text: str, begin: int) -> Extraction | None:
    """The answer of a last line or sentence that marks it."""
    end = len(text.rstrip())
    tail, stop = max(begin, end - _ENDING), min(len(text), end + _ENDING)
    patterns = (_LAST_LINE, _REVERSED, _OPTION_IS)
    match = next(filter(None, (pattern.search(text, tail, stop) for pattern in patterns)), None)
    return _trim_extraction(text, *match.span("answer"), "phrase") if match else None


def _program(text: str, form: Form) -> Answer:
    """What the last tag outside of blocks holds, or else the block that counts, or the text."""
    blocks = list(fenced_blocks(text))
    at, method = text.rfind(_TAG), "bare"
    # a tag inside a program is a string of it
    if at >= 0 and not any(block.start < at < block.end for block in blocks):
        text, method = text[at + len(_TAG) :].partition(_TAG_END)[0], "tag"
        blocks = list(fenced_blocks(text))
    unnamed = [block for block in blocks if not block.language]
    named = [block for block in blocks if block.language in (form.fences or ())]
    # blocks in another language, such as the output in ```text, are never the program
    chosen = (named or unnamed)[-1:]
    if form.prefers is not None:
        # an example of use often follows the function: the last block that defines something is
        # meant
        chosen = [b for b in (*unnamed, *named) if form.prefers.search(b.code)][-1:] or chosen
    for block in chosen:
        method = "fence" if block.closed else "open-fence"
        return Answer(block.code, "", method, block.language)
    return Answer(text.strip("\n") if method == "tag" else text, "", method)


class _Masked(dict[int, int]):
    """A character of its own in Unicode's private area, for each that is asked for."""

    def __missing__(self, char: int) -> int:
        self[char] = 0xE000 + char % 6400
        return self[char]


_MASKED = _Masked()


def _mask_blocks(text: str, begin: int, blocks: Sequence[FencedBlock]) -> str:
    """The text with other characters in its fenced blocks: a tag or "the answer is" in a program
    marks nothing.

    Each character is replaced by one of its own, so that blocks that differ still do.
    """
    parts, at = [], 0
    for block in blocks:
        start, end = begin + block.start, min(begin + block.end, len(text))
        parts += [text[at:start], text[start:end].translate(_MASKED)]
        at = end
    return "".join([*parts, text[at:]])


def _same_letters(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def _openers(text: str) -> tuple[str, ...]:
    openers = _BOXES if "\\" in text else ()  # looking for a sign is quick
    if "<" in text:
        openers = (*openers, _TAG)
    return openers if _EATEN_BOX[0] not in text else (*openers, _EATEN_BOX)


def last_expression(text: str) -> Extraction | None:
    r"""The last formula between dollar signs, `\( \)` or `\[ \]`, or the last number behind it;
    None without either.

    Args:
        text: a completion without box, marker or phrase.
    """
    begin = after_thinking(text)
    if begin is None:
        return None
    spans = [
        span
        for opening, closing in _FORMULA
        if (span := _last_between(text, begin, opening, closing))
    ]
    numbers = deque((match.span(1) for match in _NUMBER.finditer(text, begin)), maxlen=1)
    # two dollar signs far apart, as in prices, enclose prose and no formula
    spans = [span for span in (*spans, *numbers) if span[1] - span[0] <= _LONGEST_FORMULA]
    if not spans:
        return None
    # the one that ends last, of whichever kind: the end of a text is its result
    extraction = _trim_extraction(text, *max(spans, key=lambda span: span[1]), "expression")
    return extraction if extraction.answer else None


def _last_between(text: str, begin: int, opening: str, closing: str) -> tuple[int, int] | None:
    """The span inside the last pair of these signs."""
    stop = text.rfind(closing, begin)
    if closing == "$" and text[stop - 1 : stop] == "$":
        return None  # the second sign of `$$`, which is a pair of its own
    start = text.rfind(opening, begin, stop) if stop >= 0 else -1
    return (start + len(opening), stop) if start >= 0 else None


def boxed(text: str) -> bool:
    """True if the last box after the thinking part is closed and not empty; for
    `rlvr.Format(BOXED)`.

    Args:
        text: a completion.
    """
    begin = after_thinking(text)
    extraction = None if begin is None else _last_explicit(text, begin, _BOXES)
    return (
        extraction is not None and extraction.method == "box" and extraction.flaw in ("", "hedged")
    )


BOXED = boxed


def bare(answer: str) -> str:
    """A given answer without surrounding space, bold marks and the like, as `extract` would return
    it.

    Args:
        answer: the answer alone.
    """
    return _trim_extraction(answer, 0, len(answer), "box").answer


def _as_meant(text: str, found: Extraction) -> Extraction:
    """The answer, flagged if the words around it say that it is not stated."""
    # an open box has all the rest of the text in it: there are no words behind it
    if found.flaw or found.method == "open-box":
        return found
    # after a phrase `_line` has looked for the question mark already
    may_ask = found.method in ("box", "bare-box", "tag")
    words = flaw_around(text, found.start, found.stop, may_ask=may_ask)
    if words is None:
        return found
    flaw, others = words
    return found._replace(flaw=flaw, others=others)


# ----------------------------------------------------------------------------------- boxes and tags


def _last_explicit(text: str, begin: int, openers: tuple[str, ...]) -> Extraction | None:
    """The last box or tag, flagged if another one in the same statement says something else.

    Args:
        text: a completion.
        begin: where the thinking ends.
        openers: what boxes and tags begin with.
    """
    # most texts have one box; "box" is in all three commands, and in the eaten one
    if openers is _BOXES and text.count("box", begin) == 1:
        at = text.rfind(_BOXES[0], begin)
        if at >= 0:
            return _opened(text, at, _BOXES[0])
    final: Extraction | None = None
    alternatives: list[str] = []
    parts: list[tuple[int, str]] = []
    empty: Extraction | None = None
    last = {opener: at for opener in openers if (at := text.rfind(opener, begin)) >= 0}
    if not last:
        return None
    earliest = len(text)
    for _ in range(_MOST):
        if not last:
            break
        # of the kinds of openers the one that stands last, so that boxes and tags are taken in
        # order
        opener = max(last, key=last.__getitem__) if len(last) > 1 else next(iter(last))
        at = last[opener]
        if (before := text.rfind(opener, begin, at)) >= 0:
            last[opener] = before
        else:
            del last[opener]
        extraction = _opened(text, at, opener)
        if extraction is None:
            continue
        # "\boxed{}" as the last answer says nothing: the one before it is not taken for it
        if final is None and extraction.flaw == "empty-box" and extraction.method == "box":
            if not _NAMES_BOX.search(text, max(begin, at - _NEAR), at):
                return extraction
            empty = empty or extraction  # the answer is in the one before
            continue
        if final is None:
            final = extraction
        # it encloses what came after: an outer box says more, a tag does not
        elif extraction.stop >= final.stop:
            final, parts = (extraction, []) if extraction.method == "box" else (final, parts)
        elif not in_one_statement(
            text, at, text[extraction.stop : earliest].removeprefix(_TAG_END)
        ):
            # the end of an earlier statement: its boxes are steps, or were corrected
            break
        # "put it in \\boxed{}" is no second answer
        elif not extraction.flaw and _letters(extraction) != _letters(final):
            alternatives.append(extraction.answer)
        # an open or empty box at the end stands for itself: earlier answers do not help it
        if final.flaw:
            return final
        if not extraction.flaw:
            parts.append((at, extraction.answer))
        earliest = at
    if final is None:
        return empty
    if len(parts) < 2:
        return final._replace(flaw="hedged", others=tuple(alternatives)) if alternatives else final
    named = tuple(_name_before(text, at) + answer for at, answer in reversed(parts))
    return final._replace(
        flaw="hedged" if alternatives else "", others=tuple(alternatives), parts=named
    )


def _name_before(text: str, at: int) -> str:
    # 30 characters: more than the longest name and its sign
    if part := _PART_BEFORE.search(text, max(0, at - 30), at):
        return part[1]
    name = _NAME_BEFORE.search(text, max(0, at - 30), at)
    return f"{name[1]} = " if name else ""


def _opened(text: str, at: int, opener: str) -> Extraction | None:
    after = at + len(opener)
    if opener == _TAG:
        end = text.find(_TAG_END, after)  # missing where it was the sampler's stop string
        if end >= 0 and text[after:end].strip(" `*") == "and":
            return None  # "between <answer> and </answer>" repeats the instruction
        return _trim_extraction(text, after, len(text) if end < 0 else end, "tag")
    if plain := _PLAIN_BOX.match(text, after):
        return Extraction(plain[1], after + 1, plain.end() - 1, "box")
    if text[after : after + 1].isalpha():  # some other command, such as \boxedtext
        return None
    brace = _BOX_START.match(text, after)
    if brace is None:
        bare = _BARE.match(text, after)
        return (
            _trim_extraction(text, *bare.span(1), "bare-box")
            if bare
            else _trim_extraction(text, after, after, "bare-box")
        )
    stop = _closing(text, brace.end())
    if stop is not None:
        return _innermost(text, _trim_extraction(text, brace.end(), stop, "box"))
    extraction = _trim_extraction(text, brace.end(), len(text), "open-box")
    # a reply cut off by a limit or a stop string right behind the answer still has it on one line;
    # lines of further reasoning in the box are no answer
    is_closed_by_line = "\n" not in extraction.answer and len(text) - brace.end() <= _WINDOW
    return (
        extraction
        if is_closed_by_line
        else extraction._replace(answer="", stop=extraction.start, flaw="unclosed-box")
    )


def _closing(text: str, start: int) -> int | None:
    r"""The brace that closes the box opened just before `start`; `\{` and `\}` do not count."""
    depth = 1
    # within the window only: a brace that never closes would be looked for to the end, once per box
    for match in _BRACE.finditer(text, start, start + _WINDOW):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return None


def _innermost(text: str, found: Extraction) -> Extraction:
    r"""`\boxed{\boxed{5}}` holds 5."""
    for box in _BOXES if found.answer.startswith("\\") else ():
        if (
            found.answer.startswith(box + "{")
            and _closing(text, found.start + len(box) + 1) == found.stop - 1
        ):
            return _trim_extraction(text, found.start + len(box) + 1, found.stop - 1, "box")
    return found


def _trim_extraction(text: str, start: int, stop: int, method: ExtractionMethod) -> Extraction:
    """Move both ends inwards over space, bold marks and a final full stop."""
    inner = text[start:stop]
    edges = (
        _EDGES
        if method in ("marker", "phrase") or ("*" in inner and _is_bold(inner))
        else _PLAIN_EDGES
    )
    start += len(inner) - len(inner.lstrip(edges))
    inner = inner.strip(edges)
    # in a box or a tag a full stop is part of what is stated, and each verifier judges it itself
    if method not in ("box", "tag"):
        inner = inner.rstrip(edges + (".,;$" if method == "open-box" else ".,;"))
    # after a marker or a phrase nothing is no flaw: `_last_line` then returns None, and weaker
    # marks are looked for
    empty = not inner.strip("$. ") and method != "marker" and method != "phrase"
    return Extraction(inner, start, start + len(inner), method, "empty-box" if empty else "")


def _is_bold(text: str) -> bool:
    """A star on one side only multiplies."""
    inner = text.strip(_PLAIN_EDGES)
    return inner[:1] == "*" == inner[-1:]


def _letters(found: Extraction) -> str:
    # a tag may hold all the rest of a text: what lies beyond the window is not compared
    return "".join(found.answer[:_WINDOW].split())


# ------------------------------------------------------------------------------ markers and phrases


@lru_cache(maxsize=64)
def _marker_pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    # "**Answer:**", "> A:" and "## Answer:"; within a line "A:" may be the end of "Plan A:"
    line_start = r"^[ \t*_#>]{0,8}+"
    words = [re.escape(marker) for marker in markers if marker[:1].isalpha()]
    signs = [re.escape(marker) for marker in markers if not marker[:1].isalpha()]
    return re.compile("|".join([line_start + word for word in words] + signs), re.MULTILINE)


def _last_marked(
    text: str, begin: int, markers: Sequence[str], *, lines: bool = False
) -> Extraction | None:
    """The rest of the line after the last marker; `lines` as of `_last_line`."""
    if not any(map(text.__contains__, markers)):  # quicker than the pattern
        return None
    return _last_line(text, begin, _marker_pattern(tuple(markers)), "marker", lines=lines)


def _last_line(
    text: str,
    begin: int,
    pattern: re.Pattern[str],
    method: ExtractionMethod,
    words: Sequence[str] = (),
    *,
    lines: bool = False,
) -> Extraction | None:
    """The rest of the line after the last match; after a phrase, only the rest of the sentence.

    With `lines` it is the text up to the next empty line.  `words`, if there are any: each match
    has one of them, in small or capital letters, in the line in which it begins.
    """
    if words:  # to look for a word takes a hundredth of the time
        is_ascii = text.isascii()
        folded = text.lower() if is_ascii else text.translate(_DOTLESS).casefold()
        present = [word for word in words if word in folded]
        if not present:
            return None
        if is_ascii:  # elsewhere a folded character may be two
            # the pattern starts at the line of the first word: what stands before it can't match
            places = [at for word in present if (at := folded.find(word, begin)) >= 0]
            begin = max(begin, text.rfind("\n", begin, min(places, default=len(text))) + 1)
    # in the last lines of a long text first: the last one that states something decides
    end_begin = max(begin, text.rfind("\n", begin, max(begin, len(text) - _LAST_CHARS)) + 1)
    for first in dict.fromkeys((end_begin, begin)):
        starts = deque(map(re.Match.end, pattern.finditer(text, first)), maxlen=_MOST)
        for start in reversed(starts):  # a question behind it is passed over
            extraction = _paragraph(text, start, method) if lines else _line(text, start, method)
            if extraction is not None:
                return extraction if extraction.answer else None
    return None


def _paragraph(text: str, start: int, method: ExtractionMethod) -> Extraction:
    heading = _HEADING_END.match(text, start)
    start = heading.end() if heading else start
    end = _EMPTY_LINE.search(text, start)
    return _trim_extraction(text, start, end.start() if end else len(text), method)


def _line(text: str, start: int, method: ExtractionMethod) -> Extraction | None:
    """None for a question: "is the answer 5?" states nothing."""
    if method == "phrase" and (blank := _BLANK.match(text, start)):
        start = blank.end()  # "Final answer:" may be a heading
    newline = text.find("\n", start)
    stop = len(text) if newline < 0 else newline
    if method == "phrase" and (end := _SENTENCE_END.search(text, start, stop)):
        if text[end.start()] == "?":
            return None
        stop = end.start()
    # only with an answer before it: "The answer is, because of symmetry, 5" has none there
    if (reason := _REASON.search(text, start, stop)) and text[start : reason.start()].strip(_EDGES):
        stop = reason.start()  # what follows is why it is the answer
    return _trim_extraction(text, start, stop, method)

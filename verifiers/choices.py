"""Multiple choice: the final answer names one option, by its letter, its text
or both, and nothing else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Verdict
from rlvr.verifiers.answers import Answer, Form, without_commands
from rlvr.verifiers.base import WRAPPINGS, BaseVerifier
from rlvr.verifiers.math import MathPolicy, MathVerifier
from rlvr.verifiers.short_answers import kept_of_two, tokens, within_sentence

__all__ = ["ChoiceVerifier", "Choices", "LETTERS"]

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The names of the options, in order."""

_NAMED = (
    r"(?:(?:the )?(?:final |best |correct |right )?(?:answer|option|choice)(?: (?:is|would be))?"
    r"[: ]*|"
    r"(?:so|thus|hence|therefore),? |it(?:['’]s| is) |i (?:choose|pick|select) |only )"
)
# "B", "(b)", "B.", "the answer is B" and "Option: [B]"
_LETTER = re.compile(rf"(?:{_NAMED})*[(\[{{]?\s*((?a:[A-Za-z]))\s*[)\]}}]?[.):!]?", re.IGNORECASE)
# "(B) Lyon", "B. Lyon", "B - Lyon" and "B (Lyon)": without a sign behind it, a letter may be a
# word, as in "A dog"
_LETTER_AND_TEXT = re.compile(
    rf"(?i:{_NAMED})*(?:\(([A-Z])\)[.:,]?|([A-Z])[.):,]|([A-Z]) ?[-–—=]|([A-Z])(?= \())\s*(\S.*)",
    re.DOTALL,
)
_BESIDE = re.compile(  # "B Lyon", "Lyon (B)" and "Lyon, option B", if the text is that option's
    r"(?P<letter>[A-Z])\s+(?P<text>\S.*)|(?P<before>\S.{2,}?)\s*[(\[](?P<after>[A-Z])[)\]]|"
    r"(?P<said>\S.*?),? (?:so |which is )?(?:option|choice) (?P<last>[A-Z])",
    re.DOTALL,
)
# "Option B is correct", "Lyon is the right answer", "B only"
_IS_RIGHT = re.compile(
    r" (?:is (?:the )?(?:only )?(?:correct|right|best|true)"
    r"(?: answer| option| choice| one)?|only)\.?\Z",
    re.IGNORECASE,
)
_SAID = re.compile(rf"(?:{_NAMED})+", re.IGNORECASE)
# a capital letter on its own, as in "B or C"; not that of "B12"
_LISTED = re.compile(r"(?<![A-Za-z0-9'’])([A-Z])(?![A-Za-z0-9'’])")
_EXACT: Final = MathVerifier(MathPolicy(symbolic=False))
_NUMBER = re.compile(r"[-+−]?\$?\.?\d[\d.,]{0,20}%?|\\?[dt]?frac.{1,40}|[-+]?\d{1,9} ?/ ?\d{1,9}%?")


@dataclass(frozen=True, slots=True)
class Choices:
    """A reference that was read.

    Attributes:
        options: their texts.
        right: the indexes of the right one, and of others that say the same.
    """

    options: tuple[str, ...]
    right: frozenset[int]


@dataclass(frozen=True, slots=True)
class ChoiceVerifier(BaseVerifier[Answer, Choices]):
    r"""Verifies a choice between lettered options.

    The reference is `{"options": ["4", "5"], "answer": "5"}`: the options as the prompt shows them,
    and the text of the right one.  The answer is what stands in the last `\boxed{}` or `<answer>`,
    after the last "Answer:", or in "the answer is …"; a letter anywhere else is none.  It may be a
    letter, "B. 5", "5", or an equal number such as "5.0".

        >>> asked = {"options": ["4", "5"], "answer": "5"}
        >>> ChoiceVerifier().verify(r"So \boxed{B}", asked).why
        'same-choice'
        >>> ChoiceVerifier().verify(r"So \boxed{5.0}", asked).why
        'same-choice'
        >>> ChoiceVerifier().verify("B", asked).why
        'no-answer'

    The reasons: `same-choice` is CORRECT; `no-answer empty-box unclosed-box` and `no-such-choice`
    UNPARSED; `another-choice`, `hedged` (two letters, a letter with the text of another option, or
    two boxes that differ) and `too-long` WRONG.
    """

    version: ClassVar[int] = 4
    form: ClassVar[Form] = Form(longest=4000)
    reference_form: ClassVar[str] = (
        "a mapping of options, a list of texts, and answer, the text of one"
    )
    rewritings: ClassVar[tuple[str, ...]] = (*WRAPPINGS, "full stop")
    reference_example: ClassVar[object] = {"options": ["4", "5"], "answer": "5"}

    def read(self, reference: Any) -> Choices:
        """The options, and which are right.

        Args:
            reference: a mapping of `options` and `answer`.

        Raises:
            DataError: it is none, or has fewer than 2 or more than 26 options; or the answer is
                none of them, or is several that differ in case alone.
        """
        options = reference.get("options") if isinstance(reference, Mapping) else None
        if not isinstance(options, list | tuple):
            raise DataError(
                f"the reference is {brief(reference)}; it must be {{'options': ['4', '5'], "
                f"'answer': '5'}}"
            )
        if not 2 <= len(options) <= len(LETTERS) or not all(
            isinstance(option, str) and option.strip() for option in options
        ):
            raise DataError(
                f"the options are {brief(list(options))}; give 2 to 26 texts that are not empty"
            )
        answer = reference.get("answer")
        right = _matching(answer, tuple(options)) if isinstance(answer, str) else frozenset()
        if not right:
            raise DataError(
                f"the answer {brief(answer)} is none of the options {brief(list(options))}; give "
                f"its text"
            )
        # as where a data set has lost its texts and holds the same one twice
        if len(right) == len(options):
            raise DataError(f"all options are {brief(answer)}; any answer would be right")
        return Choices(tuple(options), right)

    def judge(self, answer: Answer, reference: Choices) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        # full-width letters and digits, as East Asian keyboards write them
        text = _bare(answer.text)
        named = _name_options(text, reference.options)
        # "B, not A" names two letters and means one of them
        if not named and (last_half := kept_of_two(text)) != text:
            named = _name_options(last_half, reference.options)
        if named is None:
            named = _within(text, answer.prompt, reference.options)
        # "C. Jupiter is the largest planet"
        elif not named and (parts := _LETTER_AND_TEXT.fullmatch(text)) is not None:
            index = LETTERS.index(next(filter(None, parts.groups())))
            named = (_within(parts[5], answer.prompt, reference.options) or named) & {index}
        if named is None:
            why = f"no-such-choice: {text[:80]!r}"
            return Verdict(Outcome.UNPARSED, why=why, answer=answer.text)
        if not named:
            why = "hedged: several options are named"
            return Verdict(Outcome.WRONG, why=why, answer=answer.text)
        if not named <= reference.right:
            why = f"another-choice: {LETTERS[min(named)]}"
            return Verdict(Outcome.WRONG, why=why, answer=answer.text)
        return Verdict(Outcome.CORRECT, why="same-choice", answer=answer.text)

    def example(self, reference: object) -> str:
        choices = self.read(reference)
        index = min(choices.right)
        if _matching(LETTERS[index], choices.options) in (frozenset(), choices.right):
            return f"\\boxed{{{LETTERS[index]}}}"
        # its letter is another one's text
        return f"<answer>{LETTERS[index]}. {choices.options[index]}</answer>"


@lru_cache(maxsize=2048)
def _fold_options(options: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The options without surplus space and full stop, and besides in one case."""
    plain = [_plain(option) for option in options]
    return plain, [option.casefold() for option in plain]


def _bare(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", without_commands(text)).rstrip("。").split())


def _plain(text: str) -> str:
    plain = _bare(text)
    return plain.rstrip(". ") or plain


def _matching(text: str, options: tuple[str, ...]) -> frozenset[int]:
    """The options with this text; in another case where only equal options are the same in one
    case."""
    plain, folded = _fold_options(options)
    plain_text = _plain(text)
    exact = frozenset(index for index, option in enumerate(plain) if option == plain_text)
    # first as written: "mg" and "Mg" may both be options
    if exact:
        return exact
    same = frozenset(
        index for index, option in enumerate(folded) if option == plain_text.casefold()
    )
    return same if len({plain[index] for index in same}) == 1 else frozenset()


def _name_options(answer: str, options: tuple[str, ...]) -> frozenset[int] | None:
    """The options that an answer names, all of one text; none where it names several, None if it
    can't be read."""
    text_named = answer.strip().strip("\"'").strip()
    same = _matching(text_named, options)
    if letter := _LETTER.fullmatch(text_named):
        index = LETTERS.index(letter[1].upper())
        if same:
            return same if index in same else frozenset()  # "b" may be the text of another option
        return frozenset((index,)) if index < len(options) else None
    # the text of an option, before "A dog" is read as a letter with a text
    if same:
        return same
    if beside := _BESIDE.fullmatch(text_named.rstrip(".")):
        index = LETTERS.index(beside["letter"] or beside["after"] or beside["last"])
        if index in _matching(beside["text"] or beside["before"] or beside["said"], options):
            return frozenset((index,))
    if is_right := _IS_RIGHT.search(text_named):
        named = text_named[: is_right.start()].strip("*_")
        return None if _IS_RIGHT.search(named) else _name_options(named, options)
    if match := _LETTER_AND_TEXT.fullmatch(text_named):
        *letters_named, text = match.groups()
        index = LETTERS.index(next(filter(None, letters_named)))
        if index >= len(options):
            return None
        # a letter with a text counts where the text is that option's: "B. Lyon" for B. Paris names
        # two
        inner = text.strip()
        if inner.startswith("(") and inner.endswith(")"):
            inner = inner[1:-1]
        if index in _matching(text, options) | _matching(inner, options):
            return frozenset((index,))
        # "B. 5.0" where option B is 5
        if same := _equal_number(inner, options):
            return same if index in same else frozenset()
    elif (stripped := _SAID.match(text_named)) and stripped.end() < len(text_named):
        return _name_options(text_named[stripped.end() :], options)
    elif same := _equal_number(text_named, options):
        return same
    # no letters beyond the last option: with options A to D, "I" is a word
    letters = {
        listed for listed in _LISTED.findall(text_named) if listed <= LETTERS[len(options) - 1]
    }
    return frozenset() if len(letters) > 1 or match else None


def _within(said: str, prompt: str, options: tuple[str, ...]) -> frozenset[int] | None:
    """The option whose text a sentence holds that has no other words than the question; None if
    there is none."""
    # from B on: an A at the head of a sentence is most often the article
    if set(_LISTED.findall(said)) & set(LETTERS[1 : len(options)]):
        return None  # a letter beside the text, of another option
    option_words = _words_of(options)
    longest = max(option.count(" ") + 1 for option in options)
    cores = within_sentence(said, prompt, option_words, longest)
    return next(filter(None, (_matching(core, options) for core in cores)), None)


@lru_cache(maxsize=2048)
def _words_of(options: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word.casefold() for option in options for word in tokens(option))


def _equal_number(said: str, options: tuple[str, ...]) -> frozenset[int]:
    """The option whose number an answer is in another notation, where there is only one."""
    if not _NUMBER.fullmatch(said):
        return frozenset()
    same = []
    for index, option in enumerate(options):
        try:
            if len(option) < 60 and _EXACT.compare(said, option).correct:
                same.append(index)
        except DataError:
            continue  # an option that is no mathematics
    return frozenset(same) if len(same) == 1 else frozenset()

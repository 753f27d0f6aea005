"""Ready-made parts of a reward, each with its bounds, its source and the choice
that the source leaves open."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import ClassVar

from rlvr.errors import MissingDependency, UsageError
from rlvr.rewards import text
from rlvr.rewards.composition import Bounds, GroupPart, Part
from rlvr.text import squeeze_text
from rlvr.types import Completion, Outcome, Task, Verdict, describe_returned, is_async
from rlvr.validate import is_number, require_whole

__all__ = ["Format", "Language", "Length", "Majority", "Overlong", "RelativeLength", "Repetition"]


@dataclass(frozen=True)
class Format(Part):
    """1 if the completion has the form asked for, else 0.

    Args:
        form: a predicate on the text, such as `rlvr.verifiers.math.BOXED`; or a template such as
            `"<think>...</think> <answer>...</answer>"`: `...` is any text that is not blank, a
            space is any white space or none, and each literal must occur exactly as often as in the
            template.  At the begin or end of a template `...` may also be empty; white space at
            either end is ignored.  Regular expressions are not supported: on hostile text one can
            take years.
        name: of the part in `Score.parts`.

    Raises:
        UsageError: `form` is neither a predicate nor a template with at least one literal.
    """

    form: Callable[[str], bool] | str
    name: str = "format"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if isinstance(self.form, str):
            if not text.pattern(self.form)[0]:
                raise UsageError(
                    f"Format({self.form!r}): a template needs literal text around each '...'"
                )
        elif not callable(self.form) or is_async(self.form):
            raise UsageError(
                f"Format({self.form!r}): give a function str -> bool, or a template with '...'; "
                f"not an async one"
            )

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        holds = (
            text.fits(self.form, completion.text)
            if isinstance(self.form, str)
            else self.form(completion.text)
        )
        if isawaitable(holds):  # which would count as True
            raise UsageError(
                f"{self.form!r} returned {describe_returned(holds)}: Format takes a plain function"
            )
        return float(bool(holds))


@dataclass(frozen=True)
class Overlong(Part):
    """Soft overlong punishment, in [-1, 0]: DAPO (arXiv:2503.14476) eq. 13.

    With L = length_tokens: 0 up to `max_tokens - cache`, then linear down to -1 at `max_tokens`,
    and -1 beyond.  The paper takes max_tokens = 20480, cache = 4096.

    Args:
        max_tokens: length from which the value is -1.
        cache: number of tokens before `max_tokens` over which the value falls.
        name: of the part in `Score.parts`.

    Raises:
        UsageError: a length is no whole number of at least 1, or `cache` is greater than
            `max_tokens`.
    """

    max_tokens: int
    cache: int
    name: str = "overlong"
    bounds: ClassVar[Bounds] = (-1.0, 0.0)
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_whole("Overlong: max_tokens", self.max_tokens, 1)
        require_whole("Overlong: cache", self.cache, 1)
        if self.cache > self.max_tokens:
            raise UsageError(
                f"Overlong: cache={self.cache} is more than max_tokens={self.max_tokens}; it is a "
                f"part of it"
            )

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        length, free = _length(completion), self.max_tokens - self.cache
        if length <= free:
            return 0.0
        return -1.0 if length > self.max_tokens else (free - length) / self.cache


@dataclass(frozen=True)
class Repetition(Part):
    """Minus the share of word n-grams that occurred before, in [-1, 0].

    -(1 - distinct / all) over the text's n-grams: the penalty of "Demystifying Long
    Chain-of-Thought" (arXiv:2502.03373) without its weight, which is a factor such as `0.1 *`.
    Case is ignored; in scripts without spaces (Han, Kana) each character is a word.  A text with
    fewer than `ngram` words gives 0.

    Args:
        ngram: number of words in an n-gram.
        name: of the part in `Score.parts`.

    Raises:
        UsageError: `ngram` is no whole number of at least 1.
    """

    ngram: int = 20
    name: str = "repetition"
    bounds: ClassVar[Bounds] = (-1.0, 0.0)

    def __post_init__(self) -> None:
        require_whole("Repetition: ngram", self.ngram, 1)

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        words = text.split_words(completion.text.casefold())
        # Number of n-grams, overlapping ones included.
        total = len(words) - self.ngram + 1
        if total < 1:
            return 0.0
        # Hashes, not tuples, are kept: a 1 MB text with long n-grams would hold them all at once.
        distinct = len({hash(tuple(words[i : i + self.ngram])) for i in range(total)})
        return distinct / total - 1.0


@dataclass(frozen=True)
class Length(Part):
    """Cosine length reward (arXiv:2502.03373, section 4): favours short right
    answers and long wrong ones.

    With L = length_tokens the value follows half a cosine from `correct[0]` at L = 0 to
    `correct[1]` at `max_tokens` if the verdict is CORRECT, else from `wrong[0]` to `wrong[1]`; from
    `max_tokens` on it is `exceeded`.  The paper's values are correct=(2, 1), wrong=(-10, 0),
    exceeded=-10; the defaults keep the shape inside [-1, 1].

    Args:
        max_tokens: length from which the value is `exceeded`.
        correct, wrong: values at length 0 and at `max_tokens`.
        exceeded: value of completions that are too long.
        name: of the part in `Score.parts`.

    Raises:
        UsageError: `max_tokens` is no whole number of at least 1, or a value is not finite.
    """

    max_tokens: int
    correct: tuple[float, float] = (1.0, 0.5)
    wrong: tuple[float, float] = (-1.0, -0.5)
    exceeded: float = -1.0
    name: str = "length"
    needs_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_whole("Length: max_tokens", self.max_tokens, 1)
        for what, ends in (("correct", self.correct), ("wrong", self.wrong)):
            if not (isinstance(ends, Sequence) and len(ends) == 2 and all(map(is_number, ends))):
                raise UsageError(
                    f"Length: {what} is {ends!r}; it must be two numbers, at no length and at "
                    f"max_tokens"
                )
        if not is_number(self.exceeded):
            raise UsageError(f"Length: exceeded is {self.exceeded!r}; it must be a finite number")

    @property
    def bounds(self) -> Bounds:
        # A cosine between two ends never leaves them, so the five settings hold every value.
        values = (*self.correct, *self.wrong, self.exceeded)
        return min(values), max(values)

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        length = _length(completion)
        if length >= self.max_tokens:
            return self.exceeded
        first, last = self.correct if verdict.outcome is Outcome.CORRECT else self.wrong
        # The last factor falls from 1 at length 0 to 0 at `max_tokens`.
        value = last + (first - last) * (1 + math.cos(math.pi * length / self.max_tokens)) / 2
        # rounding may leave the ends by one ulp
        return min(max(value, min(first, last)), max(first, last))


@dataclass(frozen=True)
class Language(Part):
    """The share of words in one language, in [0, 1]: DeepSeek-R1's consistency reward
    (arXiv:2501.12948, 2.3.2).

    The paper counts words of the target language and does not say how it identifies them.  Here
    py3langid (extra `language`) identifies the language of each sentence, and a word counts if its
    sentence is in the language and the word in the sentence's main script, so that "I think, 所以
    the answer" loses.  Formulas, code, numbers and single letters do not count; a text of fewer
    than 24 letters, too short to identify, gives 1.  Closely related languages (Danish and
    Norwegian, Croatian and Serbian) are confused: use it to distinguish distant languages.

    Args:
        code: ISO 639-1 code of the language, such as "en" or "zh".
        name: of the part in `Score.parts`.

    Raises:
        MissingDependency: py3langid is not installed.
        UsageError: py3langid does not know the code.
    """

    code: str
    name: str = "language"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("py3langid") is None:
            raise MissingDependency("py3langid, which the Language reward needs,", "language")
        if self.code not in text.languages():
            raise UsageError(
                f"Language({self.code!r}): no such language; known: {' '.join(text.languages())}"
            )

    def value(self, task: Task, completion: Completion, verdict: Verdict) -> float:
        in_script = total = 0
        for sentence, words in text.prose_sentences(text.prose(completion.text)):
            total += len(words)
            if text.classify(sentence) == self.code:
                # How many words are in the sentence's main
                # script, judged by each word's first letter.
                in_script += Counter(text.script(word[0]) for word in words).most_common(1)[0][1]
        return in_script / total if total else 1.0


@dataclass(frozen=True)
class RelativeLength(GroupPart):
    """Length penalty of Kimi k1.5 (arXiv:2501.12599, 2.3.3), in [-0.5, 0.5]: favours the
    shorter ones of a group.

    0.5 - (L - min) / (max - min) over the group for a CORRECT completion, and at most 0 for any
    other; 0 for all if all lengths are equal.

    Args:
        name: of the part in `Score.parts`.
    """

    name: str = "relative_length"
    bounds: ClassVar[Bounds] = (-0.5, 0.5)
    needs_length: ClassVar[bool] = True

    def values(self, completions: Sequence[Completion], verdicts: Sequence[Verdict]) -> list[float]:
        lengths = [_length(c) for c in completions]
        # The defaults are for a group of which every completion is UNSCORED.
        shortest, longest = min(lengths, default=0), max(lengths, default=0)
        if shortest == longest:
            return [0.0] * len(lengths)
        shares = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
        return [
            s if v.outcome is Outcome.CORRECT else min(0.0, s)
            for s, v in zip(shares, verdicts, strict=True)
        ]


@dataclass(frozen=True)
class Majority(GroupPart):
    """1 for the most frequent answer of the group, else 0: TTRL's reward without labels
    (arXiv:2504.16084, 2.2).

    All answers tied for the first place get 1, so that a group without a majority has no effect; a
    completion without an answer gets 0.

    Args:
        key: two answers are the same if their keys are equal; by default the text without spaces
            and case.  It must take any text: if it raises, the whole group is UNSCORED.  None means
            no answer.
        name: of the part in `Score.parts`.

    Raises:
        UsageError: `key` is no function.
    """

    key: Callable[[str], Hashable] = squeeze_text
    name: str = "majority"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not callable(self.key) or is_async(self.key):
            raise UsageError(
                f"Majority: key is {self.key!r}; give a function of the answer's text, not async"
            )

    def values(self, completions: Sequence[Completion], verdicts: Sequence[Verdict]) -> list[float]:
        keys = [None if v.answer is None else self.key(v.answer) for v in verdicts]
        votes = Counter(key for key in keys if key is not None)
        top = max(votes.values(), default=0)
        return [float(key is not None and votes[key] == top) for key in keys]


def _length(completion: Completion) -> int:
    assert completion.length_tokens is not None  # `needs_length` has been checked before
    return completion.length_tokens

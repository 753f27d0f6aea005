"""Answers of several parts: lists, ordered or not, and named parts with a verifier for each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from rlvr.errors import DataError, UsageError, brief
from rlvr.text import ANSWER_TAGS
from rlvr.types import JsonObject, Outcome, Verdict
from rlvr.verifiers.answers import Answer, Form, unwrap, without_commands
from rlvr.verifiers.base import BaseVerifier
from rlvr.verifiers.json_schema import read_strict_json
from rlvr.verifiers.matching import has_perfect_matching
from rlvr.verifiers.named import make_verifier
from rlvr.verifiers.short_answers import same_answer

__all__ = ["ListVerifier", "PartsVerifier"]

_Items: TypeAlias = tuple[tuple[str, ...], ...]
"""Each item, as the texts that will do for it."""

_MOST: Final = 100  # items, and parts
_ITEM: Final = 200  # characters of an item
# "- ", "• ", "1. ", "(2) ", "a) "
_MARK: Final = re.compile(r"^\s*(?:[-*•–]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+")
# "All except:" and "These are wrong:" list no items
_DENIED: Final = re.compile(
    r"\b(?:not?|never|none|neither|except|excluding|but|without|wrong|incorrect|false|maybe|"
    r"perhaps|possibl[ey])\b|n['’]t\b",
    re.IGNORECASE,
)
# "x = 3" and "x_1 = 3": the name of an unknown in front of an item
_NAME: Final = re.compile(r"\A[A-Za-z](?:_\{?\d\}?)? ?= ?")
_BRACKETS: Final = (("[", "]"), ("(", ")"), ("{", "}"), ("\\{", "\\}"))


@dataclass(frozen=True)
class ListVerifier(BaseVerifier[Answer, _Items]):
    """Compares a list of short answers with the list that is asked for; each
    must be there, and no other.

    The reference is a list; an item is a text or number, or a list of texts of which each will do.
    The answer has its items on lines, with or without bullets or numbers, or with commas,
    semicolons or "and" between them; values of one unknown, `x = 2 or x = 3`, with "or".  Items are
    compared as `QAVerifier` does.  The reasons: `same-list` is CORRECT; `other-count`,
    `other-items` and `other-order` WRONG.

    Attributes:
        ordered: whether the order counts.
        share: whether a WRONG answer of at most 200 items earns the share of the right items, of
            all items of both lists.
    """

    ordered: bool = False
    share: bool = False
    version: ClassVar[int] = 3
    form: ClassVar[Form] = Form(
        fences=frozenset(("", "text", "json")), bare=True, lines=True, longest=_MOST * _ITEM
    )
    reference_form: ClassVar[str] = "a list of texts, or of lists of texts of which each will do"
    reference_example: ClassVar[object] = ["Oslo", ["Bern", "Berne"], "Lima"]

    def read(self, reference: object) -> _Items:
        """The texts that will do for each item.

        Args:
            reference: a list.

        Raises:
            DataError: it is none, is empty, or has an item that is neither a text, a number, nor a
                list of texts.
        """
        if not isinstance(reference, list | tuple) or not 0 < len(reference) <= _MOST:
            raise DataError(
                f"the reference is {brief(reference)}; it must be a list of 1 to {_MOST} items"
            )
        items = tuple(map(_texts, reference))
        if len(_items("\n".join(f"- {texts[0]}" for texts in items), items)) != len(items):
            raise DataError(f"the items of {brief(reference)} cannot be told apart in an answer")
        return items

    def judge(self, answer: Answer, reference: _Items) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        items = _items(answer.text, reference)
        same_count = len(items) == len(reference)
        count = f"other-count: {len(items)} items, {len(reference)} are asked for"
        # each item is compared with each: of thousands, against a hundred, that takes a minute
        if not same_count and (not self.share or len(items) > 2 * _MOST):
            return Verdict(Outcome.WRONG, why=count, answer=answer.text)
        fits = [
            [any(same_answer(item, text, answer.prompt) for text in texts) for texts in reference]
            for item in items
        ]
        in_order = [at < len(row) and row[at] for at, row in enumerate(fits)]
        if same_count and (all(in_order) if self.ordered else has_perfect_matching(fits)):
            return Verdict(Outcome.CORRECT, why="same-list", answer=answer.text)
        if not same_count:
            why = count
        elif self.ordered and has_perfect_matching(fits):
            why = "other-order"
        else:
            why = f"other-items: {sum(not any(row) for row in fits)} are not asked for"
        # each item that is asked for counts once, however often the answer says it
        right = sum(in_order) if self.ordered else sum(map(any, zip(*fits, strict=True)))
        # shared over all that was said or asked: a list of everything earns little
        value = right / (len(items) + len(reference) - right) if self.share else 0.0
        # below 1: partial credit never looks like a right answer
        return Verdict(Outcome.WRONG, min(value, 0.99), why=why, answer=answer.text)

    def example(self, reference: object) -> str:
        items = (texts[0] for texts in self.read(reference))
        return "<answer>\n" + "\n".join(f"- {item}" for item in items) + "\n</answer>"


def _texts(item: Any) -> tuple[str, ...]:
    texts = item if isinstance(item, list | tuple) else [item]
    plain = [str(spelling) if type(spelling) in (int, float) else spelling for spelling in texts]
    if not plain or not all(
        isinstance(spelling, str)
        and spelling.strip()
        and "\n" not in spelling
        and len(spelling) <= _ITEM
        for spelling in plain
    ):
        raise DataError(
            f"the item {brief(item)} is no text on one line of at most {_ITEM} characters, nor a "
            f"list of such texts"
        )
    return tuple(spelling.strip() for spelling in plain)


def _json_or_none(text: str) -> object:
    try:
        return read_strict_json(text)
    except ValueError:
        return None


def _items(text: str, reference: _Items) -> list[str]:
    """The items of an answer, without a name before each, as in "x = 2, x = 3"."""
    items = [unwrap(item) for item in _split_items(without_commands(text), reference)]
    # where the reference names its unknowns, which is which counts
    if any("=" in text for texts in reference for text in texts):
        return items
    return [_NAME.sub("", item) for item in items]


def _split_items(text: str, reference: _Items) -> list[str]:
    """Commas and "and" part items only where no item of the reference has one."""
    lines = [line for line in text.splitlines() if line.strip()]
    # a list of JSON may have one item on each line
    if len(lines) > 1 and not text.lstrip().startswith("["):
        is_heading = lines[0].rstrip(" *").endswith(":") and not _DENIED.search(lines[0])
        if is_heading and all(map(_MARK.match, lines[1:])):
            lines = lines[1:]  # "The colours are:"
        return [_MARK.sub("", line).strip(" |").rstrip(",;") for line in lines]
    line = " ".join(lines).strip()
    decoded = _json_or_none(line)
    if isinstance(decoded, list) and all(type(item) in (str, int, float) for item in decoded):
        return [str(item) for item in decoded]
    for opening, closing in _BRACKETS:
        if (
            line.startswith(opening)
            and line.endswith(closing)
            and len(line) > len(opening + closing)
        ):
            line = line[len(opening) : -len(closing)]
            break
    line = " ".join(line.split())  # a run of spaces would be divided in each way
    reference_texts = [text for texts in reference for text in texts]
    if ";" in line or any("," in reference_text for reference_text in reference_texts):
        return [piece.strip() for piece in re.split(r";(?:\s*and\b)?", line)]
    if not any(re.search(r"\band\b|&", reference_text) for reference_text in reference_texts):
        line = re.sub(r",?\s+(?:and|&)\s+", ", ", line)
    values = re.split(r",?\s+or\s+", line)
    names = {name[0] if (name := _NAME.match(value)) else "" for value in values}
    if len(names) == 1 and "" not in names:  # "x = 2 or x = 3" says both of one unknown
        line = ", ".join(values)
    # not at the comma of "1,200"
    return [piece.strip().strip("\"'") for piece in re.split(r",(?!\d{3}\b)\s*|,\s+", line)]


@dataclass(frozen=True)
class PartsVerifier(BaseVerifier[Answer, Mapping[str, Any]]):
    """Compares an answer of several named parts, such as the parts (a) and (b) of a problem,
    each by its own verifier.

    The reference maps each name to the reference of its part.  The answer gives each name once, `a:
    9.8 m/s^2; b: 3 s`, on lines or as a JSON object.  The reasons: `all-parts` is CORRECT;
    `no-parts` and `missing` UNPARSED; `twice`, `no-part`, `hedged` and `wrong-parts` WRONG.
    `detail["parts"]` has the reason of each part.

    Attributes:
        verifier: the name of the parts' verifier, see `rlvr verifiers`: one that judges without
            waiting or programs.
        verifiers: names for single parts, by the part's name.
        share: whether a WRONG answer earns the share of the parts that are right.

    Raises:
        UsageError: there is no such verifier, or it waits or runs programs.
    """

    verifier: str = "science"
    verifiers: Mapping[str, str] = field(default_factory=dict)
    share: bool = False
    version: ClassVar[int] = 3
    form: ClassVar[Form] = Form(
        fences=frozenset(("", "text", "json")), bare=True, lines=True, longest=20_000
    )
    reference_form: ClassVar[str] = "a mapping from the name of a part to its reference"
    reference_example: ClassVar[object] = {"a": "9.8 m/s^2", "b": "3 s"}

    def __post_init__(self) -> None:
        for name in {self.verifier, *self.verifiers.values()}:
            # a part is one short line: programs and whole instructions have no place in it, and a
            # judge would be asked once for each part
            if name in ("code", "judge", "parts", "instructions"):
                raise UsageError(
                    f"{name!r} cannot judge a part; give science, math, qa or the like"
                )
            make_verifier(name)

    def read(self, reference: object) -> JsonObject:
        """The references of the parts by name.

        Args:
            reference: a mapping.

        Raises:
            DataError: it is none, a name has other signs than letters, digits, spaces and _, or a
                part cannot be read.
        """
        if not isinstance(reference, Mapping) or not 0 < len(reference) <= _MOST:
            raise DataError(f"the reference is {brief(reference)}; it must map names to references")
        for name, part in reference.items():
            if not isinstance(name, str) or not re.fullmatch(r"\w[\w ]{0,39}", name):
                raise DataError(f"the part {brief(name)}: a name has letters, digits, spaces and _")
            try:
                self._of(name).read(part)
            except DataError as error:
                raise DataError(f"the part {name!r}: {error}") from None
        if len({name.casefold() for name in reference}) < len(reference):
            raise DataError("two parts have the same name in another case")
        return dict(reference)

    def judge(self, answer: Answer, reference: JsonObject) -> Verdict:
        """The verdict on an answer.

        Args:
            answer: from `extract`.
            reference: from `read`.
        """
        parts = _said_parts(answer.text, tuple(reference))
        if isinstance(parts, Verdict):
            return parts
        verdicts = {
            # in a tag, so that nothing in the part can mark an answer of its own
            name: self._of(name).verify(f"<answer>{parts[name]}</answer>", part)
            for name, part in reference.items()
        }
        wrong = [name for name, verdict in verdicts.items() if not verdict.correct]
        detail = {"parts": {name: verdict.why for name, verdict in verdicts.items()}}
        if not wrong:
            return Verdict(Outcome.CORRECT, why="all-parts", answer=answer.text, detail=detail)
        value = 1 - len(wrong) / len(reference) if self.share else 0.0
        why = f"wrong-parts: {wrong[0]}, {verdicts[wrong[0]].why}"
        return Verdict(Outcome.WRONG, value, why, answer.text, detail)

    def example(self, reference: Any) -> str | None:
        lines = []
        for name, part in reference.items():
            example_text = self._of(name).example(part)
            answer = self._of(name).extract(example_text, None) if example_text else None
            text = answer.text if isinstance(answer, Answer) else part
            if not isinstance(text, str) or "\n" in text:
                return None
            lines.append(f"{name}: {text}")
        return "<answer>\n" + "\n".join(lines) + "\n</answer>"

    def _of(self, name: str) -> Any:
        return make_verifier(self.verifiers.get(name, self.verifier))


def _said_parts(text: str, names: Sequence[str]) -> dict[str, str] | Verdict:
    """What an answer says for each name; or the verdict that it does not say each once."""
    decoded = _json_or_none(text)
    # a part that holds a tag or a box would close the one that it is put into, and choose what is
    # judged
    if any(sign in text for sign in (*ANSWER_TAGS, "\\boxed")):
        return Verdict(Outcome.WRONG, why="hedged: an answer within a part", answer=text[:200])
    if isinstance(decoded, dict):
        pairs = [
            (key, value_of_key if isinstance(value_of_key, str) else json.dumps(value_of_key))
            for key, value_of_key in decoded.items()
        ]
    else:
        pairs = _read_named_parts(text, names)
    by_name = {name.casefold(): name for name in names}
    parts_by_name: dict[str, str] = {}
    for key, value in pairs:
        name = by_name.get(key.casefold())
        if name is None:
            # an unknown part may be a misspelt one, or a second answer to another
            return Verdict(Outcome.WRONG, why=f"no-part: {key[:40]!r} is none", answer=text[:200])
        if name in parts_by_name:
            return Verdict(Outcome.WRONG, why=f"twice: {name}", answer=text[:200])
        parts_by_name[name] = value
    if not parts_by_name:
        return Verdict(
            Outcome.UNPARSED, why="no-parts: write each as name: answer", answer=text[:200]
        )
    if missing := [name for name in names if name not in parts_by_name]:
        return Verdict(Outcome.UNPARSED, why=f"missing: {missing[0]}", answer=text[:200])
    return parts_by_name


def _read_named_parts(text: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """`a: 5; (b) 7` as pairs: a name begins a line, or follows a semicolon, a comma or "and"."""
    # the longest name first: "a1" is not the part "a"
    listed = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    begins = r"(?:^|[\n;,]|\band\b)[ \t|]{0,8}[-*•#]{0,8}[ \t]{0,8}\*{0,2}\$?(?:part[ \t]{1,8})?"
    in_brackets = rf"\(({listed})\)[ \t]*[:=.]?"
    plain = rf"\*{{0,2}}({listed})\*{{0,2}}[ \t]*[:=)|]"
    # "(a) 5", "a: 5", "**a** = 5", "part a) 5" and a row of a table, "| a | 5"
    label = re.compile(rf"{begins}(?:{in_brackets}|{plain})\*{{0,2}}", re.IGNORECASE)
    matches = list(label.finditer(text))
    ends = [*(match.start() for match in matches[1:]), len(text)][: len(matches)]
    pairs = []
    for match, end in zip(matches, ends, strict=True):
        value = text[match.end() : end].strip(" \t\n|").rstrip(",;")
        # "$x = 3$"
        pairs.append((match[1] or match[2], value.rstrip(" $") if "$" in match[0] else value))
    return pairs

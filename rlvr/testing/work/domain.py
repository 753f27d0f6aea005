"""The inputs that a task means, guessed from those that are known, and new inputs like them.

A property that all known inputs have belongs to the domain: their types, signs, least lengths,
order, brackets, letters, relations between arguments.  Those that a few values may share by chance
(order, distinctness) belong to it only where chance alone would give them in fewer than one of
twenty cases.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

__all__ = ["Domain", "Input", "Record", "nudged", "proposals", "smaller"]

Input: TypeAlias = "tuple[Any, ...]"
"""The arguments of one call."""

_Path: TypeAlias = "tuple[Any, ...]"


class Record(tuple[Any, ...]):
    """A tuple whose places mean different things, as the columns of a row do."""


_CHANCE: Final = 0.05
_RARE: Final = 1e-6
_NUDGE: Final = 1e-9  # of a float: far more than rounding, far less than what a task tells apart
_LEADING_ZERO: Final = re.compile(r"(?<![\d.])0\d")
_FEW: Final = 3  # values below which a property of all of them says nothing
_ODD_ONE: Final = 6  # values of which one may lack what the others share
_BRACKETS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}
# 1 <= n <= 1000, 0 < len(items) < 10, 1 <= s.length <= 20
_STATED: Final = re.compile(
    r"(-?\d{1,9}) ?(<=?) ?(len\()?([A-Za-z_]\w*)(?:\)|\.length|\.size)? ?(<=?) ?(-?\d{1,9})\b"
)
# n > 1, len(items) <= 10: with no other sign before or behind, which the first pattern has.
_ONE_SIDED: Final = re.compile(
    r"(?<![<>=] )\b(len\()?([A-Za-z_]\w*)\)? ?([<>]=?) ?(-?\d{1,9})\b(?! ?[<>])"
)
# "less than 10", "at most 10": behind any name.
_BELOW: Final = re.compile(
    r"\b(less than|smaller than|below|at most|up to|not greater than) (\d{1,9})\b"
)
_CLASSES: Final = ((str.islower, "a"), (str.isupper, "A"), (str.isdigit, "0"))
_LONGEST: Final = 40  # items of a new value
_EMPTY: Final = re.compile(r"\bempty\b")
_IS_EMPTY: Final = re.compile(
    r"\bnot (\w+):|\blen\((\w+)\) (?:==|<=?|>) [01]\b|"
    r"\b(\w+)(?:\.strip\(\))? == (?:\[\]|''|\"\")(?![\w'\"])"
)
"""What a program asks of a name that may be nothing."""
# "negative", but not "non-negative".
_NEGATIVE: Final = re.compile(r"(?<!non-)(?<!non)\bnegative\b|< 0\b")
_POSITIVE: Final = re.compile(r"(?<!non-)(?<!non)\bpositive (?:integer|number|whole)")
_MODULUS: Final = re.compile(r"\bmodul|\bprime|\bbase\b")
_PRIME: Final = re.compile(r"\bprimes?\b")
_ZERO: Final = re.compile(r"\bzero\b|\bnon-?negative\b|\w <= 0\b")


@dataclass
class Domain:
    """Which inputs a task means.

    Args:
        known: inputs that it means; at least one.
        text: the prompt and the reference: what they name (an empty list, negative numbers) is
            meant too.
        prompt: may state limits, such as `1 <= n <= 1000`, which count where the known inputs keep
            them.
        names: of the arguments in it.
    """

    known: Sequence[Input]
    text: str = ""
    prompt: str = ""
    names: Sequence[str] = ()
    _values: dict[_Path, list[Any]] = field(default_factory=lambda: defaultdict(list))
    _rules: dict[_Path, list[Callable[[Any], bool]]] = field(default_factory=dict)
    _relations: list[Callable[[Input], bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for args in self.known:
            for path, value in _parts(args):
                self._values[path].append(value)
        for path, values in self._values.items():
            rules = _rules(values, self.text, self._may_be_empty(path))
            # A limit that the known inputs break is of something else.
            self._rules[path] = [*rules, *_stated_most(values, self.prompt)]
        stated = _limits(self.prompt, self.names)
        self._relations = [
            *_relations(self.known),
            *(limit for limit in stated if all(map(limit, self.known))),
        ]

    def _may_be_empty(self, path: _Path) -> bool:
        """Whether the text has the word, or its program asks whether this argument is empty, or one
        of its parts: a name that is no argument's."""
        if _EMPTY.search(self.text):
            return True
        checked_names = {name for names in _IS_EMPTY.findall(self.text) for name in names if name}
        if not self.names:
            return bool(checked_names)
        argument_name = self.names[path[0]] if path[0] in range(len(self.names)) else ""
        return (
            argument_name in checked_names
            if len(path) == 1
            else bool(checked_names - {*self.names})
        )

    def values(self, path: Sequence[object]) -> Sequence[Any]:
        """The known values at a path.

        Args:
            path: the number of an argument, then "*" for each level of items.
        """
        return self._values.get(tuple(path), ())

    def has(self, args: Input) -> bool:
        """True if an input has all that the known ones share.

        Args:
            args: the input.
        """
        for path, value in _parts(args):
            rules = self._rules.get(path)
            # A path that no known input has is another shape.
            if rules is None or not all(_applies(rule, value) for rule in rules):
                return False
        return all(relation(args) for relation in self._relations)


def proposals(known: Sequence[Input], constants: Sequence[object], rng: Random) -> Iterator[Input]:
    """Inputs like the known ones, without end: boundaries, parts changed, values drawn anew.

    Args:
        known: inputs; at least one.
        constants: numbers and texts of the prompt and the programs, which may stand at a boundary.
        rng: draws them.
    """
    pools: dict[_Path, list[Any]] = defaultdict(list)
    for args in known:
        for path, value in _parts(args):
            pools[path].append(value)
    change = _Changes(pools, constants, rng)
    counts = [
        pair for pair in _find_counts(known[0]) if all(pair in _find_counts(args) for args in known)
    ]
    for args in change.boundaries(known):
        yield args
        if counts:
            yield _recount(args, counts)
    while True:
        values = list(copy.deepcopy(rng.choice(known)))
        if not values:
            return
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(values))
            anew = rng.random() < 0.35
            values[at] = change.draw((at,)) if anew else change.change(values[at], (at,))
        yield _recount(tuple(values), counts)


def _find_counts(args: Input) -> list[tuple[int, int]]:
    """Pairs of arguments of which one is the length of the other."""
    return [
        (length_at, sized_at)
        for length_at, sized_at in itertools.permutations(range(len(args)), 2)
        if type(args[length_at]) is int
        and _all_sized(args[sized_at])
        and args[length_at] == len(args[sized_at])
    ]


def _recount(args: Input, counts: Sequence[tuple[int, int]]) -> Input:
    """The input with these lengths as they are now."""
    values = list(args)
    for length_at, sized_at in counts:
        if sized_at < len(values) and _all_sized(values[sized_at]):
            values[length_at] = len(values[sized_at])
    return tuple(values)


def smaller(args: Input) -> Iterator[Input]:
    """Inputs that are simpler in one place.

    Args:
        args: the input.
    """
    counts = _find_counts(args)
    for at, value in enumerate(args):
        for simpler in _simpler(value):
            changed = (*args[:at], simpler, *args[at + 1 :])
            yield changed
            if counts:
                yield _recount(changed, counts)


def nudged(args: Input) -> list[Input]:
    """Inputs with one float a little greater or smaller; none where all floats are quarters, which
    are exact.

    Args:
        args: the input.
    """
    floats = [value for _, value in _parts(args) if type(value) is float and math.isfinite(value)]
    if all((4 * value).is_integer() for value in floats):
        return []
    steps = itertools.product(sorted(set(floats))[:_FEW], (1 + _NUDGE, 1 - _NUDGE))
    return [tuple(_nudge(value, which, by) for value in args) for which, by in steps]


def _nudge(value: object, which: float, by: float) -> object:
    match value:
        case float():
            return value * by if value == which else value
        case list() | tuple():
            return type(value)([_nudge(item, which, by) for item in value])
        case dict():
            return {key: _nudge(item, which, by) for key, item in value.items()}
    return value


@dataclass
class _Changes:
    """New values for a place, from what stands at the same place in known inputs."""

    pools: dict[_Path, list[Any]]
    constants: Sequence[object]
    rng: Random

    def boundaries(self, known: Sequence[Input]) -> Iterator[Input]:
        """Each known input with one argument at a boundary: a constant, one beside it, or
        nothing."""
        # Beside each number that the text or a program names.
        numbers = {n + by for n in self._numbers() for by in (-1, 0, 1)}
        ends = sorted({0, 1, 2, 3, *numbers}, key=lambda n: (abs(n), n))
        for args, at in itertools.product(known[:3], range(len(known[0]))):
            if at >= len(args):
                continue
            value: Any = args[at]
            edges: list[Any] = []
            if type(value) is int:
                edges = ends
            elif isinstance(value, dict):
                edges = [{}]
            elif isinstance(value, str | list | tuple):
                edges = [value[:0], value[:1], value[:2], value * 2]
            yield from ((*args[:at], edge, *args[at + 1 :]) for edge in edges)

    def _numbers(self) -> list[int]:
        return [n for n in self.constants if type(n) is int and abs(n) < 10**6]

    def draw(self, path: _Path) -> object:
        """A value of the kind that stands at a path."""
        rng = self.rng
        like = rng.choice(self.pools[path])
        if isinstance(like, str):
            return self._text(path, like)
        if isinstance(like, Record):
            return Record(self.draw((*path, at)) for at in range(len(like)))
        if isinstance(like, list) or (isinstance(like, tuple) and (*path, "*") in self.pools):
            inner = (*path, "*")
            if inner not in self.pools:
                return copy.deepcopy(like)
            # From a few values, so that items repeat.
            few = [self.draw(inner) for _ in range(rng.randint(1, 4))]
            count = rng.randint(0, min(_LONGEST, len(like) + 2))
            source = [
                rng.choice(few) if rng.random() < 0.4 else self.draw(inner) for _ in range(count)
            ]
            return type(like)(copy.deepcopy(source))
        return self.change(like, path)

    def change(self, value: object, path: _Path) -> Any:
        """The value with a part changed."""
        match value:
            case bool():
                return self.rng.random() < 0.5
            case int():
                return self._integer(path, value)
            case float():
                return self._float(path, value)
            case str():
                return self._text(path, value)
            case Record():
                place = self.rng.randrange(len(value))
                new = self.change(value[place], (*path, place))
                return Record([*value[:place], new, *value[place + 1 :]])
            case list() | tuple():
                return type(value)(self._items(list(value), path))
            case dict() if value:
                key = self.rng.choice(list(value))
                if self.rng.random() < 0.4:
                    return {k: v for k, v in value.items() if k != key}
                return {**value, key: self.change(value[key], (*path, "value"))}
        return value

    def _integer(self, path: _Path, value: int) -> int:
        rng, pool = self.rng, [n for n in self.pools[path] if type(n) is int]
        low, high = min(pool, default=0), max(pool, default=9)
        turn = rng.random()
        # A fifth at the constants of the text, a fifth beside the old value; the rest are small,
        # negated or drawn.
        if turn < 0.2 and (numbers := self._numbers()):
            return rng.choice(numbers) + rng.choice((-1, 0, 1))
        if turn < 0.4:
            return value + rng.choice((-1, 1))
        if turn < 0.55:
            return rng.randint(0, 12)
        if turn < 0.62:
            return -value
        return rng.randint(low, min(high, low + 10**6) + 2)

    def _float(self, path: _Path, value: float) -> float:
        rng, pool = self.rng, [n for n in self.pools[path] if isinstance(n, int | float)]
        choices = (rng.choice(pool), value + rng.choice((-1, 1, 0.5, -0.5)), float(round(value)))
        candidate = rng.choice((*choices, -value, round(rng.uniform(min(pool), max(pool)), 2)))
        return float(candidate) if math.isfinite(candidate) else value

    def _text(self, path: _Path, value: str) -> str:
        rng = self.rng
        pool = [text for text in self.pools[path] if isinstance(text, str)]
        letters = sorted(set("".join(pool))) or ["a"]
        words = sorted({word for text in pool for word in text.split()})
        turn = rng.random()
        if turn < 0.15:
            return rng.choice(pool)
        if turn < 0.3 and words and any(" " in text for text in pool):
            return " ".join(rng.choice(words) for _ in range(rng.randint(1, 6)))
        if turn < 0.45:
            return "".join(rng.choice(letters) for _ in range(rng.randint(0, len(value) + 2)))
        if turn < 0.55 and any(char.isdigit() for char in value):
            return re.sub(r"\d+", lambda m: str(max(0, int(m[0]) + rng.randint(-3, 9))), value)
        marks = list(value)
        for _ in range(rng.randint(1, 3)):
            self._edit_list(marks, lambda: rng.choice(self._letters(letters)))
        return "".join(marks)

    def _letters(self, letters: list[str]) -> list[str]:
        texts = [text for text in self.constants if isinstance(text, str) and len(text) < 20]
        return letters + [char for text in texts for char in text]

    def _items(self, items: list[object], path: _Path) -> list[object]:
        inner = (*path, "*")
        if inner not in self.pools:
            return items
        turn = self.rng.random()
        if turn < 0.15:
            self.rng.shuffle(items)
        elif turn < 0.25:
            # By repr first, so that items that cannot be compared have an order too.
            items.sort(key=repr)
            items.sort(key=lambda one: one if isinstance(one, int | float) else 0)
        elif turn < 0.6 and items:
            at = self.rng.randrange(len(items))
            items[at] = self.change(items[at], inner)
        else:
            self._edit_list(items, lambda: self.draw(inner))
        return items

    def _edit_list(self, items: list[Any], new: Callable[[], object]) -> None:
        """Drop, add, repeat or replace one item."""
        rng, turn = self.rng, self.rng.random()
        if items and turn < 0.3:
            items.pop(rng.randrange(len(items)))
        elif items and turn < 0.5:
            items.insert(rng.randint(0, len(items)), copy.deepcopy(rng.choice(items)))
        elif items and turn < 0.7:
            items[rng.randrange(len(items))] = new()
        elif len(items) < _LONGEST:
            items.insert(rng.randint(0, len(items)), new())


def _parts(args: Input) -> Iterator[tuple[_Path, object]]:
    """Every value in an input with its path; items of a list share one."""
    yield ("count",), len(args)
    for at, value in enumerate(args):
        yield from _inside((at,), value)


def _inside(path: _Path, value: object) -> Iterator[tuple[_Path, object]]:
    yield path, value
    if isinstance(value, Record):
        for at, item in enumerate(value):
            yield from _inside((*path, at), item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _inside((*path, "*"), item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _inside((*path, "key"), key)
            yield from _inside((*path, "value"), item)


# -------------------------------------------------------------------------- properties of one value


def _rules(values: list[Any], text: str, may_be_empty: bool) -> Iterator[Callable[[Any], bool]]:
    """What all values at one path share."""
    kinds = {type(value) for value in values}
    # Exactly these types: True is no int here.
    yield lambda value: type(value) in kinds
    numbers = [value for value in values if type(value) in (int, float)]
    if numbers:
        yield from _of_numbers(numbers, text)
    if texts := [value for value in values if isinstance(value, str)]:
        yield from _of_texts(texts, text, may_be_empty)
    lists = [value for value in values if isinstance(value, list | tuple)]
    if lists and not isinstance(lists[0], Record):
        yield from _of_lists(lists, text, may_be_empty)


def _rule_of(
    values: list[Any], kinds: Any, holds: Callable[[Any], bool]
) -> Iterator[Callable[[Any], bool]]:
    """A property of values of some kinds as a rule, where all of these have it."""
    if all(_applies(holds, value) for value in values):
        yield lambda value: not isinstance(value, kinds) or holds(value)


def _of_numbers(numbers: list[Any], text: str) -> Iterator[Callable[[Any], bool]]:
    low, high = min(numbers), max(numbers)
    if low >= 0 and not _NEGATIVE.search(text):
        first = 2 if _MODULUS.search(text) else 1  # 1 is no base, no modulus and no prime
        lowest = min(low, first) if low > _FEW else low
        if low == 1 and _ZERO.search(text) and not _POSITIVE.search(text):
            lowest = 0
        yield lambda n: type(n) not in (int, float) or n >= lowest
    highest = 2 * abs(high) + 10
    yield lambda n: type(n) not in (int, float) or abs(n) <= highest
    floats = [n for n in numbers if type(n) is float]
    integers = [n for n in numbers if type(n) is int]
    if integers and len(floats) >= _FEW and not any(n.is_integer() for n in floats):
        # else it may be taken for an int
        yield (lambda n: type(n) is not float or not n.is_integer())
    # Two values alone, in at least six inputs: a flag.
    if len(set(integers)) == 2 and len(integers) >= 2 * _FEW and len(integers) == len(numbers):
        yield lambda n: type(n) is not int or n in integers
    large = [n for n in set(integers) if n > 1]
    # All primes, or none of them.
    if len(large) > _FEW and len({_is_prime(n) for n in large}) == 1:
        prime = _is_prime(large[0])
        yield lambda n: type(n) is not int or n < 2 or _is_prime(n) == prime


def _stated_most(values: list[object], prompt: str) -> Iterator[Callable[[Any], bool]]:
    """A greatest number that the prompt names, where all values keep it: "the base is less than
    10"."""
    numbers = [value for value in values if type(value) is int]
    for words, number in _BELOW.findall(prompt):
        # "less than" and "below" exclude the number itself; "not greater than" does not.
        bound = int(number) - (words.endswith("than") and "not" not in words) - (words == "below")
        if numbers and max(numbers) <= bound:
            yield lambda n, m=bound: type(n) is not int or n <= m  # type: ignore[misc]


def _is_prime(n: int) -> bool:
    # Trial division would take too long.
    if n > 10**9:
        return False
    return n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))


def _of_texts(texts: list[str], text: str, may_be_empty: bool) -> Iterator[Callable[[Any], bool]]:
    rule = partial(_rule_of, texts, str)
    kinds = {_kind(char) for example in texts for char in example}
    yield from rule(lambda value: all(_kind(char) in kinds for char in value))
    if not may_be_empty:
        yield from rule(bool)
    if len({len(example) for example in texts}) == 1 and len(set(texts)) >= _FEW:
        yield from rule(lambda value: len(value) == len(texts[0]))
    if {"(", "[", "{", "<"} & set("".join(texts)):
        yield from rule(_is_balanced)
        if any(" " in example for example in texts):
            yield from rule(lambda value: all(map(_is_one_group, value.split())))
    yield from rule(lambda value: value == " ".join(value.split()))
    yield from rule(_is_number)
    yield from rule(lambda value: not _LEADING_ZERO.search(value))
    yield from _of_shapes(texts)
    # Few letters of an alphabet, in many texts: the alphabet is part of the task.
    for members in ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        alphabet = _alphabet(texts, members)
        if alphabet is not None:
            yield from rule(
                lambda value, a=alphabet, m=members: set(value) & set(m) <= a  # type: ignore[misc]
            )
    words = [word for example in texts for word in example.split()]
    # Words that the text names in quotes, each several times: they are all that may occur.
    if len(words) >= 3 * len(set(words)) and all(
        f"'{w}'" in text or f'"{w}"' in text for w in words
    ):
        yield from rule(lambda value: set(value.split()) <= set(words))
    if any(char.isalpha() for char in kinds) and any(" " in example for example in texts):
        yield from rule(lambda value: any(map(str.isalnum, value)))


def _of_shapes(texts: list[str]) -> Iterator[Callable[[Any], bool]]:
    """Texts of digits and signs, such as dates: their shapes, digits apart; where these differ,
    with their lengths."""
    shapes = {re.sub(r"\d+", "0", example) for example in texts}
    if len(set(texts)) < _FEW:
        return
    if len(shapes) == 1:
        yield from _rule_of(texts, str, lambda value: re.sub(r"\d+", "0", value) in shapes)
    elif not any(char.isalpha() or char.isspace() for example in texts for char in example) and any(
        re.search(r"\d\D\d", example) for example in texts
    ):
        exact = {re.sub(r"\d", "0", example) for example in texts}
        yield from _rule_of(texts, str, lambda value: re.sub(r"\d", "0", value) in exact)


def _alphabet(texts: list[str], members: str) -> set[str] | None:
    """The characters of a class, where so many texts would not have so few of them by chance; else
    None."""
    used = [char for example in texts for char in example if char in members]
    alphabet = set(used)
    few = 2 <= len(alphabet) <= len(members) // 3
    return alphabet if few and (len(alphabet) / len(members)) ** len(used) < _RARE else None


def _kind(char: str) -> str:
    """Letters and digits by their class; every other character is one of its own."""
    return next((name for belongs, name in _CLASSES if belongs(char)), char)


def _is_balanced(text: str) -> bool:
    opened: list[str] = []
    for char in text:
        if char in _BRACKETS.values():
            opened.append(char)
        elif char in _BRACKETS and (not opened or opened.pop() != _BRACKETS[char]):
            return False
    return not opened


def _is_one_group(text: str) -> bool:
    """Whether the first bracket is closed by the last character."""
    return _is_balanced(text) and not any(_is_balanced(text[:end]) for end in range(1, len(text)))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None


def _of_lists(lists: list[Any], text: str, may_be_empty: bool) -> Iterator[Callable[[Any], bool]]:
    rule = partial(_rule_of, lists, (list, tuple))
    lengths = {len(example) for example in lists}
    shortest = min(lengths)
    # No least length beyond two: known lists may only happen to be longer.
    if shortest and not (shortest == 1 and may_be_empty):
        yield from rule(lambda value: len(value) >= min(shortest, 2))
    if len(lengths) == 1 and (len(lists) > _FEW or isinstance(lists[0], tuple)):
        yield from rule(lambda value: len(value) in lengths)
    inner = [len(item) for example in lists for item in example if isinstance(item, list | tuple)]
    if inner:
        yield from rule(_is_rectangular)
        if any(len(example) > 1 for example in lists):
            yield from rule(lambda value: len(value) == len(value[0]) if value else True)
    # A list with each number from 1 on once is a numbering; one list in six may lack it.
    numberings = [example for example in lists if _applies(_is_numbering, example)]
    is_odd_one_out = len(lists) - len(numberings) <= len(lists) // _ODD_ONE
    if is_odd_one_out and sum(len(example) > 1 for example in numberings) > 1:
        yield lambda value: not isinstance(value, list | tuple) or _is_numbering(value)
    for orders in (_ascends, _descends):
        # Lists are in order by chance as often as 1 in n! each.
        if math.prod(1 / math.factorial(min(len(example), 20)) for example in lists) < _CHANCE:
            yield from rule(orders)
    # Only where chance would rarely make all lists distinct, or where the text says that they are.
    if _chance_of_distinct(lists) < _CHANCE or re.search(r"\b(?:unique|distinct)\b", text):
        yield from rule(_is_distinct)
    if sum(len(example) > 1 for example in lists) >= _FEW:
        yield from rule(lambda value: len({_kind_of(item) for item in value}) <= 1)
    if len(lists) > _FEW and _PRIME.search(text):
        yield from rule(lambda value: any(map(_is_prime, value)))


def _kind_of(item: object) -> str:
    """Ints and floats are one kind."""
    return "number" if type(item) in (int, float) else type(item).__name__


def _is_numbering(value: Any) -> bool:
    """Whether a list, or a grid, has each of the numbers from 1 on once."""
    items = [item for row in value for item in row] if value and _all_sized(*value) else list(value)
    return bool(sorted(items) == list(range(1, len(items) + 1)))


def _is_rectangular(value: Any) -> bool:
    return len({len(item) for item in value if isinstance(item, list | tuple)}) <= 1


def _ascends(value: Any) -> bool:
    return all(left <= right for left, right in itertools.pairwise(value))


def _descends(value: Any) -> bool:
    return all(left >= right for left, right in itertools.pairwise(value))


def _is_distinct(value: Any) -> bool:
    return len({repr(item) for item in value}) == len(value)


def _chance_of_distinct(lists: list[Any]) -> float:
    """The chance that no list repeats an item, if items were drawn from all that occur."""
    pool = len({repr(item) for sample in lists for item in sample})
    return math.prod(
        max(0.0, 1 - at / max(pool, 1)) for sample in lists for at in range(len(sample))
    )


# ------------------------------------------------------------------------ limits that a text states


def _limits(text: str, names: Sequence[str]) -> Iterator[Callable[[Input], bool]]:
    """Limits such as `1 <= n <= 1000`, `0 < len(items) < 10` and `n > 1`, of arguments or of their
    length."""
    stated = [(name, sized, *_range(low, below, above, high))
              for low, below, sized, name, above, high in _STATED.findall(text)]  # fmt: skip
    for sized, name, sign, number in _ONE_SIDED.findall(text):
        upper = sign.startswith("<")
        ends = _range("", "", sign, number) if upper else _range(number, sign, "", "")
        stated.append((name, sized, *ends))
    for name, sized, lower, upper_bound in stated:
        if name in names or len(names) == 1:
            at = names.index(name) if name in names else 0
            yield lambda args, a=at, b=lower, c=upper_bound, d=bool(sized): (  # type: ignore[misc]
                _is_between(args, a, b, c, d)
            )


def _range(low: str, below: str, above: str, high: str) -> tuple[float, float]:
    """The least and greatest whole number between two ends, each with its sign; without end where
    one is empty."""
    strict = ("<", ">")
    lower = int(low) + (below in strict) if low else -math.inf
    return lower, int(high) - (above in strict) if high else math.inf


def _is_between(args: Input, at: int, least: float, most: float, is_length: bool) -> bool:
    value: Any = args[at] if at < len(args) else None
    if is_length:
        return not isinstance(value, str | list | tuple) or least <= len(value) <= most
    return not _real(value) or least <= value <= most


# --------------------------------------------------------------------------- relations of arguments


def _relations(known: Sequence[Input]) -> Iterator[Callable[[Input], bool]]:
    """What all inputs share of two of their arguments."""
    if len(known) < 2:
        return
    count = min(map(len, known))
    for first, second in itertools.permutations(range(count), 2):
        for related in _RELATIONS:
            if all(_holds(related, args, first, second) for args in known):
                yield lambda args, r=related, a=first, b=second: (  # type: ignore[misc]
                    _holds(r, args, a, b)
                )


def _holds(related: Callable[[Any, Any], bool], args: Input, one: int, other: int) -> bool:
    return max(one, other) < len(args) and _applies(related, args[one], args[other])


def _applies(holds: Callable[..., bool], *values: object) -> bool:
    """Whether a property holds; values of another kind than it is about do not have it."""
    try:
        return bool(holds(*values))
    except (TypeError, IndexError, ValueError, ArithmeticError):
        return False


def _real(*values: object) -> bool:
    return all(type(value) in (int, float) for value in values)


def _all_sized(*values: object) -> bool:
    return all(isinstance(value, list | tuple | str) for value in values)


def _flat(value: Any) -> Iterator[Any]:
    """The items of a list, and those of lists in it."""
    for item in value:
        yield from _flat(item) if isinstance(item, list | tuple) else (item,)


def _counts_to(most: int) -> Callable[[Any], bool]:
    """Whether a value is one of the numbers from 1, as those of nodes or places are."""
    return lambda value: type(value) is int and 1 <= value <= most


_RELATIONS: Final[tuple[Callable[[Any, Any], bool], ...]] = (
    lambda a, b: _real(a, b) and a <= b,
    lambda a, b: _real(a, b) and a != b,
    # The first is the length of the second, or a place in it.
    lambda a, b: _real(a) and _all_sized(b) and a == len(b),
    lambda a, b: _real(a) and _all_sized(b) and 0 <= a <= len(b),
    lambda a, b: _real(a) and _all_sized(b) and 0 <= a < len(b),
    lambda a, b: type(a) is int and isinstance(b, list) and all(map(_counts_to(a), _flat(b))),
    lambda a, b: _all_sized(a, b) and len(a) == len(b),
    lambda a, b: _all_sized(a, b) and len(a) <= len(b),
    lambda a, b: isinstance(b, list | tuple) and not isinstance(a, list | tuple) and a in b,
    lambda a, b: isinstance(a, str) and isinstance(b, str) and a in b,
)


# ----------------------------------------------------------------------------------- simpler values


def _simpler(value: object) -> Iterator[object]:
    match value:
        case bool() | None:
            return
        case int():
            # Toward 0, as the simplest; a negative number as its positive one.
            yield from dict.fromkeys(
                n for n in (0, 1, 2, value // 2, value - 1) if 0 <= n < abs(value)
            )
            if value < 0:
                yield -value
        case float():
            yield from (
                n for n in (0.0, 1.0, float(round(value))) if n != value and abs(n) <= abs(value)
            )
        case str() | list() | tuple():
            yield from _shorter(value)
        case dict():
            yield from ({k: v for k, v in value.items() if k != key} for key in value)


def _shorter(value: Any) -> Iterator[object]:
    is_whole = isinstance(value, Record)
    if len(value) > 3 and not is_whole:
        # Halves first, which shortens fastest.
        half = len(value) // 2
        yield from (value[:half], value[half:])
    for at in range(0 if is_whole else min(len(value), _LONGEST)):
        yield value[:at] + value[at + 1 :]
    if not isinstance(value, str):
        for at, item in enumerate(value[:8]):
            for simpler in itertools.islice(_simpler(item), 3):
                yield type(value)([*value[:at], simpler, *value[at + 1 :]])

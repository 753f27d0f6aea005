"""Options of environments: annotated names with defaults and types, no decorator, no __init__."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import rlvr
from rlvr import (
    Correct,
    Format,
    UsageError,
)
from rlvr.environment.registry import read_option
from tests.environments import Words
from tests.rewards.parts import refusal


def test_annotated_names_are_options_without_a_decorator():
    """With their defaults, by keyword alone."""
    assert Words.options() == {"split": "train", "count": 3, "loud": False}
    env = Words(count=2, split="test")
    assert (env.count, env.loud, env.split) == (2, False, "test")
    assert repr(env) == "Words(split='test', count=2, loud=False)"
    with pytest.raises(TypeError, match="positional"):
        Words(2)


def test_config_is_what_differs_from_the_defaults():
    """With the id, all that is needed to make the environment again."""
    assert Words().config == {}
    env = Words(count=2, loud=True, split="train")
    assert env.config == {"count": 2, "loud": True}
    assert Words(**env.config).config == env.config


def test_a_subclass_of_a_subclass_adds_options():
    """In the order of the classes, and with an id of its own: seeds depend on it."""

    class More(Words):
        extra: str = "x"

    class Most(More):
        count: int = 9  # another default

    assert Most.options() == {"split": "train", "count": 9, "loud": False, "extra": "x"}
    assert (Words.id, More.id, Most.id) == ("Words", "More", "Most")
    assert Most(extra="y").config == {"extra": "y"}
    assert Most().size == 9


def test_defaults_may_be_made_anew():
    """As in any dataclass; one that all would share is refused, and so is a reward with a type."""

    class Lists(Words):
        tags: list[str] = field(default_factory=list)

    one, other = Lists(), Lists()
    one.tags.append("x")
    assert other.tags == []
    assert Lists.options()["tags"] == []
    assert one.config == {"tags": ["x"]}
    shared = {"__annotations__": {"tags": list}, "tags": []}
    assert refusal(lambda: type("Shared", (Words,), shared)) == (
        "Shared: all would share the default tags = []; make it a tuple, or write "
        "tags: … = dataclasses.field(default_factory=list)"
    )
    typed = {"__annotations__": {"reward": rlvr.Reward}, "reward": Correct()}
    assert refusal(lambda: type("Typed", (Words,), typed)) == (
        "Typed: the reward is no option; write reward = … without a type"
    )

    class Marked(Words):
        reward: ClassVar[rlvr.Reward] = 2 * Correct()
        seen: ClassVar[list[str]] = []

    assert (str(Marked().reward), list(Marked.options())) == ("2 * correct", list(Words.options()))


class Typed(Words):
    """An option of every type that is looked at."""

    weight: float = 0.5
    name: str = "x"
    pair: tuple[int, str] = (1, "a")
    tags: tuple[str, ...] = ()
    kind: Literal["a", "b", 1] = "a"
    limit: int | None = None
    other: dict[str, int] | str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"count": True}, "Typed: count is bool True; it must be a whole number, such as 3"),
        ({"count": 2.0}, "count is float 2.0; it must be a whole number"),
        ({"count": "2"}, "count is str '2'"),
        ({"count": None}, "count is NoneType None"),
        ({"loud": 1}, "loud is int 1; it must be True or False, such as False"),
        ({"weight": True}, "weight is bool True; it must be a number, such as 0.5"),
        ({"weight": "1"}, "weight is str '1'"),
        ({"name": 3}, "name is int 3; it must be a text, such as 'x'"),
        ({"name": ["x"]}, "name is list ['x']"),
        ({"pair": (1, 2)}, "pair is tuple (1, 2); it must be tuple[int, str], such as (1, 'a')"),
        ({"pair": (1,)}, "pair is tuple (1,)"),
        ({"tags": "ab"}, "tags is str 'ab'; it must be tuple[str, ...]"),
        ({"tags": ["a", 1]}, "tags is list ['a', 1]"),
        ({"kind": "c"}, "kind is str 'c'; it must be Literal['a', 'b', 1]"),
        ({"kind": True}, "kind is bool True"),
        ({"settings": "text"}, "settings is str 'text'; it must be a mapping, in JSON an object"),
        ({"settings": ["a"]}, "settings is list ['a']"),
        ({"limit": 1.5}, "limit is float 1.5; it must be int | None"),
    ],
)
def test_an_option_has_its_type(option: dict, message: str):
    """Value, rule and fix, before the author's own __post_init__ stumbles over it."""
    assert message in refusal(lambda: Typed(**option))


def test_what_fits_is_taken():
    """Whole numbers as floats; lists as tuples, for JSON has no others; numpy's numbers; what is not looked at."""
    env = Typed(
        weight=2,
        tags=["a"],
        pair=[2, "b"],
        kind=1,
        limit=np.int64(3),
        other={"a": "unchecked"},
        settings={"a": "unchecked"},
        count=np.int64(4),
    )
    assert (env.weight, env.tags, env.pair, env.kind, env.limit, env.count) == (
        2,
        ("a",),
        (2, "b"),
        1,
        3,
        4,
    )
    assert type(env.count) is int
    assert Typed(limit=None, tags=()).config == {}

    class Local(Words):
        unknown: "NoSuchName" = 1  # noqa: F821
        count: int = 1

    assert Local(count="unchecked").count == "unchecked"


def test_options_are_checked_in_post_init():
    """The author's own rule, the author's own message; the reward may depend on options there."""

    class Checked(Words):
        weight: float = 0.5

        def __post_init__(self):
            if self.count < 1:
                raise UsageError(f"count is {self.count}; it must be at least 1")
            self.reward = Correct() + self.weight * Format(str.isascii)

    assert refusal(lambda: Checked(count=0)) == "count is 0; it must be at least 1"
    assert str(Checked(weight=2).reward) == "correct + 2 * format(form=str.isascii)"
    assert str(Checked.reward) == "correct"


def test_an_init_of_the_authors_own_stays():
    """Around the options, or instead of them."""

    class Around(Words):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.made = 1

    class Instead(Words):
        def __init__(self, count: int) -> None:
            self.count = 2 * count

    assert (Around(count=2).count, Around(count=2).config, Around().made) == (2, {"count": 2}, 1)
    assert (Instead(2).size, Instead(2).split) == (4, "train")
    assert Instead(2).reset(options={"index": 3})[1]["task"] == "words/train-3"


def test_a_dataclass_decorator_on_top_changes_nothing():
    """Out of habit; options stay keyword-only."""

    @dataclass
    class Plain(Words):
        extra: int = 1

    @dataclass(kw_only=True, eq=False)
    class Same(Words):
        extra: int = 1

    for cls in (Plain, Same):
        assert cls(extra=2, count=1).config == {"count": 1, "extra": 2}
        assert cls().score(cls().task(0), "train-0").total == 1.0
        with pytest.raises(TypeError, match="positional"):
            cls(2)


def test_slots_are_refused():
    """Python builds the class a second time for them, and the defaults are gone."""

    def slotted() -> Any:
        @dataclass(slots=True)
        class Slotted(Words):
            extra: int = 1

    assert (
        refusal(slotted)
        == "Slotted: an environment is a dataclass without slots; drop @dataclass(slots=True)"
    )


def test_an_id_is_no_option():
    """Two environments of one class with different ids would draw different tasks."""

    def annotated() -> Any:
        class Annotated(Words):
            id: str = "annotated-v1"

    assert "Annotated: the id is no option; write id = … without a type" in refusal(annotated)

    class Named(Words):
        id: ClassVar[str] = "named-v1"

    assert Named().id == Named.id == "named-v1"


def test_truth_values_are_read_as_python_and_as_json_write_them():
    """On a command line, tools=False is what the docs say."""
    values = [read_option("tools", True, text) for text in ("False", "false", "True", "true")]
    assert values == [False, False, True, True]
    assert "is not a value like True" in refusal(lambda: read_option("tools", True, "no"))

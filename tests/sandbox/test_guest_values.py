"""Values that cross between processes: exactly, or not at all."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import decimal
import enum
import fractions
import json
import math
import time

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.sandbox.guest.reading import read
from rlvr.sandbox.guest.values import BYTES, DEPTH, BadValue, NotAValue, Opaque
from rlvr.sandbox.guest.writing import write

P = collections.namedtuple("P", "x y")


def text(tree):
    return json.dumps(tree).encode()


def crossed(value):
    return read(write(value))


def same(a, b):
    """Equal, of one type, and with the same sign of zero, through containers."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return a == b


VALUES = [
    None, True, 0, -1, 1 << 63, -(1 << 64), 7**9999, 1.5, -0.0, 1e308, 5e-324, math.inf, -math.inf,
    3 - 0j, complex(-0.0, math.inf), "", "a\0é\U0001f600", "\ud83d\ude00", "\udfff", b"\xff\0", bytearray(b"x"),
    [1, [2.5, ["x"]]], (), (1, (2,)), {1, 2}, frozenset("ab"), {1: 2, (1, "b"): [3], None: {}}, range(5, -5, -2),
    decimal.Decimal("-1.50E+10"), decimal.Decimal("Infinity"), fractions.Fraction(-3, 7),
    dt.datetime(2020, 1, 1, 2, 3, 4, 5, tzinfo=dt.timezone(dt.timedelta(hours=-3, seconds=7))),
    dt.datetime(1, 1, 1, fold=1), dt.date(9999, 12, 31), dt.time(1, 2, 3), dt.timedelta(-1, 3, 9),
    collections.Counter("aab"), collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.deque([1, [2]], 5), ..., [True, 1, 1.0], [[], {}, set()],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_value_is_the_same_on_the_other_side(value):
    """In type, order and sign of zero; ints of any length, strings that are no Unicode."""
    assert same(crossed(value), value)


def test_nan_is_nan():
    """It equals nothing, so it is not among VALUES."""
    assert math.isnan(crossed(math.nan))
    assert crossed(decimal.Decimal("NaN")).is_nan()


def test_a_namedtuple_is_one_on_the_other_side():
    """It equals a tuple and has its fields; the class cannot be the same."""
    got = crossed(P(1, [2]))
    assert got == (1, [2])
    assert (got.x, got.y, type(got).__name__) == (1, [2], "P")


def test_a_defaultdict_keeps_a_builtin_factory():
    """Any other would be code."""
    assert crossed(collections.defaultdict(list, {1: [2]}))[5] == []
    assert crossed(collections.defaultdict(lambda: 1)).default_factory is None


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


@given(json_like)
@settings(max_examples=200)
def test_any_plain_value_crosses(value):
    """Whatever is put together of them."""
    assert same(crossed(value), value)


def liar(base):
    def wrong(self, *args):
        raise AssertionError("a method of its own was called")

    names = "eq ne lt hash len iter getitem contains int float index str repr bool add items keys reduce reduce_ex"
    members = {f"__{name}__": wrong for name in names.split()} | {
        "items": wrong,
        "keys": wrong,
        "__class__": int,
    }
    return type(base.__name__, (base,), members)


@pytest.mark.parametrize(
    "value",
    [
        7,
        1.5,
        "s",
        b"b",
        (1, 2),
        [3],
        {4},
        frozenset({5}),
        {"k": 6},
        bytearray(b"z"),
        1j,
        collections.OrderedDict(a=1),
        collections.deque([1]),
        decimal.Decimal("1.5"),
        collections.Counter("a"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_subclass_is_what_it_really_is(value):
    """Nothing that it overrides is asked."""
    base, kind = type(value), liar(type(value))
    if isinstance(value, (list, set, dict, bytearray, collections.deque)):
        lie = base.__new__(kind)
        if isinstance(value, dict):
            base.__setitem__(lie, *dict(value).popitem())
        else:
            base.__init__(lie, value)
    else:
        lie = base.__new__(kind, value)
    assert same(crossed(lie), value)


def test_enums_of_numbers_are_numbers():
    """As in any comparison; other enums are objects."""
    assert crossed(enum.IntEnum("E", "A B").B) == 2
    assert isinstance(crossed(enum.Enum("E", "A").A), Opaque)


def test_what_is_no_value_is_named_and_equals_nothing():
    """Not even what looks the same."""
    one, other = crossed([len, object()])
    assert (one.type_name, other.type_name) == ("builtin_function_or_method", "object")
    assert one != other
    assert crossed(len) != crossed(len)


def test_numpy_numbers_and_arrays():
    """Numbers become Python's.  Arrays stay arrays, or become lists where that is asked for."""
    assert same(crossed([numpy.int64(7), numpy.float64(2.5), numpy.bool_(True)]), [7, 2.5, True])
    for array in (
        numpy.arange(6).reshape(2, 3),
        numpy.array(["a", "bc"]),
        numpy.zeros((0, 3)),
        numpy.array(5),
    ):
        got = crossed(array)
        assert (got.dtype, got.shape) == (array.dtype, array.shape)
        assert numpy.array_equal(got, array)
        assert read(write(array), arrays=False) == array.tolist()


@pytest.mark.parametrize(
    ("shape", "most"), [([200_000, 0], 1), ([1_000, 1, 1, 0], 66), ([5, 1, 1, 1], 20_000)]
)
def test_lists_for_which_nothing_was_written_are_few(shape, most):
    """An empty array of a few bytes may have millions; those of a text are counted together."""
    count = shape[0] if shape[-1] else 0
    array = {"array": ["<i8", shape, [1] * count]}
    assert len(read(text([array] * most), arrays=False)) == most
    with pytest.raises(NotAValue, match="lists without an item"):
        read(text([array] * (most + 1)), arrays=False)


def test_keys_that_were_chosen_to_have_one_hash_are_few():
    """Comparing each with all before it took ten CPU seconds a megabyte; honest keys of any kind stay."""
    keys = [{"int": hex(k * (2**61 - 1))} for k in range(1001)]
    for tag, items in (("set", keys), ("dict", [part for key in keys for part in (key, 0)])):
        with pytest.raises(NotAValue, match="more than 200 keys of one hash"):
            read(text({tag: items}))
    assert len(read(text({"set": keys[:1000]}))) == 1000
    honest = {*range(-5000, 5000), *map(str, range(5000)), *((k, -k) for k in range(5000))}
    pairs = {(x, y) for x in range(-900, 900) for y in (-1, -2)}  # two share each hash
    assert crossed(honest | pairs) == honest | pairs


@pytest.mark.slow
def test_cycles_and_depth_are_refused():
    """With the reason.  A shared list is no cycle."""
    cycle: list = []
    cycle.append([cycle])
    deep: list = []
    for _ in range(DEPTH):
        deep = [deep]
    with pytest.raises(NotAValue, match="cycle"):
        write(cycle)
    with pytest.raises(NotAValue, match="deeper than"):
        write(deep)
    shared = [1]
    assert crossed([shared, shared]) == [[1], [1]]
    for _ in range(60):
        shared = [shared, shared]
    with pytest.raises(NotAValue, match="more than"):
        write(shared)


@pytest.mark.parametrize(
    "value",
    [1 << (1 << 23), decimal.Decimal("sNaN"), fractions.Fraction(1, 3**40000)],
    ids=["int", "sNaN", "fraction"],
)
def test_values_that_would_cost_or_raise_when_compared_are_refused(value):
    """A signalling NaN raises from `==`; a long fraction takes quadratic time to make."""
    with pytest.raises(NotAValue):
        write(value)


BAD = [
    {}, {"a": 1, "b": 2}, {"nothing": 1}, {"int": "12"}, {"int": "0x"}, {"int": 5}, {"int": "0x" + "f" * (1 << 21)},
    {"float": "1.5"}, {"float": 1}, {"complex": [1.0]}, {"complex": [1, 2]}, {"str": "zz"}, {"bytes": 5},
    {"tuple": 5}, {"tuple": {"tuple": []}}, {"dict": [1]}, {"dict": [[1], 2]}, {"dict": [1, 2, 1, 3]},
    {"dict": [1, 2, True, 3]}, {"set": [1, 1.0]}, {"set": [[1]]}, {"set": [{"dict": []}]}, {"range": [1, 2]},
    {"range": [0, 1, 0]}, {"decimal": "sNaN"}, {"decimal": "1e5 "}, {"decimal": "1" * 30_000}, {"fraction": [1, 0]},
    {"fraction": [1.5, 2]}, {"date": [0, 1, 1]}, {"date": [2020, 13, 1]},
    {"datetime": [1, 1, 1, 0, 0, 0, 0, 0, [9, 0, 0]]},
    {"time": [1, 2]}, {"timedelta": [10**12, 0, 0]}, {"defaultdict": ["eval", 1, 2]}, {"defaultdict": []},
    {"deque": [1, 1, 2]}, {"deque": [-1]}, {"named": ["P", ["x", "x"], 1, 2]}, {"named": ["P", ["class"], 1]},
    {"named": ["P", ["x; import os"], 1]}, {"named": ["P", ["x"], 1, 2]}, {"named": []}, {"array": ["<i8", [2], [1]]},
    {"array": ["<i8", [-1, -1], [1]]}, {"array": ["O;", [1], [1]]}, {"array": ["<i8", [1], ["x"]]},
    {"array": ["<i8", [1 << 40, 0], []]}, {"opaque": 5}, {"ellipsis": None, "x": 1}, [{"tuple": [{}]}],
]  # fmt: skip


@pytest.mark.parametrize("tree", BAD, ids=lambda t: str(t)[:40])
def test_a_malformed_tree_is_one_kind_of_error(tree):
    """The judge has one exception to expect."""
    with pytest.raises(BadValue):
        read(text(tree))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(
                st.sampled_from("int float str tuple dict set named array datetime deque".split()),
                inner,
            )
        ),
        max_leaves=15,
    )
)
@settings(max_examples=300)
def test_any_tree_gives_a_value_or_that_error(tree):
    """Never another exception."""
    with contextlib.suppress(BadValue):
        read(text(tree))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"NaN", b"[1,]", b"\xff", "é".encode(), b'"' + b'\\"' * 500_000, b"[" * 500_000, b'{"a":' * 100_000,
        b"1" * 500_000, b"[" + b"," * 5_000_000, b'"\\', b'["' + b"\\" * 1_000_001,
    ],
    ids=lambda d: str(d[:12]),
)  # fmt: skip
def test_bad_text_is_refused(data):
    """Deep nesting, long numbers, and strings that never end among them."""
    began = time.process_time()
    with pytest.raises((BadValue, NotAValue)):
        read(data)
    assert time.process_time() - began < 3


def test_long_strings_full_of_brackets_and_digits_are_read():
    """Only what is outside of strings counts."""
    text = "[{,1" * 100_000 + "1" * 10_000 + '"\\'
    assert read(write([text])) == [text]
    with pytest.raises(NotAValue):
        read(b" " * (BYTES + 1))


def test_a_value_is_a_line_of_json():
    """In ASCII."""
    line = write(["\n\u2028é", (1.5, None)])
    assert b"\n" not in line
    assert json.loads(line) == ["\n\u2028é", {"tuple": [1.5, None]}]


def test_sets_keep_their_order_where_python_lets_them():
    """A program may turn a set into a list; a set made of a constant has another order than one filled one by one."""
    for made in ({12, 13, 14, 15, 16}, set(range(12, 17)), {40, 1, 8, 33}):
        assert list(crossed(made)) == list(made)

"""Values of strangers: what should be there, with one part that is not."""

import json

from hypothesis import strategies as st

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**63, float("inf"), float("nan"), 5e-324, b"x", {1}]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "\0", "\ud800", "(" * 500, "9^{9^{9}}", "(a+)+$", "1e999999999", "$ref"]),
    st.sampled_from([[], {}, [[]], {"$ref": "#"}, {"": ""}, json.loads("[" * 300 + "]" * 300)]),
    st.recursive(
        st.integers(0, 9), lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x)
    ),
)


@st.composite
def mutated(draw, value):
    """A value as it should be, with one part changed, left out or repeated."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        name = draw(st.sampled_from(sorted(value)))
        rest = {key: one for key, one in value.items() if key != name}
        return draw(st.sampled_from([rest, {**rest, name: draw(mutated(value[name]))}]))
    if isinstance(value, (list, tuple)) and value and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(value) - 1))
        changed = [*value[:at], draw(mutated(value[at])), *value[at + 1 :]]
        return changed * draw(st.sampled_from([1, 1, 2, 50]))
    if isinstance(value, str) and draw(st.booleans()):
        at = draw(st.integers(0, len(value)))
        return value[:at] + draw(st.text(max_size=5)) + value[at:]
    return draw(ODD)

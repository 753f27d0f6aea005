"""Trees that Hypothesis draws, in three notations: reading gives them back; what stands around a fact is not paid."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.math_fuzz import NOTATIONS, as_node, drawn, pairs, printed
from rlvr.types import Task
from rlvr.verifiers.math import MathPolicy, MathVerifier
from rlvr.verifiers.math.canonical import spelling
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.statement import as_tree

VALUE, VERIFIER = MathVerifier(MathPolicy(form="any", rounding="exact")), MathVerifier()
SEEDS = st.integers(0, 2**32)
WRAPPERS = r"""
    \max(#,#) | \min(#,#) | \max(#,#-1) | \gcd(#,#) | \binom{#}{1} | \{#\} | |#|\operatorname{sgn}(#) | \sqrt{(#)^2}
    \begin{pmatrix}#\end{pmatrix} | \frac{2(#)}{2} | \frac{1}{\frac{1}{#}} | \frac12(#)+\frac12(#) | # | y=# | (#)^1
    \ln e^{#} | \lim_{t\to0}(#+t) | \sum_{k=1}^{1}(#) | (#+7)-7 | -(-(#)) | #+0 | 1\cdot(#) | \frac{#}{1} | #\cup #
    \text{It is }# | #\text{ units} | #\text{ or }# | \overline{\overline{#}} | \log_{10}10^{#}
"""


@given(SEEDS, st.sampled_from(NOTATIONS))
def test_reading_gives_the_tree(seed: int, notation: str):
    """Up to the order of terms and factors, in which it may be printed."""
    rng = Random(seed)
    tree = drawn(rng, 3)
    text = printed(tree, rng, notation)
    assert spelling(as_tree(read(text))) == spelling(as_node(tree)), text


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_are_the_oracles(seed: int):
    """Another spelling is right, a leaf, sign or function changed is wrong; and either may be the reference."""
    rows = [row for row, _ in zip(pairs(seed), range(40), strict=False)]
    there = VALUE.verify_many((rf"\boxed{{{a}}}", r) for r, a, _ in rows)
    back = VALUE.verify_many((rf"\boxed{{{r}}}", a) for r, a, _ in rows)
    assert [
        row for row, found in zip(rows, there, strict=True) if found.correct is not row[2]
    ] == []
    assert [row for row, found in zip(rows, back, strict=True) if found.correct is not row[2]] == []


@pytest.mark.parametrize(
    "wrapper", [text.strip() for text in WRAPPERS.replace("\n", " | ").split(" | ") if text.strip()]
)
@given(st.integers(1, 9), st.integers(-9, 9), st.integers(-9, 9))
@settings(max_examples=5)
def test_no_wrapped_fact_is_paid(wrapper: str, scale: int, p: int, q: int):
    """The polynomial that was to be factored has the value, whatever stands around it."""
    fact = f"{scale}x^2{scale * (p + q):+d}x{scale * p * q:+d}"
    reference = f"{scale}(x{p:+d})(x{q:+d})"
    task = Task("t", f"Factor ${fact}$.", reference)
    found = VERIFIER.verify(rf"\boxed{{{wrapper.replace('#', fact)}}}", reference, task)
    assert not found.correct, (wrapper, fact)

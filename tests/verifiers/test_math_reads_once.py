"""What was written is read once, and what we build is never printed to be read again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rlvr.verifiers.math as package
from rlvr.verifiers.math import MathPolicy, engine
from rlvr.verifiers.math.latex import parser
from rlvr.verifiers.math.limits import fold_within
from rlvr.verifiers.math.reading import read

READERS = {
    "reading": {"verifier", "api", "given", "engine", "differing"},
    "quantity": {"reading", "relations", "given", "normal", "shapes", "prompted"},
    "relations": {"reading"},
    "clock": {"reading"},
    "arithmetic": {"quantity", "reading", "statement"},
    "latex": {"arithmetic", "reading", "statement"},
}
"""The modules whose functions take text, and who may call these."""
TAKES_TEXT = set(
    "read quantity literal word read_measured equation inequality is_name time_of_day date "
    "rational number_tree parse parse_or_none".split()
)


def calls_of_readers() -> set[tuple[str, str]]:
    """Who imports what from whom: (caller, reader's module)."""
    found = set()
    root = Path(package.__file__).parent
    for path in root.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or path.stem == "__init__":
                continue
            module = str(node.module).removeprefix("rlvr.verifiers.math.")
            if module in READERS and TAKES_TEXT & {name.name for name in node.names}:
                found.add((path.stem, module))
    return found


def test_only_named_modules_read_text():
    """A judgement that needs a tree or a part asks for the form's: `statement.tree_of`, `sides`."""
    allowed = {(caller, module) for module, callers in READERS.items() for caller in callers}
    assert calls_of_readers() <= allowed


PAIRS = [
    (r"2k\pi, k \in \mathbb{Z}", r"2n\pi, n \in \mathbb{Z}"),
    (r"f(m)=m^2+\sqrt m", r"f(n)=n^2+\sqrt n"),
    (r"f^{-1}(y)=\sqrt y-1", r"\sqrt x-1"),
    (r"\hat{\mathbf{i}}+\sqrt2\,\hat{\mathbf{j}}", r"(1,\sqrt2)"),
    (r"P(1,\sqrt{4x})", r"(1,2\sqrt x)"),
    (r"x<\sqrt2", r"(-\infty,\frac{2}{\sqrt2})"),
    (r"|x|\ge\sqrt3", r"(-\infty,-\sqrt3]\cup[\sqrt3,\infty)"),
    (r"x\ne\sqrt5", r"\mathbb{R}\setminus\{\sqrt5\}"),
    (r"x<-\sqrt2\text{ or }x>\sqrt2", r"x^2>2"),
    (r"\sqrt2\text{ km}", r"1000\sqrt2\text{ m}"),
    (r"m+n=\sqrt{50}", r"5\sqrt2"),
    (r"3+\sqrt2j", r"3+i\sqrt2"),
    (r"B<A<C", "B, A, C"),
    (r"n\equiv 3\pmod 5", "3"),
]


@pytest.mark.parametrize(("answer", "reference"), PAIRS)
def test_each_text_that_is_parsed_was_written_and_is_parsed_once(monkeypatch, answer, reference):
    """Each is a part of the answer or of the reference, and no text is parsed twice."""
    texts = []
    tokens = parser.tokens
    monkeypatch.setattr(parser, "tokens", lambda text: texts.append(text) or tokens(text))
    parser.parse.cache_clear()
    assert engine.handle((read(answer), read(reference), MathPolicy(), False))[0]
    written = [fold_within(text).replace(" ", "") for text in (answer, reference)]
    for text in texts:
        assert any(text.replace(" ", "") in side for side in written), text
    assert len(texts) == len(set(texts))

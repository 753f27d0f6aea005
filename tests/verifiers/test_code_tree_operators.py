"""Slips in programs of seven languages, by tree-sitter's grammars."""

import pytest

from rlvr.errors import MissingDependency
from tests.testing.test_work_stdio import SOLUTIONS

pytest.importorskip("tree_sitter", reason="the extra grammars is not installed")

from rlvr.verifiers.code.tree_operators import tree_mutants, tree_rewrites

GREATER = {
    "c": "item > first",
    "cpp": "item > items[0]",
    "java": "in.nextLong() > first",
    "rust": "items[i] > items[1]",
    "python": "items[i] > items[0]",
    "go": "item > first",
    "javascript": "items[i] > items[1]",
    "typescript": "items[i] > items[1]",
}
LANGUAGES = sorted(SOLUTIONS.keys() - {"python"})


@pytest.mark.parametrize("language", LANGUAGES)
def test_slips_of_a_program_by_hand(language):
    """Comparison, negation, bounds, constants, what stands in a branch, statements: each once, and each parses."""
    source = SOLUTIONS[language]
    made = {one.source: one.operator for one in tree_mutants(source, language)}
    greater = GREATER[language]
    assert source not in made
    for old, new, operators in [
        (greater, greater.replace(">", ">="), ("comparison", "bounds")),
        (greater, greater.replace(">", "<="), ("comparison", "bounds")),
        ("count = 0" if language != "go" else "count := 0", None, ("constant",)),
    ]:
        new = old.replace("0", "1") if new is None else new
        if old in source:
            assert made[source.replace(old, new)] in operators, new
    assert {"comparison", "constant", "logic", "dropped statement"} <= set(made.values())
    assert "types" in made.values() or language in ("javascript", "typescript")


def test_a_comparison_of_a_loop_is_a_bound():
    """Of `for` alone: the slip is then one more or one fewer round."""
    source = "int f(int n) {\n    for (int i = 0; i < n; i++)\n        if (n > 2) return i;\n    return 0;\n}\n"
    made = {one.source: one.operator for one in tree_mutants(source, "c")}
    assert made[source.replace("i < n", "i <= n")] == "bounds"
    assert made[source.replace("n > 2", "n >= 2")] == "comparison"


@pytest.mark.parametrize("language", LANGUAGES)
def test_rewritten_programs_have_no_comments_and_turned_branches(language):
    """A program whose branches can be exchanged has them exchanged under the negated condition."""
    made = {one.operator: one.source for one in tree_rewrites(SOLUTIONS[language], language)}
    assert "//" not in made["reprinted"]
    assert ("turned" in made) == (language != "c")  # it has no else
    if "turned" in made:
        assert (
            f"!({GREATER[language]})" in made["turned"]
            or f"!(({GREATER[language]}))" in made["turned"]
        )


def test_what_is_no_program_is_refused():
    """A syntax error, and a language without a grammar."""
    for source, language in (("int main( {", "c"), ("echo 1", "bash")):
        with pytest.raises(SyntaxError):
            list(tree_mutants(source, language))


def test_a_missing_wheel_is_named(monkeypatch):
    """With the extra that brings it."""
    from rlvr.verifiers.code import tree_operators

    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_go", None)
    tree_operators._parser.cache_clear()
    with pytest.raises(MissingDependency, match="grammars"):
        list(tree_mutants(SOLUTIONS["go"], "go"))

"""Slips in programs: which ones are made, and that rewritten programs stay what they were."""

import ast
from random import Random

import pytest

from rlvr.verifiers.code.operators import (
    deletions,
    draw_mutants,
    mutants,
    mutants_across,
    reorder_sets,
    rewrites,
)

LARGEST = '''
import math

def largest(items, floor=0):
    """The largest item above the floor."""
    best = None
    for item in items[1:]:
        if item > floor and (best is None or item >= best):
            best = item
        else:
            best = best
    return abs(best) if best else round(math.sqrt(floor), 2)
'''


def _value(source, *args):
    scope = {}
    exec(source, scope)
    return scope["largest"](*args)


def test_every_slip_is_one_change_of_a_function_that_is_still_python():
    """Each mutant can be read, differs from the source, comes once, and leaves import and docstring alone."""
    made = list(mutants(LARGEST))
    assert len({one.source for one in made}) == len(made) > 30
    for one in made:
        tree = ast.parse(one.source)
        assert one.source != ast.unparse(ast.parse(LARGEST)), one.operator
        assert isinstance(tree.body[0], ast.Import)
        assert ast.get_docstring(tree.body[1]) == "The largest item above the floor."
    kinds = {one.operator for one in made}
    assert {"bounds", "comparison", "constant", "logic", "swapped", "function"} <= kinds
    assert {"dropped call", "dropped condition", "dropped statement"} <= kinds


@pytest.mark.parametrize(
    ("line", "slips"),
    [
        ("x - 3 < 1", "x - 3 <= 1|x - 3 >= 1|x + 3 < 1|3 - x < 1|x - 4 < 1|x - 2 < 1|x - 3 < 2"),
        ("0.5 * x", "1.0 * x|1.5 * x|0.5 + x|x|0.5"),
        ("range(x)", "range(x + 1)|range(x - 1)"),
        ("x and y", "x or y|x|y"),
    ],
)
def test_slips_that_are_made_of_one_line(line: str, slips: str):
    """Worked out by hand: the comparison's neighbours, its operands the other way, the constants beside 3."""
    texts = {one.source.split("return ")[-1] for one in mutants(f"def f(x, y):\n    return {line}")}
    assert set(slips.split("|")) <= texts


def test_drawing_takes_each_kind_of_slip_in_turn():
    """The first few mutants have as many operators, and the same seed draws the same."""
    drawn = draw_mutants(mutants(LARGEST), 6, Random(3))
    assert len({one.operator for one in drawn}) == 6
    assert drawn == draw_mutants(mutants(LARGEST), 6, Random(3))


def test_rewritten_programs_give_the_same_values():
    """Printed anew, with other names of variables, with branches turned."""
    made = {one.operator: one.source for one in rewrites(LARGEST)}
    assert made.keys() == {"reprinted", "renamed", "turned"}
    assert "best" not in made["renamed"].replace("best_", "")
    for items in ([], [1], [3, 9, 4], [5, -2, -7], [2, 2, 2]):
        for source in made.values():
            assert _value(source, items, 1) == _value(LARGEST, items, 1), (source, items)


def test_names_that_mean_something_elsewhere_are_not_renamed():
    """Globals, closures and `locals()` are seen from outside of the function."""
    for source in (
        "def f(x):\n    global y\n    y = x\n    return y",
        "def f(x):\n    y = x\n    def g():\n        return y\n    return g()",
        "def f(x):\n    y = x\n    return locals()['y']",
    ):
        assert "renamed" not in {one.operator for one in rewrites(source)}


def test_sets_in_the_other_order_change_only_what_depends_on_it():
    """A sum, a sorted list and a length stay; the first of a set, a list of it and a join do not."""
    program = """
def largest(items):
    letters = {f"{n}" for n in items}
    first = next(iter(set(items)))
    return sum(set(items)), sorted(letters), len(letters), [n for n in set(items)], "".join(letters), first
"""
    plain = _value(program, [1, 2, 3])
    others = [_value(reorder_sets(program, seed), [1, 2, 3]) for seed in range(6)]
    assert all(other[:3] == plain[:3] and sorted(other[3]) == [1, 2, 3] for other in others)
    assert len({(*other[3], *other[4:]) for other in others}) > 2
    assert reorder_sets("def f(items):\n    return list(items)", 1) is None


SHOP = {
    "price.py": "def price(item, count):\n    return item + count\n\ndef tax(x):\n    return 2 * x",
    "cart.py": (
        "from .price import price, tax\n\ndef total(rows):\n    return price(rows[0], 2) + tax(3)"
        "\n\ndef kind(row):\n    return 'sale' if row else 'sale' + 'gift'"
    ),
    "bill.py": "from .price import price\n\ndef bill():\n    return price(5, 6), 'sale'",
}


def test_a_change_across_files_leaves_a_third_place_out():
    """Worked out by hand: parameters, a result, and a name in a text."""
    made = [(one.operator, dict(one.sources)) for one in mutants_across(SHOP)]
    swapped = next(files for kind, files in made if kind == "parameters")
    assert swapped["price.py"].startswith("def price(count, item):\n    return item + count")
    assert swapped["cart.py"].count("price(2, rows[0]) + tax(3)") == 1
    assert "bill.py" not in swapped
    shifted = [files for kind, files in made if kind == "shift" and "cart.py" in files]
    assert any(
        "return item + count + 1" in files["price.py"]
        and "price(rows[0], 2) - 1" in files["cart.py"]
        for files in shifted
    )
    [renamed] = [files for kind, files in made if kind == "rename"]
    assert renamed["bill.py"].endswith("'sale_')")
    assert renamed["cart.py"].endswith("'sale_' if row else 'sale' + 'gift'")
    assert all(len(files) == 2 for _, files in made)


def test_functions_that_say_what_they_do_can_be_left_out():
    """Methods too; those with an underscore or without a docstring stay."""
    source = (
        "class A:\n    '''A.'''\n\n    def f(self, x, y=1):\n        '''Add.'''\n        return x + y\n\n"
        "    def _g(self):\n        '''No.'''\n\ndef h():\n    return 1\n\n"
        "def k(*rows):\n    '''Count.'''\n    return 2"
    )
    gone = {one.name: one for one in deletions(source)}
    assert set(gone) == {"A.f", "k"}
    assert (gone["A.f"].head, gone["A.f"].docstring) == ("def f(self, x, y=1)", "Add.")
    assert "def f" not in gone["A.f"].source
    assert "def k" in gone["A.f"].source

r"""Our own reading of mathematical text: LaTeX and plain text, folded before, to a small tree.

    text ─ lexer ─▶ tokens ─ parser (atoms, brackets, commands) ─▶ tree
    tree ┬─ numeric ─▶ value at a point
         └─ compile ─▶ SymPy expression

Nothing here evaluates text: every name is looked up in a table, and a name that is not there is
unreadable.
"""

from rlvr.verifiers.math.latex.parser import parse, parse_or_none
from rlvr.verifiers.math.latex.tree import Node, TooLarge, Unreadable

__all__ = ["Node", "TooLarge", "Unreadable", "parse", "parse_or_none"]

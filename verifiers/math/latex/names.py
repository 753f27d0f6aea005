"""The meaning of names: data for the lexer and the parser."""

from __future__ import annotations

from rlvr.verifiers.math.words import pairs

__all__ = ["ARITIES", "BOLD", "DECORATIONS", "FUNCTIONS", "INVERSES", "PLAIN", "SYMBOLS"]

_OUR_NAMES = (
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech "
    "csch arcsinh arccosh arctanh ln exp gcd lcm max min floor ceil abs sgn Re Im arg det tr"
).split()
FUNCTIONS = {name: name for name in _OUR_NAMES} | pairs(
    "asin arcsin acos arccos atan arctan arsinh arcsinh arcosh arccosh artanh arctanh tg tan ctg "
    "cot cosec csc arctg arctan arcctg arccot ceiling ceil sign sgn GCD gcd LCM lcm"
)
"""What the text writes → what we call it.
`log` and `sqrt` take more than an argument and are read on their own."""

ARITIES = {"gcd": (1, 99), "lcm": (1, 99), "max": (1, 99), "min": (1, 99)}
"""The fewest and the most arguments of the functions that take other than one."""

INVERSES = {
    name: "arc" + name
    for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")
}
r"""`\sin^{-1}` is the inverse function, not 1/sin."""

# In a product of letters `Re` or `tg` would be taken for a name; of two letters only `ln`, `lg` and
# `pi` are names.
_LONG = [name for name in (*FUNCTIONS, "sqrt", "cbrt", "log", "binom") if len(name) > 2]
PLAIN = (*sorted(_LONG, key=len, reverse=True), "ln", "lg", "pi")
"""Names that are recognised without a backslash; the longest first."""

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau "
    "upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar aleph Pi"
).split()
SYMBOLS = {name: name for name in (*_GREEK, "top", "Var", "Cov", "Pr")} | pairs(
    "varphi phi varepsilon epsilon vartheta theta varrho rho dots …"
)
"""Commands that are variables.  The dots of `1 + … + n` are one until `indexed.py` finds out what
they stand for."""

BOLD = frozenset("mathbf boldsymbol bm bold".split())
"""Type that may also stand around numbers."""
DECORATIONS = BOLD | frozenset(
    "vec hat tilde overrightarrow underline widehat mathcal dot ddot".split()
)
r"""They make another variable of a letter: \mathbf{i} is no imaginary unit."""

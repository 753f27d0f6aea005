r"""Tokens → tree: a recursive descent whose levels are the binding strengths of mathematics.

    statement   a, b; c             proposition  p \wedge q \to r     relation  a < b \le c
    expression  A \cup B \setminus C  sum          a + b - c \pm d     product   a \cdot b / c
    implicit    2x\sin x            power        x_1'^2!
    atom        number, letter, command, bracket

Of two possible readings one is chosen, the same for both sides: `a(b+c)` is an `apply`, of which
`roles.py` makes a product unless a is a function.  Side by side binds tighter than `/`, so `a/bc`
is a/(bc), except that a fraction of two written numbers is a coefficient: `1/2x` is x/2.  `\sin 2x
y` takes all that stands side by side up to the next function; `\sin(x)y` takes the bracket.  `i`
and `e` are constants. `x^10` is x^{10}, not x^1 0.  `-7 \bmod 3` takes the whole sum before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache

from rlvr.verifiers.math.latex import atoms, brackets, commands
from rlvr.verifiers.math.latex.lexer import END, Token, tokens
from rlvr.verifiers.math.latex.roles import may_apply
from rlvr.verifiers.math.latex.tree import (
    IMAGINARY,
    Node,
    TooLarge,
    Unreadable,
    call,
    depth,
    neg,
    num,
    operands,
    sym,
)

__all__ = ["Parser", "parse", "parse_or_none"]

_MOST_DEPTH = 100  # of our own recursion; a pair of brackets is two levels of it
_RELATIONS = frozenset(r"= < > \le \ge \ne \in \notin \equiv \subset \subseteq".split())
_SETS = {r"\cup": "union", r"\cap": "intersection", r"\setminus": "minus", r"\backslash": "minus"}
_OF_SETS = frozenset(("numbers", "set", "union", "intersection", "minus"))
_TIMES = frozenset(("*", r"\cdot", r"\times"))
_OVER = frozenset(("/", r"\div"))
_MODULO = frozenset((r"\bmod", r"\mod"))
_PLUS = frozenset(("+", "-", r"\pm", r"\mp"))
# Each level binds tighter than the one before: p \vee q \wedge r is p \vee (q \wedge r).
_CONNECTIVES = {
    sign: (name, binds)
    for binds, (name, signs) in enumerate(
        {
            "iff": r"\iff \leftrightarrow \Leftrightarrow",
            "implies": r"\to \implies \Rightarrow",
            "xor": r"\oplus \triangle",
            "or": r"\vee",
            "and": r"\wedge",
        }.items()
    )
    for sign in signs.split()
}
# What cannot begin a factor: at these a product that is written side by side ends.
_NO_FACTOR = (
    _RELATIONS
    | _SETS.keys()
    | _CONNECTIVES.keys()
    | _TIMES
    | _OVER
    | _MODULO
    | _PLUS
    | frozenset(r"\pmod \} \\ \end \rfloor \rceil \rangle \to \choose \over \circ".split())
)


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of a folded text.

    Raises:
        Unreadable, TooLarge: see `tree.py`.
    """
    parser = Parser(tokens(text))
    statement = parser.statement()
    if parser.peek.kind != "end":
        raise Unreadable(f"{parser.peek.text!r} is left over")
    if depth(statement) > _MOST_DEPTH:  # 1/1/1/1… is deep too, though no bracket shows it
        raise TooLarge(f"nested more than {_MOST_DEPTH} deep")
    return statement


def parse_or_none(text: str) -> Node | None:
    """The tree of a folded text; None of what has none.

    Args:
        text: a folded text.
    """
    try:
        return parse(text)
    except (Unreadable, TooLarge, RecursionError):
        return None


class Parser:
    """One text and how far it has been read."""

    def __init__(self, found: list[Token], depth: int = 0) -> None:
        self._tokens, self._at, self._depth = found, 0, depth
        # Variables of the sums, limits, derivatives we are in: there `i` is an index.
        self.bound: list[str] = []
        self.bars = 0  # how many |…| are open
        self.ratio = True  # ':' divides; in a set-builder it says "such that"
        self.integrals = 0
        self.differential = ""  # the variable of the `dx` that has just been read

    # ----------------------------------------------------------------------------- the token stream

    @property
    def peek(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def ahead(self, distance: int = 1) -> Token:
        """A token further on."""
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Move past the next token and return it."""
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def accept(self, *texts: str) -> bool:
        """Move past the next token if it is one of these."""
        fits = self.peek.text in texts and self.peek.kind not in ("words", "end")
        self._at += fits
        return fits

    def expect(self, text: str) -> None:
        """Move past this token; nothing else will do."""
        if not self.accept(text):
            raise Unreadable(f"{text!r} is missing before {self.peek.text!r}")

    def digit(self) -> Node | None:
        r"""One digit of a number, the rest of which stays: `\sqrt23` is LaTeX for \sqrt{2}3."""
        token = self.peek
        if token.kind != "number":
            return None
        self._at += 1
        if len(token.text) > 1:
            self._at -= 1
            # The digit is cut off the token, which the next reader sees without it.
            self._tokens[self._at] = Token("number", token.text[1:])
        return num(Fraction(token.text[0])) if token.text[0] != "." else None

    def inner(self, found: list[Token]) -> Node:
        """Read these tokens on their own, as an expression."""
        # Deeper by one, so that groups within groups cannot go around the limit.
        parser = Parser([*found, END], self._depth + 1)
        parser.bound = self.bound
        value = parser.proposition()
        if parser.peek.kind != "end":
            raise Unreadable(f"{parser.peek.text!r} is left over")
        return value

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting; bounded, so that no text can exhaust the stack."""
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise TooLarge(f"nested more than {_MOST_DEPTH} deep")
        yield
        self._depth -= 1

    @contextmanager
    def binding(self, name: str) -> Iterator[None]:
        """A part in which this name is a variable, even one that elsewhere is a constant."""
        self.bound.append(name)
        yield
        self.bound.pop()

    # --------------------------------------------------------------------------------------- levels

    def statement(self) -> Node:
        """One proposition or several, separated by commas ("and") or semicolons ("or")."""
        items, word = [self.proposition()], "and"
        while self.peek.text in (",", ";") and self.peek.kind == "sign":
            # One semicolon makes the whole list alternatives.
            word = "or" if self.take().text == ";" else word
            items.append(self.proposition())
        return items[0] if len(items) == 1 else Node("list", tuple(items), word)

    def proposition(self, strength: int = 0) -> Node:
        """Relations or letters joined by connectives, of which the last in `_CONNECTIVES` binds
        tightest."""
        left = self.relation()
        while self.peek.kind == "command" and self.peek.text in _CONNECTIVES:
            name, binds = _CONNECTIVES[self.peek.text]
            if binds < strength:
                break
            self.take()
            # a \to b \to c is a \to (b \to c): the right side may be another implication. Of the
            # others the left one is read first.
            right = self.proposition(binds + (name != "implies"))
            left = Node("logic", (left, right), name)
        return left

    def relation(self) -> Node:
        """An expression or a chain of them."""
        sides, signs = [self.expression()], []
        while self.peek.text in _RELATIONS and self.peek.kind in ("sign", "command"):
            signs.append(self.take().text.lstrip("\\"))
            sides.append(self.expression())
        whole_relation = Node("rel", tuple(sides), tuple(signs)) if signs else sides[0]
        modulus = atoms.modulus(self)
        if signs == ["equiv"] and modulus is None and sides[1].op == "mod":  # x \\equiv 2 \\mod 5
            residue, modulus = sides[1].args
            whole_relation = Node("rel", (sides[0], residue), ("equiv",))
        return whole_relation if modulus is None else Node("congruent", (whole_relation, modulus))

    def expression(self) -> Node:
        r"""Sets joined by \cup, \cap and \setminus, from the left."""
        left = self.sum()
        while (op := _SETS.get(self.peek.text)) and self.peek.kind == "command":
            self.take()
            left = Node(op, (left, self.sum()))
        if self.accept(r"\choose"):  # TeX's own, whose braces are often gone by now
            return call("binom", left, self.sum())
        if self.accept(r"\over"):
            return Node("div", (left, self.sum()))
        return left

    def sum(self) -> Node:
        """Terms; a sign in front holds for the whole first product."""
        with self.deeper():
            is_signed = self.peek.text in _PLUS
            left = self._read_signed(num(0), first=True) if is_signed else self.product()
            # Behind the dx an integral ends: \int x\,dx + 1 is the integral, and 1.
            while self.peek.text in _PLUS | _MODULO and not self.differential:
                if self.peek.kind == "words":
                    break
                if self.accept(*_MODULO):
                    left = Node("mod", (left, self.product()))
                else:
                    left = self._read_signed(left)
            return left

    def _read_signed(self, left: Node, *, first: bool = False) -> Node:
        sign = self.take().text
        turned = sign == "+" and self.peek.spaced and self.accept("-")  # 14 + -1.0i; +- may be \\pm
        right = neg(self.product()) if turned else self.product()
        if sign in (r"\pm", r"\mp"):
            return Node("pm", (left, right), "+" if sign == r"\pm" else "-")
        # Between two sets, and nowhere else, - takes away members.
        if sign == "-" and left.op in _OF_SETS and right.op in _OF_SETS:
            return Node("minus", (left, right))  # \\mathbb{R} - \\{1\\}
        right = neg(right) if sign == "-" else right
        return right if first else _join_flat("add", left, right)

    def product(self) -> Node:
        """Factors joined by signs of multiplication, division and remainder, from the left."""
        # A bracket in front decides what (a)/(b)c means: see `_over_bracket`.
        bracketed = self.peek.text == "("
        left = self.implicit()
        while not self.differential:
            crossed = self.peek.text == r"\times"
            if self.accept(*_TIMES):
                bracketed = self.peek.text == "("
                right = self._operand(self.implicit)
                # Of vectors \times is no product of numbers: a × b is not b × a.
                is_cross = crossed and _is_vector(right)
                left = _cross_product(left, right) if is_cross else _join_flat("mul", left, right)
            elif (
                self.peek.text == "/"
                and bracketed
                # (a)/(b): the left side is that bracket alone, and no product that ends with one.
                and left.op != "mul"
                and self.ahead().text == "("
            ):
                self.take()
                left, bracketed = self._over_bracket(left), False
            elif self.peek.text in _OVER or (self.peek.text == ":" and self.ratio):
                sign = self.take().text
                left = self._over(left)
                if sign == r"\div" and left.op == "div":
                    # "÷" is kept, as `486 \div 7` is work that is left open, while a fraction may
                    # be a result.
                    left = Node(left.op, left.args, "÷")
            else:
                return left
        return left

    def _over_bracket(self, above: Node) -> Node:
        """(a)/(b) x has a coefficient before x; in (a)/(b)(c) two brackets stand below."""
        below = self.power()
        factor = self.peek
        if not self.starts_factor(factor) or self.differential:
            return Node("div", (above, below))
        factors = self.implicit()
        if factor.text == "(" and not factor.spaced:
            return Node("div", (above, Node("mul", (below, factors))))
        return Node("mul", (Node("div", (above, below)), factors))

    def _over(self, above: Node) -> Node:
        if above.op == "num" and self.peek.kind == "number" and self.starts_factor(self.ahead()):
            coefficient = Node("div", (above, self.atom()))  # 1/2x
            return _join_flat("mul", coefficient, self.implicit())
        return Node("div", (above, self._operand(self.implicit)))

    def _operand(self, level: Callable[[], Node]) -> Node:
        """2 \\cdot -3, 2^-3."""
        with self.deeper():
            if self.accept("-"):
                return neg(self._operand(level))
            self.accept("+")
            return level()

    def implicit(self) -> Node:
        """Factors side by side."""
        first = self.peek.kind
        factors = [self.power()]
        if first == "number" and self._is_slashed():
            above = self.atom()
            self.expect("/")
            part = Node("div", (above, self.atom()))
            # 3 5/4 is no mixed number, and a product of two bare numbers is not written so.
            if not _is_mixed(factors[0], part):
                raise Unreadable("two numbers side by side")
            factors = [Node("add", (factors[0], part), "mixed")]
        while not self.differential and (
            self.starts_factor(self.peek) or self._next_power(factors[-1])
        ):
            # In brackets, 7(1/5) and (7)(\frac15), it is a product.
            bare = first == "number" and self.peek.text == r"\frac" and len(factors) == 1
            factor = self.power()
            part = factor.args[0] if factor.op == "pow" else factor
            if bare and _is_mixed(factors[0], part):
                mixed = Node("add", (factors[0], part), "mixed")
                # A power is one of the whole mixed number.
                is_power = factor.op == "pow"
                factors = [Node("pow", (mixed, factor.args[1])) if is_power else mixed]
            else:
                factors.append(factor)
        # x 3 may be 3x, x^3 or x_3.
        if self.peek.kind == "number":
            raise Unreadable(f"{self.peek.text} stands behind a factor")
        return factors[0] if len(factors) == 1 else Node("mul", tuple(factors))

    def _is_slashed(self) -> bool:
        """The 3/4 of 1 3/4, but not that of 1/2 3/4."""
        next_three = self.peek.kind, self.ahead().text, self.ahead(2).kind
        # Behind a slash the 3/4 would belong to the fraction before it.
        return next_three == ("number", "/", "number") and self.ahead(-2).text != "/"

    def _next_power(self, before: Node) -> bool:
        """The 3 of 2^6 3^5, and the 7 of 3!7!; else two numbers side by side are no product."""
        raised = before.op == "pow" and before.args[0].op == "num"
        imaginary = before == IMAGINARY  # 3 + i4
        return self.peek.kind == "number" and (
            raised or imaginary or before.op in ("fact", "fact2")
        )

    def starts_factor(self, token: Token) -> bool:
        """True if a product can go on with it without a sign between."""
        if token.kind in ("number", "words", "end"):
            return False
        if token.text in ("|", r"\|"):
            # In |a|b| a bar closes; in a set-builder it says "such that".
            return self.bars == 0 and self.ratio
        if token.kind == "sign":
            return token.text in ("(", "[", "{")
        return token.text not in _NO_FACTOR

    def power(self) -> Node:
        """An atom and what is attached to it."""
        bracketed = self.peek.text == "("  # (x)(3) is a product
        base = self.atom()
        while True:
            if (
                base.op != "apply"
                # (x)(3) is a product; (f + g)(x) is an application.
                and not (bracketed and base.op == "sym")
                and self.peek.kind == "sign"
                and may_apply(base, self.peek.text)
            ):
                base = Node("apply", (base, self.atom()))
            elif (
                base.op == "sym"
                and self.peek.text == r"\circ"
                and self.ahead().kind in ("letter", "command")
            ):
                self.take()
                base = Node("compose", (base, self.atom()))
            elif bracketed and self.accept("'"):
                base = Node("logic", (base,), "not")  # (A \\cup B)'
            elif self.accept("!"):
                # 5!! is a double factorial, 5! ! is (5!)!.
                base = Node(
                    "fact2" if not self.peek.spaced and self.accept("!") else "fact", (base,)
                )
            elif self.accept("%"):
                base = Node("div", (base, num(100)))
            elif self.accept("^"):
                base = self._read_power(base)
            else:
                return base

    def _read_power(self, base: Node) -> Node:
        if self.accept(r"\circ"):
            return Node("deg", (base,))
        exponent = self.script()
        # A^T transposes capital letters and matrices; of x it is a power.
        if exponent.value in ("T", "top") and (
            base.op in ("matrix", "tuple") or _of_matrices(base)
        ):
            return Node("transpose", (base,))
        return Node("pow", (base, exponent))

    def subscript(self) -> Node:
        """What stands behind _: a group or one atom; a power belongs to what bears it."""
        return self.atom()

    def script(self) -> Node:
        """What stands behind ^: a group or one atom, perhaps with a sign; powers of powers go from
        the right."""
        with self.deeper():
            if self.accept("-"):
                return neg(self.script())
            exponent = self.atom()
            return Node("pow", (exponent, self.script())) if self.accept("^") else exponent

    def atom(self) -> Node:
        """The smallest thing with a value."""
        with self.deeper():
            token = self.take()
            if token.kind == "number":
                return atoms.number_atom(self, token.text)
            if token.kind == "letter":
                return atoms.letter(self, token.text)
            if token.kind == "command":
                return commands.command(self, token.text)
            if token.kind == "sign":
                return brackets.bracket(self, token.text)
            raise Unreadable(
                f"{token.text!r} is prose" if token.kind == "words" else "it ends too early"
            )


def _join_flat(op: str, left: Node, right: Node) -> Node:
    """One flat sum or product, so that a thousand terms are no thousand levels."""
    flat = left.op == op and left.value is None  # a mixed number stays one
    return Node(op, (*left.args, right)) if flat else Node(op, (left, right))


def _of_matrices(node: Node) -> bool:
    """A, AB, (A + B)^{-1}: capital letters alone."""
    if node.op == "sym":
        return bool(node.value[0].isupper())
    if node.op == "pow":
        return _of_matrices(node.args[0])
    return node.op in ("mul", "add", "neg", "transpose") and all(map(_of_matrices, node.args))


def _is_vector(node: Node) -> bool:
    r"""\vec{a}, \mathbf{a}."""
    return node.op == "sym" and node.value.endswith("^")


def _cross_product(left: Node, right: Node) -> Node:
    r"""2\vec{a} \times \vec{b}: a function of two vectors, of which nothing is known; it does not
    commute."""
    factors = operands(left, "mul")
    if not _is_vector(factors[-1]):
        return _join_flat("mul", left, right)
    product = Node("apply", (sym("×"), Node("tuple", (factors[-1], right), "()")))
    return Node("mul", (*factors[:-1], product)) if factors[:-1] else product


def _is_mixed(whole: Node, part: Node) -> bool:
    """2\\frac{1}{3} is two and a third; 2\\frac{x}{3} is a product."""
    if whole.op != "num" or part.op != "div" or any(arg.op != "num" for arg in part.args):
        return False
    above, below = (Fraction(arg.value) for arg in part.args)
    # 2\frac{3}{2} is a product; a mixed number has a proper part.
    return (
        whole.value.denominator == above.denominator == below.denominator == 1 and 0 < above < below
    )

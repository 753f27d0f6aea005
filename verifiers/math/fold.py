r"""Folds the spellings of Unicode and LaTeX that look or mean the same into one,
before anything is read.

    "½"  →  \frac{1}{2}      \dfrac{1}{2}  →  \frac{1}{2}
    10,\!080  →  10080        \text{ cm}  →  "cm"

Prose is put in double quotes, so that later stages can tell words from products of variables.
Every pass is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from rlvr.verifiers.math.cut import brackets, cuts, separator
from rlvr.verifiers.math.words import number, pairs

__all__ = [
    "Swaps",
    "fold",
    "fold_unicode",
    "mixed",
    "squeeze",
    "swap",
    "swaps",
    "with_commas",
    "with_plain_commas",
    "with_points",
]

Swaps: TypeAlias = tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]
"""Signs, patterns, and what takes their place."""

_VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
_NAMED = pairs(
    """
    α alpha  β beta  γ gamma  δ delta  ε epsilon  ζ zeta  η eta  θ theta  κ kappa  λ lambda  μ mu
    ν nu  ξ xi  π pi  ρ rho  σ sigma  τ tau  φ phi  χ chi  ψ psi  ω omega  Δ Delta  Ω Omega  Σ Sigma
    Φ Phi  × times  ✕ times  · cdot  ⋅ cdot  ∙ cdot  • cdot  ÷ div  ± pm  ∓ mp  ∞ infty  ≡ equiv
    ∠ angle  ∧ land  ∨ lor  ⌊ lfloor  ⌋ rfloor  ⌈ lceil  ⌉ rceil  ⇒ implies  ≤ le  ⩽ le  ≦ le  ≥ ge
    ⩾ ge  ≧ ge  ≠ ne  ≈ approx  ∪ cup  ∩ cap  ∈ in  ¬ neg  ↔ iff  ⇔ iff  ⟺ iff  ⊕ oplus  △ triangle
    √ surd  ∅ emptyset  ∖ setminus  → to  ⟨ langle  ⟩ rangle  … dots
    """
)
_PLAINER = pairs(
    r"""
    。 .  、 ,  ➖ -  ➕ +  ′ '  ″ ''  ‖ \|  ∣ |  − -  – -  — -  ‐ -  ‑ -  ∕ /  ⁄ /  ’ '  ‘ '
    ℝ \mathbb{R}  ℤ \mathbb{Z}  ℕ \mathbb{N}  ℚ \mathbb{Q}  ℂ \mathbb{C}
    """
)
_TRANSLATE = str.maketrans(
    _PLAINER
    | dict.fromkeys("°º", r"^\circ ")
    # Ticks around an answer, and marks that have no width, say nothing.
    | dict.fromkeys("✓✔✅□∎■", " ")
    | dict.fromkeys("“”\u200b\u2060\ufeff", "")
    | {sign: rf" \{name} " for sign, name in _NAMED.items()}
    # NFKC makes 1⁄2 of ½, with a fraction slash.
    | {
        sign: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", sign).split("⁄"))
        for sign in _VULGAR
    }
)
# By hand, as NFKC would make x2 of x².
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
_RAISED_RUN, _LOWERED_RUN = re.compile(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_DIGITS = str.maketrans(_RAISED + _LOWERED + "⁻", "0123456789" * 2 + "-", "⁺")
# `pi` and `sin` without a backslash, not within a word.
_PLAIN_NAME = re.compile(
    r"(?<![\\A-Za-z])"
    r"(?:pi|sqrt|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|inf|infty|infinity)"
    r"(?![A-Za-z])"
)
_CALLED = {"inf": "infty", "infinity": "infty", "sqrt": "surd"}
# 3^{\text{rd}}, 5^{th}: an ordinal is its number.
_ORDINAL = re.compile(
    r"(?<=\d)\s?\^\s?\{?\s?(?:\\(?:text|mathrm|textrm)\s?\{)?\s?(?:st|nd|rd|th)\s?\}{0,2}"
)

# Without any of these signs there is nothing of LaTeX to fold.
_PLAIN = re.compile(r"[^\\$\"{}~`\n\t]*")
# 负5: minus in words.
_MINUS_WORD = re.compile(r"^\s?[负負]\s?(?=[\d\\])")
# {,}, a comma with a negative space, and a thin space group digits; each group after the first has
# three of them.
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\{,\}|,\s?\\!\s?|\\,)\d{3})+(?!\d)")
# With up to four short groups inside: \text{m$^{2}$} and the like.
_TEXT = re.compile(
    r"\\(?:text|mbox|hbox|textbf|textit|textrm|textsf|texttt|textup|textnormal|mathrm|ce|"
    r"operatorname\*?|emph)"
    r"\s?\{([^{}]*(?:\{[^{}]{0,20}\}[^{}]*){0,4})\}"
)
# \mathbf{12}: type around a number only; \mathbf{i} is a vector.
_BOLD = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|mathit|mathsf|mathtt|underline)\s?\{([-\d.,\s]{0,40})\}"
)
# \mathbf{(B)}, \mathit{even}.
_BOLD_WORD = re.compile(
    r"\\(?:mathbf|mathit|mathsf|bm|boldsymbol)\s?\{(\([A-Z]\)|[A-Z][a-z]{1,20}|[a-z]{3,20})\}"
)
_ROWS = re.compile(
    r"(?s)\\begin\s?\{(aligned|align\*?|gathered|gather\*?|equation\*?|split|alignedat|cases)\}"
    r"(.*)\\end\s?\{\1\}",
)
# A row break that has lost one of its two signs: \begin{matrix}1\2.
_MATRIX_BREAK = re.compile(r"(?<!\\)\\(?=[-\d])")
# What JSON made of a backslash and b, f, a or v before a letter, and of one and t, r or n before
# the rest of a command.
_EATEN = re.compile(
    "([\x07\x08\x0b\x0c])(?=[a-zA-Z])|\t(?=ext\\s?\\{|imes|heta|frac|an(?![a-z]))"
    "|\r(?=ight|angle)|\n(?=eq(?![a-z]))"
)
_LETTER_OF = {"\x07": "a", "\x08": "b", "\x0b": "v", "\x0c": "f", "\t": "t", "\r": "r", "\n": "n"}
_NUMERAL = r"[$£€¥]?\d[\d,.]*"
# 5–6, 10–20%: a dash between two numbers that end there; 5–x is a difference.
_RANGE = re.compile(
    rf"((?:^|[,;(\[{{])\s{{0,4}}{_NUMERAL}\s?(?:\\?%)?\s?)[–—](?=\s?{_NUMERAL}\s?"
    r"(?:\\?%\s?)?(?:$|[,;)\]}$°]|\\(?:text|mathrm|[ ,;])|\^\s?\{?\s?\\circ|[a-z]{2}))"
)
# 12 cm, $5.00, 3/4 cup, 10 m^2: a number, and words without further digits.
_SPOKEN_NUMBER = re.compile(
    r"([+-]?[$£€]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?%?)"
    r"((?:\s|(?<=\d)(?=[A-Za-z°]))[^\d:/]*(?:\^\d)?)?"
)
_SHORT_EQUATION = re.compile(r"[a-zA-Z] ?= ?[+-]?\d+(?:\.\d+)?(?:/\d+)?")
# 5元, 12个: Chinese or Japanese words behind a number.
_CJK_TAIL = re.compile(r"(?<=[\d.%)}])\s?([\u4e00-\u9fff\u5186]{1,6})(?=$|[,;.])")
# 答案是5: the label before an answer.
_CJK_LABEL = re.compile(r"^\s?(?:最终|最后)?(?:答案|答)(?:是|为|為)?\s?:?\s?")
# x = 1 或 x = 2; within a word they join nothing.
_CJK_JOIN = re.compile("(?<![\u4e00-\u9fff])(?:或者?|且|和|与)(?![\u4e00-\u9fff])")
# A factor that ends before a power that begins: }3^5, 6 3^5.
_BESIDE = re.compile(r"(\}|(?<=\d) ) ?(?=\d+ ?\^)")
# 1② and ①5 are a number and a mark, which NFKC would join into 12 and 15.
_CIRCLED = re.compile(
    "(?<=[\\d\u2460-\u24ff\u2776-\u2793])[\u2460-\u24ff\u2776-\u2793]"
    "|[\u2460-\u24ff\u2776-\u2793](?=\\d)"
)
_NEGATED = pairs(
    r"= \ne  < \ge  > \le  \le >  \leq >  \ge <  \geq <  \in \notin  \equiv \not\equiv"
)


def swaps(
    *rows: tuple[str | tuple[str, ...], str, str | Callable[[re.Match[str]], str]],
) -> Swaps:
    """Replacements for `swap`.

    Args:
        rows: what must stand in a text, the pattern that is looked for then, and what takes its
            place; with several signs the row counts once for each.
    """
    return tuple(
        (sign, re.compile(pattern), new)
        for signs, pattern, new in rows
        for sign in ((signs,) if isinstance(signs, str) else signs)
    )


_LOGIC = pairs(r"not \neg  and \land  or \lor  implies \implies  ! \neg  ~ \neg  || \lor  && \land")


def _with_signs(match: re.Match[str]) -> str:
    """Logic as people and programs write it, in signs."""
    sign = re.compile(r"(?i:not|and|or|implies)\b|\|\||&&|[!~]")
    return sign.sub(lambda found: f" {_LOGIC[found[0].lower()]} ", match[0])


_PLAIN_SIGNS = swaps(
    (  # not p or not q
        ("not ", "NOT ", "Not "),
        r"(?i)\A(?:not )?[a-z](?: (?:and|or|implies) (?:not )?[a-z])*\Z",
        _with_signs,
    ),
    (  # !p || !q
        ("||", "&&"),
        r"\A(?:[!~(\s]|\\neg)*[A-Za-z](?![A-Za-z])"
        r"(?:[A-Za-z](?![A-Za-z])|[!~()\s]|\|\||&&|\\neg)*\Z",
        _with_signs,
    ),
    (  # ~p, which is no space
        "~",
        r"(\A|\(|\\(?:lor|land|vee|wedge|to|implies)\s)\s?~\s?(?=[A-Za-z](?![A-Za-z])|\()",
        r"\1\\neg ",
    ),
    ("frac{", r"(?<![\\A-Za-z])[dt]?frac(?=\{)", r"\\frac"),
    ("**", r"\*\*", "^"),
    (">=", ">=", r" \\ge "),
    ("<=", "<=", r" \\le "),
    ("...", r"\.\.\.", r" \\dots "),
    ("!=", r"(?<=\d)!=(?=\s?\d)", "! ="),  # 4!=24
    ("-to-", r"(?<=\d)-to-(?=\d)", " to "),
    ("S$", r"\AUS(?=\$)", ""),
    ("'", r"(?<=\d)\s?'\s?(\d{1,2}(?:\.\d+)?)\s?\"", r"'\1''"),  # 5'8"
    (  # x = 2; y = 1
        ";",
        r"\A[^,;=]*=[^,;]*(?:(?<!\\);[^,;=]*=[^,;]*){1,9}\Z",
        lambda m: m[0].replace(";", ","),
    ),
    (  # ^3/_4
        "_",
        r"(?:\{\s?\})?\^\s?\{?(\d+)\}?\s?(?:\\!)?\s?/\s?(?:\\!)?\s?_\s?\{?(\d+)\}?",
        r"\\frac{\1}{\2}",
    ),
)
_MARKUP = swaps(
    ("{,}", r"(?<=\d)\{,\}(?=\d)", "."),  # 3{,}14: before three digits it groups
    ("{.}", r"(?<=\d)\{\.\}(?=\d)", "."),
    (r"\mathrm ", r"\\mathrm (?=[a-zA-Z](?![a-zA-Z]))", ""),  # \mathrm e
    (  # \left\{\begin{array}{ll} … \end{array}\right.
        "{array}",
        r"\\left\s?\\\{\s?\\begin\{array\}\s?\{[lcr ]{1,6}\}((?:(?!\\end).)*)"
        r"\\end\{array\}\s?\\right\s?\.",
        r"\\begin{cases}\1\\end{cases}",
    ),
    ("{:}", r"(?<![a-zA-Z])\{:\}", ":"),
    (r"\genfrac", r"\\genfrac\s?\{\}\s?\{\}\s?\{[^{}]*\}\s?(?:\{\d?\}|\d)", r"\\frac"),
    (  # 0.\dot{1}4285\dot{7}: the first and the last digit of a period
        r"\dot",
        r"\\dot\s?\{?(\d)\}?(\d{0,40})\\dot\s?\{?(\d)\}?",
        r"\\overline{\1\2\3}",
    ),
    (  # TeX's own \pmatrix{1&2\cr3&4}
        "matrix{",
        r"\\([pbBvV]?matrix)\{((?:[^{}]|\{[^{}]{0,60}\}){1,800})\}",
        lambda m: rf"\begin{{{m[1]}}}{m[2]}\end{{{m[1]}}}".replace(r"\cr", "\\\\ "),
    ),
    ("\\\\[", r"\\\\\[\s?[\d.]{1,5}\s?(?:pt|em|ex|mm|cm|in)\s?\]", r"\\\\\\\\"),
    (r"\over", r"\{([^{}]{1,60})\\over(?![a-zA-Z])([^{}]{1,60})\}", r"\\frac{\1}{\2}"),
    (r"\framebox", r"\\framebox\s?(?:\[[^\[\]]{0,20}\]\s?){0,2}", ""),
    (  # ]1, 2[ \cup [3, 4[
        r"\cup",
        r"(?:\A|(?<=\\cup)|(?<=\\cup[ ])|(?<=\\cup\\,))([\[\]])([^\[\]()]{1,80})([\[\]])",
        lambda m: f"{'(' if m[1] == ']' else '['}{m[2]}{')' if m[3] == '[' else ']'}",
    ),
    (  # x = 2 \\ y = 1
        r"\\",
        r"\A([^=\\&{}]{1,30}=[^=\\&{}]{1,60}?)\s?\\\\\s?([^=\\&{}]{1,30}=[^=\\&{}]{1,60})\Z",
        r"\1, \2",
    ),
    (r"\mp", r"\A(?:(?!\\pm).)*\Z", lambda m: m[0].replace(r"\mp", r"\pm")),
    (  # A^{\mathsf{c}}
        r"\mathsf",
        r"\^\s?(?:\\mathsf\s?\{([cCT])\}|\{\s?\\mathsf\s?(?:\{([cCT])\}|([cCT]))\s?\})",
        lambda m: f"^{m[m.lastindex or 1]}",
    ),
    (  # \text{not }p\text{ or not }q
        ("not }", "not}"),
        r"\\text\s?\{\s?(?:(and|or)\s)?not\s?\}(?=\s?[a-zA-Z(\\])",
        lambda m: {"and": r"\land", "or": r"\lor", None: ""}[m[1]] + r"\neg ",
    ),
    (
        r"\genfrac",
        r"\\genfrac\s?\{?\(\}?\s?\{?\)\}?\s?\{0[^{}]*\}\s?\{\d?\}",
        r"\\binom",
    ),
    # as the package siunitx writes quantities
    *((name, rf"\\{name}\s?\{{([^{{}}]{{1,60}})\}}\s?\{{", r"\1 {") for name in ("SI", "qty")),
    ("phantom", r"\\[hv]?phantom\s?\{[^{}]*\}", " "),
    (
        "color",
        r"\\(?:color|textcolor|mathcolor)\s?(?:\[[^\[\]]{0,20}\])?\s?\{[\w!,. ]{1,40}\}",
        "",
    ),
    (
        r"\not",
        r"\\not ?(=|<|>|\\(?:leq?|geq?|in|equiv)(?![a-zA-Z]))",
        lambda m: f"{_NEGATED[m[1]]} ",
    ),
    (r"US\$", r"US\\\$", r"\\$"),
)
_SYMBOLS = swaps(
    (r"\mu", r'\\mu ?"([A-Za-z])', r'"μ\1'),
    (r"\Omega", r'"([kM])" ?\\Omega(?![a-zA-Z])', r'"\1Ω"'),
    (r"\prime", r"\^\s?\{?\s?((?:\\prime\s?){1,2})\}?", lambda m: "'" * m[1].count("prime")),
)
_POWER = r"\d+ ?\^ ?(?:\{ ?\d+ ?\} ?|\d+ |\d+$)"
_NUMERALS = swaps(
    ("10", r"(?<=\d) ?[xX] ?(?=10 ?\^)", r" \\times "),  # 3x10^8
    # 10 x 20 only where it is the whole text: elsewhere x is a letter.
    *(
        (sign, rf"\A([1-9]\d*(?:\.\d+)?) ?{sign} ?(\d+(?:\.\d+)?)\Z", r"\1\\times \2")
        for sign in "xX"
    ),
    ("'", r"\A[+-]?\d{1,3}(?:'\d{3})+(?:\.\d+)?\Z", lambda m: m[0].replace("'", "")),  # 1'234'567
    (  # 2^6 3^5
        "^",
        rf"\A{_POWER}(?:{_POWER}){{1,20}}\Z",
        lambda m: _BESIDE.sub(r"\1 \\cdot ", m[0]),
    ),
    ("(", r"\A([+-]?\d*\.\d*)\((\d{1,40})\)(?=\Z| ?[\"%])", r"\1\\overline{\2}"),  # 0.1(6)
    ("sec", r"(?<=\d)\s{0,2}\\sec\Z", ' "sec"'),
    ("infty", r'(?i)\A"?positive"? ?(?=\\infty)', ""),
    *(  # "negative 5", "minus" 5
        row
        for sign in ("egative", "inus")
        for row in (
            (
                sign,
                r'(?i)\A"(?:negative|minus) ([\d.$\\][^"]*)"\Z',
                lambda m: f"-{_spell_words(m[1]).strip()}",
            ),
            (sign, r'(?i)\A"?(?:negative|minus)"? ?(?=[\d.$\\])', "-"),
        )
    ),
    ("! ", r"(?<=\d!) (?=\d)", r" \\cdot "),  # 4! 5!
    ("mod", r"\( ?\\?b?mod(?![a-zA-Z]) ?\{? ?(\w{1,9}) ?\}? ?\)", r"\\pmod{\1}"),  # (mod 3)
    (  # (3)/(4) x
        (")/", ") /"),
        r"(?<![\w^_)}\]])\(([^()]{1,80})\) ?/ ?\(([^()]{1,80})\)(?= (?:[a-zA-Z]|\\[a-z]))",
        r"\\frac{\1}{\2}",
    ),
    *(
        (words, rf'\A(\d+) ?"?{words}"? ?(\d+)\Z', r"\\frac{\1}{\2}")
        for words in ("out of", "in")  # 3 "out of" 4
    ),
)
_COMMAND = re.compile(r"(?s)\\(?:(?:left|right)(?:\s?\.)?(?![a-zA-Z])|[a-zA-Z]+|.)")
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp gcd lcm min max det "
    "mod sgn cis"
    " arccot arcsec arccsc arcsinh arccosh arctanh".split()
)
_GONE = (
    "left right left. right. displaystyle textstyle limits nolimits bigl bigr big Big Bigl Bigr "
    "bigg Bigg boxed fbox "
    "tiny scriptsize footnotesize small normalsize large Large LARGE huge Huge bfseries itshape "
    "sffamily ttfamily "
    "rmfamily strut mathstrut"
)
_BECOMES = (
    {"\\" + name: "" for name in (*_GONE.split(), "(", ")", "[", "]", "!")}
    | {
        "\\" + name: " "
        for name in (
            *",;:> \n",
            *"quad qquad thinspace hspace checkmark rm bf therefore square blacksquare qed".split(),
        )
    }
    | {
        "\\" + name: sign
        for name, sign in pairs(
            r"""
            dfrac \frac  tfrac \frac  cfrac \frac  sfrac \frac  xfrac \frac  nicefrac \frac
            flatfrac \frac  nleq >  nleqslant >  ngeq <  ngeqslant <  nless \ge  ngtr \le  leq \le
            leqslant \le  geq \ge  geqslant \ge  lt <  gt >  neq \ne  lVert \|  rVert \|  Vert \|
            colon :  lbrace \{  rbrace \}  lbrack [  rbrack ]  textdollar $  dbinom \binom
            tbinom \binom  overrightarrow \vec  top T  intercal T  Pr P  rightarrow \to
            longrightarrow \to  lvert |  rvert |  vert |  mid |  ldots \dots  cdots \dots  ast *
            % %  degree ^\circ  # #  varnothing \emptyset  lor \vee  land \wedge  cupdot \cup
            bigcup \cup  bigcap \cap  backslash \setminus  & ,  pounds £  euro €  cdotp \cdot
            infin \infty
            """
        ).items()
    }
    | {r"\imath": " i ", r"\jmath": " j "}
)
_DEGREE = re.compile(r"\^\s?(?:\{\s?\\circ\s?\}|\\circ)")
# A word between values: `2 and 3`, `x<1 or x>2`; not the `or` of `color`.
_AND = re.compile(r"(?i)(?:\s|,|(?<=[\d)}\]\"]))(and|or)(?=[\s\d(\\\"$-])")
# two and a half hours: one number.
_AND_A_PART = re.compile(
    r"(?i)\b([A-Za-z]+(?:-[A-Za-z]+)?|\d+) and "
    r"((?:an? |one |two |three |four |five |seven )?(?:half|quarter|third|fourth|fifth|sixth|"
    r"seventh|eighth|ninth|tenth)s?)\b",
)
# 3 and 1/7 may be a number or two; the other side tells.
_AND_A_FRACTION = re.compile(
    r"\A(-?\d+)\s{0,2}\\also\s{0,2}(\d+/\d+|\\frac ?(?:\{\d+\}|\d) ?(?:\{\d+\}|\d))"
    r"(?=\Z| ?[\"a-zA-Z])"
)
_JOINED = re.compile(r"(?i) ?(,|\band\b|\bor\b) ?")
# Between inequalities "or" makes a union, "and" an intersection, and a comma whichever is not
# empty.
_JOINS = {"and": r" \also ", "or": r" \either ", ",": " , "}
_DANGLING = re.compile(r"^ ?\\(?:also|either)(?![a-zA-Z])|\\(?:also|either) ?[.,;]? ?$")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])")
_RELATION = re.compile(rf"=|{_INEQUALITY.pattern}")
_DOLLAR = re.compile(r"(?<!\\)\$")
# $5 that nothing closes; $x may have lost its second sign
_MONEY = re.compile(r"\A[ -]{0,9}\$|[a-z] \$(?=\d[\d,.]{0,20}(?: [a-z .]{0,40})?\Z)")
_SPACE_COMMANDS = re.compile(r"\\(?:[,;:! ]|cdot(?![a-z])|quad|thinspace)")
_SCALING = frozenset(("K", "k", "M", "B"))
_MONEY_SIGNS = frozenset("$£€¥₹")
_PUNCTUATION = frozenset(".:,;()-+/=")
# 1,200 people: the commas group digits, and separate nothing.
_GROUPED_WORDS = re.compile(r"[+-]?[$£€]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?: [^\d,:/]*)?")
# \mathrm{e}, \text{i}, \mathrm{d}x are the plain letters.
_UPRIGHT = frozenset(("e", "i", "d", "%", "\\%", ""))
_SPACE = re.compile(r"(?<!\d) +| +(?!\d)")
_COMMA = separator(",")
_BRACED = re.compile(r"\{([A-Za-z0-9])\}")


def fold(text: str) -> str:
    """The text with one spelling for each thing."""
    if text.isascii() and text.isdecimal():
        return text
    if not text.isprintable():
        text = _EATEN.sub(lambda m: "\\" + _LETTER_OF[m[0]], text)
    if not text.isascii():
        text = fold_unicode(text)
    text = swap(text, _PLAIN_SIGNS)
    text = _PLAIN_NAME.sub(lambda m: rf" \{_CALLED.get(m[0], m[0])} ", text)
    if not _PLAIN.fullmatch(text):
        text = _fold_latex(text)
    text = " ".join(text.split())
    # `two and a half` is one number and no list of two, so it is read before "and" separates.
    if " and " in text:
        if (value := _number_in(text)) is not None:
            return mixed(value)  # two and a half
        text = _AND_A_PART.sub(_add_part, text)
    if " " in text or '"' in text:
        text = _AND.sub(lambda m: _JOINS[m[1].lower()], text)
    if r"\also" in text:
        text = _AND_A_FRACTION.sub(r'\1 "and" \2', text)
    if any(sign in text for sign in (r"\also", r"\either", r"\vee", r"\wedge")):
        text = _fold_connectives(text)
    if len(text) > 1 and not text.isdecimal():
        text = swap(text, _NUMERALS)
    # Punctuation at the end closes a sentence; `5.` is 5.
    text = text.rstrip(" .,;:")
    if text[:1] == "=":
        text = text[1:].lstrip()  # "= 26"
    return text[:-2].rstrip(" .,;:") if text.endswith(r"\\") else text


def swap(text: str, rows: Swaps) -> str:
    """The text after each swap, in their order.

    Args:
        text: any text.
        rows: from `swaps`.
    """
    for sign, pattern, new in rows:
        if sign in text:
            text = pattern.sub(new, text)
    return text


# 1.234,5 and 3,14, but no comma inside of a longer run of digits and points.
_COMMA_NUMBER = re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+|\d+)(?:,(\d+))?(?![\d.,]?\d)")


_TAIL = r" ?(?:\\?%|\\(?:text|mathrm)\s?\{[^{}]*\})?"
_ONE_COMMA = re.compile(rf"[+-]?(?:\d{{1,3}}(?:\.\d{{3}})+|\d+),\d+{_TAIL}")
# A zero before the comma, thousands in front, or a percent sign: nothing else can be meant.
_SURE = re.compile(r"[+-]?(?:0|\d{1,3}(?:\.\d{3})+),\d.*|[+-]?\d+,\d+ ?\\?%")
# 1,234 may be grouped, so alone it is never a decimal comma.
_GROUPS = re.compile(rf"[+-]?\d{{1,3}}(?:,\d{{3}})+{_TAIL}")
# 3,14 in a sentence; 1,234 and (3,14) may be something else.
_COMMA_IN_PROSE = re.compile(r"(?<![\d.,(\[{])\d+,(?!\d{3}(?!\d))\d+(?![\d,)\]}])")
_CYRILLIC = re.compile("(?i)[а-яё]{3}")
_POINT_IN_PROSE = re.compile(r"\d\.\d")


def with_commas(answer: str, reference: str, prompt: str) -> tuple[str, str] | None:
    """The other reading of both, where commas are decimal points in numbers that stand alone; None
    if there is none.

    So they are in `0,5`, `12,5 %` and `1.234,5`, and in other numbers after a prompt that has such.

    Args:
        answer, reference: their texts.
        prompt: the prompt's text, "" where it is not known.
    """
    # A prompt with a single decimal point decides for points.
    is_usual = _COMMA_IN_PROSE.search(prompt) or _CYRILLIC.search(prompt)
    usual = bool(is_usual) and not _POINT_IN_PROSE.search(prompt)
    texts = (answer, reference)
    first, second = (with_points(t) if _has_comma(t.strip(), usual) else t for t in texts)
    return (first, second) if (first, second) != texts else None


def with_plain_commas(text: str) -> str:
    """The text with points for decimal commas, of a number that may have a unit: `1,200 m` groups.

    Args:
        text: of one number.
    """
    is_decimal = _COMMA_IN_PROSE.search(text) or _SURE.match(text)
    return with_points(text) if is_decimal else text


def _has_comma(number: str, usual: bool) -> bool:
    match = _ONE_COMMA.fullmatch(number) and not _GROUPS.fullmatch(number)
    return bool(match) and (usual or _SURE.fullmatch(number) is not None)


def with_points(text: str) -> str:
    """The text with a point where it has a decimal comma, and no points that group digits:
    `1.234,5` is 1234.5.

    Args:
        text: an answer or reference whose numbers are written so; a list has a space or semicolon
            after each item.
    """
    return _COMMA_NUMBER.sub(
        lambda m: m[1].replace(".", "") + (f".{m[2]}" if m[2] else ""), text.replace("{,}", ",")
    )


def mixed(value: int | Fraction) -> str:
    """A number that was said in words, in digits.

    Args:
        value: the number.
    """
    whole, part = divmod(abs(Fraction(value)), 1)
    size = rf"{whole or ''}\frac{{{part.numerator}}}{{{part.denominator}}}" if part else str(whole)
    return f"-{size}" if value < 0 else size


def _number_in(words: str) -> int | Fraction | None:
    return number(words.casefold().replace("-", " "))


def _add_part(match: re.Match[str]) -> str:
    """`two and a half` before a unit."""
    whole = int(match[1]) if match[1].isdecimal() else _number_in(match[1])
    part = number(match[2].casefold())
    if not isinstance(whole, int) or part is None or not 0 < part < 1:
        return match[0]
    return mixed(whole + part)


def _fold_connectives(text: str) -> str:
    r"""`and` is a comma except between inequalities, and only there \land and \lor are words and no
    notation.

    One that joins nothing stays a word: `5\text{ or }` is not 5.
    """
    if _DANGLING.search(text):
        return " ".join(text.replace(r"\also", '"and"').replace(r"\either", '"or"').split())
    text = text.replace(r"\either", " ; ")
    # Between equations \wedge and \vee join statements; alone they are signs of logic.
    if _RELATION.search(text):
        text = text.replace(r"\wedge", r"\also").replace(r"\vee", " ; ")
    if not _INEQUALITY.search(text):
        text = text.replace(r"\also", " , ")
    return " ".join(text.split())


def squeeze(text: str) -> str:
    r"""A folded text without its spaces and needless braces, for comparison letter by letter.

    A space between digits stays: `1 2` is not 12.
    """
    text = _SPACE.sub("", text)
    return _BRACED.sub(r"\1", text) if "{" in text else text


def fold_unicode(text: str) -> str:
    r"""Signs, letters and digits beyond ASCII as LaTeX: `\alpha` for α.

    Args:
        text: a formula, or prose with such signs.
    """
    # Superscripts go first: NFKC, which folds full-width digits, would turn x² into x2.
    text = _RAISED_RUN.sub(lambda m: f"^{{{m[0].translate(_DIGITS)}}}", text)
    text = _LOWERED_RUN.sub(lambda m: f"_{{{m[0].translate(_DIGITS)}}}", text)
    if "–" in text or "—" in text:
        # A dash between numbers is a range and no minus; it is folded before it would become one.
        text = _RANGE.sub(r"\1 \\endash ", text)
    if _CIRCLED.search(text):
        text = _CIRCLED.sub(r" \\circled ", text)  # 1② is not 12
    # Once more after NFKC, which makes plain letters of mathematical ones.
    text = unicodedata.normalize("NFKC", text.translate(_TRANSLATE)).translate(_TRANSLATE)
    text = _CJK_JOIN.sub(lambda m: " or " if m[0][0] == "或" else " and ", text)
    if text.isascii():
        return text
    return _CJK_TAIL.sub(r" \\text{\1}", _MINUS_WORD.sub("-", _CJK_LABEL.sub("", text, count=1)))


def _fold_latex(text: str) -> str:
    text = text.replace("~", " ").replace("`", "").replace('"', " ")
    # Before markup, so that {,} between three digits is gone before it is read as a decimal comma.
    text = _GROUPED.sub(lambda m: "".join(filter(str.isdigit, m[0])), text)
    text = _fold_dollars(swap(text, _MARKUP))
    text = _ORDINAL.sub("", text)
    if "\\" not in text:
        return _unwrap(text)
    if "\\begin" in text:
        text = _fold_rows(text)
    # \underline may stand around \mathbf, so that two rounds are needed.
    text = _BOLD.sub(r"\1", _BOLD.sub(r"\1", text) if r"\underline" in text else text)
    # Words before symbols: what stands in quotes is no command any more.
    text = _TEXT.sub(_quote, _BOLD_WORD.sub(r"\\text{\1}", text))
    text = swap(text, _SYMBOLS)
    text = _COMMAND.sub(
        lambda m: _BECOMES.get(m[0].replace(" ", "") if len(m[0]) > 2 else m[0], m[0]), text
    )
    text = _DEGREE.sub(r"^\\circ ", text).replace(r"\$", "$")
    return _unwrap(text)


def _fold_rows(text: str) -> str:
    r"""The statements of `aligned`, `gathered` and of `cases` without conditions, one after
    another."""
    if "matrix}" in text:
        return _MATRIX_BREAK.sub(r"\\\\", text)  # a row break that has lost one of its two signs
    match = _ROWS.search(text)
    if match is None:
        return text
    _, rows = match.groups()
    # Cases with conditions are one function; without, they are equations of one system.
    if match[1] == "cases" and ("&" in rows or "=" not in rows or r"\text" in rows):
        return text
    statements = ""
    for row in (row.replace("&", " ").strip(" ,;\n") for row in rows.split(r"\\")):
        # A row that begins with = goes on with the line above.
        statements += row if not statements or row[:1] in ("=", "") else f" , {row}"
    return text[: match.start()] + statements + text[match.end() :]


def _fold_dollars(text: str) -> str:
    r"""Take `$…$` away and keep money: `\$5`, and a lone `$` that opens the text and that nothing
    closes."""
    if "$" not in text:
        return text
    is_money = len(_DOLLAR.findall(text)) == 1 and _MONEY.search(text)
    return text if is_money else _DOLLAR.sub(" ", text)


def _quote(match: re.Match[str]) -> str:
    r"""`\text{ cm}` → `"cm"`; and/or inside become separators; function names and upright e, i, d
    become maths."""
    content = " ".join(match[1].split())
    if content in ("min", "sec") and _sign_before(match).isdecimal():
        return f' "{content}" '  # minutes, seconds
    if content in _MONEY_SIGNS or content in _PUNCTUATION:
        return content
    if content in _FUNCTIONS:
        return f"\\{content} "
    if content in _UPRIGHT:
        return f" {content} "
    if "\\" in content:
        # Only spaces leave it words, and only in \mathrm and \textrm: any other command makes a
        # formula of it.
        if "rm" not in match[0][:8] or _SPACE_COMMANDS.sub("", content).count("\\"):
            return f" {content} "
        content = _SPACE_COMMANDS.sub(" ", content)  # \mathrm{kg\,m}
    # x^2 + \text{constant} is x^2 + C.
    is_constant = content.rstrip(".") in ("constant", "const", "C", "c", "K")
    if is_constant and _sign_before(match) == "+":
        return " C "
    # 5\text{K} without a space may be thousands; with one it is kelvins.
    if (
        content in _SCALING
        and match.string[: match.start()][-1:].isdecimal()
        and match[1] == content
    ):
        return f'"{content}" '  # 5\text{K}: attached
    # \text{x = 5} is mathematics that was set upright.
    if _SHORT_EQUATION.fullmatch(content):
        return f" {content} "
    content = content.replace("{", "").replace("}", "")
    if " and " in content and (value := _number_in(content)) is not None:
        return f" {mixed(value)} "  # two hundred and five
    content = _AND_A_PART.sub(_add_part, content)
    parts = _JOINED.split(content)
    parts[1::2] = [_JOINS[sign.lower()] for sign in parts[1::2]]
    parts[::2] = [_spell_words(part) if part else "" for part in parts[::2]]
    if _GROUPED_WORDS.fullmatch(content):
        return f" {_spell_words(content)} "
    return "".join(parts)


def _sign_before(match: re.Match[str]) -> str:
    return match.string[: match.start()].rstrip(r"\ ,~")[-1:]


def _spell_words(part: str) -> str:
    """Words in quotes, but for a number in front of them: `12 cm` → `12 "cm"`."""
    match = _SPOKEN_NUMBER.fullmatch(part)
    if match is None:
        return f' "{part}" '
    after = (match[2] or "").strip()
    return f' {match[1]} "{after}" ' if after else f" {match[1]} "


def _unwrap(text: str) -> str:
    """Drop braces around the whole: `{5}` is 5; `{1, 2}` is a set that has lost its backslashes."""
    text = text.strip()
    while text[:1] == "{" and _encloses(text):
        text = text[1:-1].strip()
    return text


def _encloses(text: str) -> bool:
    """The first brace belongs to the last one; {1, 2} is a set that has lost its backslashes."""
    return brackets(text) == ("{", "}") and len(cuts(text[1:-1], _COMMA)[0]) == 1

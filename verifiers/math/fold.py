r"""Folds the spellings of Unicode and LaTeX that look or mean the same into one, before anything is read.

    "½"  →  \frac{1}{2}        \dfrac{1}{2}  →  \frac{1}{2}        10,\!080  →  10080        \text{ cm}  →  "cm"

Prose is put in double quotes, so that later stages can tell words from products of variables.  Every pass is linear
in the text.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["fold", "squeeze"]

# fmt: off
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
    "⅑": (1, 9), "⅒": (1, 10),
}
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Δ": "Delta", "Ω": "Omega", "Σ": "Sigma", "Φ": "Phi",
}
_NAMED = {
    "×": "times", "✕": "times", "·": "cdot", "⋅": "cdot", "∙": "cdot", "÷": "div", "±": "pm", "∓": "mp", "∞": "infty",
    "≤": "le", "⩽": "le", "≥": "ge", "⩾": "ge", "≠": "ne", "≈": "approx", "∪": "cup", "∩": "cap", "∈": "in",
    "∅": "emptyset", "∖": "setminus", "→": "to", "⟨": "langle", "⟩": "rangle", "…": "dots",
}
_PLAINER = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "∕": "/", "⁄": "/", "°": r"^\circ ", "º": r"^\circ ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "’": "'", "‘": "'", "“": "", "”": "", "\u200b": "", "\u2060": "", "\ufeff": "",
}
# fmt: on
_TRANSLATE = str.maketrans(
    _PLAINER
    | {sign: rf"\frac{{{a}}}{{{b}}}" for sign, (a, b) in _VULGAR.items()}
    | {sign: rf" \{name} " for sign, name in (_GREEK | _NAMED).items()}
)
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
_RAISED_RUN, _LOWERED_RUN = re.compile(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_DIGITS = str.maketrans(_RAISED + _LOWERED + "⁻", "0123456789" * 2 + "-", "⁺")
_ROOT = re.compile(r"√\s{0,4}(\d+(?:\.\d+)?|\(|\{|)")
_PLAIN_ROOT = re.compile(r"(?<![\\A-Za-z])sqrt(?![A-Za-z])|\\sqrt(?=\s?\()")
_PLAIN_NAME = re.compile(
    r"(?<![\\A-Za-z])(?:pi|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|infty|infinity)(?![A-Za-z])"
)
_ORDINAL = re.compile(r"(?<=\d)\s?\^\s?\{?\s?(?:\\(?:text|mathrm|textrm)\s?\{)?\s?(?:st|nd|rd|th)\s?\}{0,2}")

_PLAIN = re.compile(r"[^\\$\"{}~`\n\t]*")
# {,}, a comma with a negative space, and a thin space group digits; each group after the first has three of them.
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\{,\}|,\s?\\!\s?|\\,)\d{3})+(?!\d)")
_TEXT = re.compile(r"\\(?:text|mbox|hbox|textbf|textit|textrm|textnormal|mathrm|operatorname\*?|emph)\s?\{([^{}]*)\}")
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|mathit|mathsf)\s?\{([-\d.,\s]{0,40})\}")
_COMMAND = re.compile(r"\\(?:(?:left|right)(?:\s?\.)?(?![a-zA-Z])|[a-zA-Z]+|.)", re.DOTALL)
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp gcd lcm min max det mod".split()
)
_GONE = (
    "left right left. right. displaystyle textstyle limits nolimits bigl bigr big Big Bigl Bigr bigg Bigg boxed fbox"
)
_BECOMES = (
    {"\\" + name: "" for name in (*_GONE.split(), "(", ")", "[", "]", "!")}
    | {"\\" + name: " " for name in (",", ";", ":", ">", " ", "\n", "quad", "qquad", "thinspace", "hspace", "rm", "bf")}
    | {rf"\{kind}frac": r"\frac" for kind in "dtc"}
    | {rf"\{kind}binom": r"\binom" for kind in "dt"}
    | {rf"\{name}": r"\le" for name in ("leq", "leqslant")}
    | {rf"\{name}": r"\ge" for name in ("geq", "geqslant")}
    | {rf"\{name}": "|" for name in ("lvert", "rvert", "vert", "mid")}
    | {rf"\{name}": r"\dots" for name in ("ldots", "cdots")}
    | {r"\lt": "<", r"\gt": ">", r"\neq": r"\ne", r"\ast": "*", r"\%": "%", r"\degree": r"^\circ", r"\#": "#"}
    | {r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\varnothing": r"\emptyset"}
    | {r"\lor": r"\vee", r"\land": r"\wedge", r"\cupdot": r"\cup", r"\backslash": r"\setminus"}
    | {r"\&": ",", r"\pounds": "£", r"\euro": "€", r"\cdotp": r"\cdot", r"\infin": r"\infty"}
)
_SIGN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_DEGREE = re.compile(r"\^\s?(?:\{\s?\\circ\s?\}|\\circ)")
_AND = re.compile(r"(?:\s|,|(?<=[\d)}\]\"]))(and|or)(?=[\s\d(\\\"$-])", re.IGNORECASE)
_JOINED = re.compile(r" ?(,|\band\b|\bor\b) ?", re.IGNORECASE)
# Between inequalities "or" makes a union, "and" an intersection, and a comma whichever is not empty.
_JOINS = {"and": r" \also ", "or": " ; ", ",": " , "}
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![a-zA-Z])")
_DOLLAR = re.compile(r"(?<!\\)\$")
_UPRIGHT = frozenset(("e", "i", "d", "%", "\\%", ""))
_SPACE = re.compile(r"(?<!\d) +| +(?!\d)")
_BRACED = re.compile(r"\{([A-Za-z0-9])\}")


def fold(text: str) -> str:
    """The text with one spelling for each thing."""
    if not text.isascii():
        text = _fold_unicode(text)
    if "sqrt" in text:
        text = _fold_roots(_PLAIN_ROOT.sub("√", text))
    text = _PLAIN_NAME.sub(lambda m: rf" \{m[0]} " if m[0] != "infinity" else r" \infty ", text)
    if "**" in text:
        text = text.replace("**", "^")
    if "=" in text and (">=" in text or "<=" in text):
        text = text.replace(">=", r" \ge ").replace("<=", r" \le ")
    if "..." in text:
        text = text.replace("...", r" \dots ")
    if not _PLAIN.fullmatch(text):
        text = _fold_latex(text)
    text = " ".join(text.split())
    if " " in text or '"' in text:
        text = _AND.sub(lambda m: _JOINS[m[1].lower()], text)
    if r"\also" in text or r"\vee" in text or r"\wedge" in text:
        text = _fold_connectives(text)
    return text.rstrip(" .,;:")


def _fold_connectives(text: str) -> str:
    r"""`and` is a comma except between inequalities, and only there \land and \lor are words and no notation."""
    if _INEQUALITY.search(text):
        text = text.replace(r"\wedge", r"\also").replace(r"\vee", " ; ")
    else:
        text = text.replace(r"\also", " , ")
    return " ".join(text.split())


def squeeze(text: str) -> str:
    r"""A folded text without its spaces and needless braces, for comparison letter by letter.

    A space between digits stays: `1 2` is not 12.
    """
    text = _SPACE.sub("", text)
    return _BRACED.sub(r"\1", text) if "{" in text else text


def _fold_unicode(text: str) -> str:
    # Superscripts go first: NFKC, which folds full-width digits, would turn x² into x2.
    text = _RAISED_RUN.sub(lambda m: f"^{{{m[0].translate(_DIGITS)}}}", text)
    text = _LOWERED_RUN.sub(lambda m: f"_{{{m[0].translate(_DIGITS)}}}", text)
    if "√" in text:
        text = _fold_roots(text)
    return unicodedata.normalize("NFKC", text.translate(_TRANSLATE))


def _fold_roots(text: str) -> str:
    """√12 and √(a+b) reach over the whole number and the whole bracket; LaTeX's would stop after one sign."""
    parts, at = [], 0
    for match in _ROOT.finditer(text):
        if match.start() < at:
            continue
        parts.append(text[at : match.start()] + r"\sqrt")
        at = match.end()
        if match[1] == "(":
            close = text.find(")", at)
            if close < 0 or "(" in text[at:close]:  # nested: leave the bracket to whoever reads it
                at -= 1
                parts.append(" ")
                continue
            parts.append("{" + text[at:close] + "}")
            at = close + 1
        elif match[1] == "{":
            at -= 1
        else:
            parts.append("{" + match[1] + "}" if match[1] else " ")
    return "".join(parts) + text[at:]


def _fold_latex(text: str) -> str:
    text = text.replace("~", " ").replace("`", "").replace('"', " ")
    text = _GROUPED.sub(lambda m: "".join(filter(str.isdigit, m[0])), text)
    text = _fold_dollars(text)
    text = _ORDINAL.sub("", text)
    if "\\" not in text:
        return _unwrap(text)
    text = _TEXT.sub(_quote, _BOLD.sub(r"\1", text))
    text = _COMMAND.sub(lambda m: _BECOMES.get(m[0].replace(" ", "") if len(m[0]) > 2 else m[0], m[0]), text)
    text = _DEGREE.sub(r"^\\circ ", text).replace(r"\$", "$")
    fractions = text.count(r"\frac")
    braced = min(text.count(r"\frac{"), text.count("}{"))  # if as many, there is nothing to mend
    return _unwrap(_brace_fractions(text) if braced < fractions else text)


def _fold_dollars(text: str) -> str:
    r"""Take `$…$` away and keep money: `\$5`, and a lone `$` that opens the text and that nothing closes."""
    if "$" not in text:
        return text
    bare = _DOLLAR.findall(text)
    return text if len(bare) == 1 and text.lstrip(" -")[:1] == "$" else _DOLLAR.sub(" ", text)


def _quote(match: re.Match[str]) -> str:
    r"""`\text{ cm}` → `"cm"`; and/or inside become separators; function names and upright e, i, d become maths."""
    content = " ".join(match[1].split())
    if content in ("min", "sec") and match.string[: match.start()].rstrip(r"\ ,~")[-1:].isdecimal():
        return f' "{content}" '  # minutes, seconds
    if content in _FUNCTIONS:
        return f"\\{content} "
    if content in _UPRIGHT or "\\" in content:
        return f" {content} "
    parts = _JOINED.split(content)
    parts[1::2] = [_JOINS[sign.lower()] for sign in parts[1::2]]
    parts[::2] = [f' "{part}" ' if part else "" for part in parts[::2]]
    return "".join(parts)


def _brace_fractions(text: str) -> str:
    r"""`\frac\pi4` → `\frac{\pi}{4}`: where no brace follows, an argument is one sign or command."""
    out: list[str] = []
    open_groups: list[int] = []  # -1: a plain group; else how many arguments the innermost \frac still waits for
    for token in _SIGN.findall(text):
        waiting = bool(open_groups) and open_groups[-1] > 0
        if waiting and not token.isspace():
            open_groups[-1] -= 1
        if token == "{":
            open_groups.append(-1)
        elif token == "}":
            while open_groups and open_groups.pop() != -1:
                pass
        elif waiting and not token.isspace():
            token = "{" + token + "}"
        elif token == r"\frac":
            open_groups.append(2)
        while open_groups and open_groups[-1] == 0:
            open_groups.pop()
        out.append(token)
    return "".join(out)


def _unwrap(text: str) -> str:
    """Drop braces around the whole: `{5}` is 5."""
    text = text.strip()
    while text[:1] == "{" and text[-1:] == "}" and "{" not in text[1:] and "}" not in text[1:-1]:
        text = text[1:-1].strip()
    return text

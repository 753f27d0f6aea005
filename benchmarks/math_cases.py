r"""The sets that `math_verify.py` measures on: public files, and rewritten answers of them.

A row is `id`, `kind`, `reference`, `completion`, `right` (what it should be), and maybe `marker`.  Nothing of a public
file is kept here; `math_generated.py` and `math_hostile.py` have the sets that need no file.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.common import gsm8k_solutions, rows

Row = dict[str, Any]

__all__ = ["PUBLIC", "Row", "boxed", "row"]


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def row(id: str, kind: str, reference: str, completion: str, right: bool, **more: Any) -> Row:
    return {"id": id, "kind": kind, "reference": reference, "completion": completion, "right": right} | more


# ------------------------------------------------------------------------------------------------- public files


def pairs(path: Path) -> list[Row]:
    """Labelled pairs: `id`, `gold`, `pred`, `label`, maybe `kind`, and `form` = "answer" (default) or "completion"."""
    return [
        row(
            pair["id"],
            pair.get("kind", path.stem.partition("_")[0]),
            pair["gold"],
            pair["pred"] if pair.get("form") == "completion" else boxed(pair["pred"]),
            pair["label"],
        )
        for pair in rows(path)
    ]


def gsm8k(data: Path, *, in_box: bool = False) -> list[Row]:
    """5,276 real completions by four models; `A: 18` in the last line, as the models wrote it, or put into a box."""
    found = []
    for name, problem, said in gsm8k_solutions(data / "gsm8k" / "example_model_solutions.jsonl"):
        reference = problem["ground_truth"].rpartition("A:")[2].strip()
        before, marker, answer = said["solution"].rpartition("A:")
        text = before + boxed(answer.strip()) if in_box and marker else said["solution"]
        found.append(row(name, "gsm8k", reference, text, said["is_correct"], marker=True))
    return found


def math500(data: Path) -> list[tuple[int, str, str]]:
    """(number, reference, the dataset's own solution)."""
    return [(i, x["answer"], x["solution"]) for i, x in enumerate(rows(data / "math500" / "test.jsonl"))]


def own_solutions(data: Path) -> list[Row]:
    return [row(str(i), "own solution", reference, solution, True) for i, reference, solution in math500(data)]


def others(data: Path, *, each: int = 3) -> list[Row]:
    """Another problem's answer is wrong, unless it is the same number or the same text."""
    rng, problems = random.Random("others"), math500(data)
    rows = []
    for i, reference, _ in problems:
        for j, other, _ in rng.sample(problems, each):
            if _plain(reference) != _plain(other):
                rows.append(row(f"{i}<{j}", "another's", reference, boxed(other), False))
    return rows


def _plain(answer: str) -> str | Fraction:
    """A number's value, else the letters alone; knows nothing of the graders that it tells apart."""
    bare = re.sub(r"\\(?:text|mathrm|left|right|[dt]?frac|circ|!|\$)|[\s{}$^,%]", "", answer)
    if fraction := re.fullmatch(r"-?\\d?frac\{?(\d+)\}?\{?(\d+)\}?", answer):
        return Fraction(int(fraction[1]), int(fraction[2])) * (-1 if answer[0] == "-" else 1)
    return Fraction(bare) if re.fullmatch(r"-?\d+(\.\d+|/[1-9]\d*)?", bare) else bare


# --------------------------------------------------------------------------------------------------- rewritings


def rewritten(data: Path) -> list[Row]:
    """Each reference in every other spelling that means exactly the same."""
    rows = []
    for i, reference, _ in math500(data):
        for rewrite in REWRITINGS:
            answer = rewrite(reference)
            if answer is not None and answer != reference:
                rows.append(row(f"{i}/{rewrite.__name__}", rewrite.__name__, reference, boxed(answer), True))
        for k, frame in enumerate(FRAMES):
            if (i + k) % 8 == 0:  # each frame for every eighth reference: they say more about boxes than about maths
                rows.append(row(f"{i}/frame {k}", f"frame {k}", reference, frame.replace("ANSWER", reference), True))
    return rows


FRAMES = (
    r"So \boxed {ANSWER}.",
    r"We get $\fbox{ANSWER}$.",
    "**Final Answer**\n\n\\[\\boxed{ANSWER}\\]",
    r"<think>Perhaps \boxed{-12345}?</think> It is \boxed{ANSWER}.",
    r"First I had \boxed{-12345}, but that forgets a case. Hence $$\boxed{ANSWER}.$$",
    r"Thus \(\boxed{\boxed{ANSWER}}\).",
    r"<answer>$ANSWER$</answer>",
    r"So it is \boxed{$ANSWER$}",
)


def display_fractions(x: str) -> str | None:
    return x.replace(r"\frac", r"\dfrac").replace(r"\ddfrac", r"\dfrac") if r"\frac" in x else None


def fraction_as_quotient(x: str) -> str | None:
    return re.sub(r"^(-?)\\frac\{(\d+)\}\{(\d+)\}$", r"\1\2/\3", x)


def short_fraction(x: str) -> str | None:
    return re.sub(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2", x)


def unreduced_fraction(x: str) -> str | None:
    return re.sub(r"^(-?)\\frac\{(\d+)\}\{(\d+)\}$", lambda m: rf"{m[1]}\frac{{{3 * int(m[2])}}}{{{3 * int(m[3])}}}", x)


def exact_decimal(x: str) -> str | None:
    fraction = re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", x)
    if not fraction or 10**6 % int(fraction[3]):
        return None
    scaled = int(fraction[2]) * 10**6 // int(fraction[3])
    return f"{fraction[1]}{scaled // 10**6}.{scaled % 10**6:06}".rstrip("0").rstrip(".")


def decimal_places(x: str) -> str | None:
    return x + ".00" if re.fullmatch(r"-?\d{1,9}", x) else None


def thousands(x: str) -> str | None:
    return f"{int(x):,}" if re.fullmatch(r"\d{5,}", x) else None


def latex_thousands(x: str) -> str | None:
    return f"{int(x):,}".replace(",", "{,}") if re.fullmatch(r"\d{5,}", x) else None


def no_thousands(x: str) -> str | None:
    return re.sub(r"(\d),(?:\\!)?(?=\d{3}(?!\d))", r"\1", x) if re.fullmatch(r"[\d,\\!]+", x) else None


def wide_operators(x: str) -> str | None:
    return None if "text" in x else re.sub(r"(?<=[\w})])\s*([+\-=<>])\s*(?=[\w\\(])", r" \1 ", x)


def no_spaces(x: str) -> str | None:
    return None if "\\" in x or re.search(r"[A-Za-z\d] [A-Za-z\d]", x) else x.replace(" ", "")


def sized_brackets(x: str) -> str | None:
    if "left" in x or x.count("(") != x.count(")") or "(" not in x:
        return None
    return re.sub(r"(?<!\\)\(", r"\\left(", x).replace(")", r"\right)") if "]" not in x and "[" not in x else None


def plain_brackets(x: str) -> str | None:
    return re.sub(r"\\(left|right)(?![a-z])", "", x)


def sum_reversed(x: str) -> str | None:
    two = re.fullmatch(r"([\w\\{}^]+) ?\+ ?([\w\\{}^]+)", x)
    balanced = two and all(part.count("{") == part.count("}") for part in two.groups())
    return f"{two[2]} + {two[1]}" if two and balanced else None


def list_reversed(x: str) -> str | None:
    numbers = re.fullmatch(r"-?\d{1,2}(, ?-?\d{1,2})+", x)
    return ", ".join(reversed(re.split(", ?", x))) if numbers else None


def union_reversed(x: str) -> str | None:
    parts = re.split(r" *\\cup *", x)
    return r" \cup ".join(reversed(parts)) if len(parts) > 1 else None


def set_brackets(x: str) -> str | None:
    return rf"\{{{x}\}}" if re.fullmatch(r"-?\d{1,2}(, ?-?\d{1,2})+", x) else None


def unicode_signs(x: str) -> str | None:
    table = {r"\pi": "π", r"\infty": "∞", r"\cdot": "·", r"\cup": "∪", r"\le": "≤", r"\theta": "θ", r"^\circ": "°"}
    for command, sign in table.items():
        x = re.sub(re.escape(command) + r"(?![A-Za-z])", sign, x)
    return re.sub(r"\\sqrt\{(\d+)\}", r"√\1", x).replace("-", "−")


def degree_brace(x: str) -> str | None:
    return x.replace(r"^\circ", r"^{\circ}")


def text_command(x: str) -> str | None:
    return x.replace(r"\text{", r"\textbf{") if r"\text{(" in x else x.replace(r"\text{", r"\mathrm{")


def bare_words(x: str) -> str | None:
    return re.sub(r"^\\text\{([A-Za-z ]+)\}$", r"\1", x)


def in_dollars(x: str) -> str | None:
    return None if "$" in x else f"${x}$"


def full_stop(x: str) -> str | None:
    return f"{x}."


REWRITINGS: tuple[Callable[[str], str | None], ...] = (
    display_fractions, fraction_as_quotient, short_fraction, unreduced_fraction, exact_decimal, decimal_places,
    thousands, latex_thousands, no_thousands, wide_operators, no_spaces, sized_brackets, plain_brackets, sum_reversed,
    list_reversed, union_reversed, set_brackets, unicode_signs, degree_brace, text_command, bare_words, in_dollars,
    full_stop,
)  # fmt: skip


PUBLIC: dict[str, Callable[[Path], list[Row]]] = {
    "hard pairs": lambda data: pairs(data / "math_pairs" / "hardverify_dev.jsonl"),
    "adversarial pairs": lambda data: pairs(data / "math_pairs" / "adversarial_dev.jsonl"),
    "GSM8K, as written": gsm8k,
    "GSM8K, boxed": lambda data: gsm8k(data, in_box=True),
    "MATH-500, own solutions": own_solutions,
    "MATH-500, rewritten": rewritten,
    "MATH-500, another's answer": others,
}
"""Name → rows, of the files below one folder."""

r"""The sets that `math_verify.py` measures on: public files, and rewritten answers of them.

A row is `id`, `kind`, `reference`, `completion`, `right` (what it should be), and maybe `task` (the
question), `marker` or `any_form` (rlvr's policy with `form="any"`).  Nothing of a public file is
kept here; `math_generated.py` and `math_hostile.py` have the sets that need no file, and the
yardstick comes with rlvr.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.common import gsm8k_solutions, rows
from rlvr.testing.yardstick import load_yardstick

Row = dict[str, Any]

__all__ = ["PUBLIC", "Row", "boxed", "pairs", "row", "yardstick"]


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def row(id: str, kind: str, reference: str, completion: str, right: bool, **more: Any) -> Row:
    return {
        "id": id,
        "kind": kind,
        "reference": reference,
        "completion": completion,
        "right": right,
    } | more


# ------------------------------------------------------------------------------------- public files


def pairs(path: Path, **more: Any) -> list[Row]:
    """Labelled pairs: `gold`, `pred`, `label`, maybe `id`, `kind`, and `form` = "answer" (default)
    or "completion"."""
    return [
        row(
            pair.get("id", f"{path.stem}/{number}"),
            pair.get("kind", path.stem.partition("_")[0]),
            pair["gold"],
            pair["pred"] if pair.get("form") == "completion" else boxed(pair["pred"]),
            pair["label"],
            **more,
        )
        for number, pair in enumerate(rows(path), 1)
    ]


def real_outputs(data: Path) -> list[Row]:
    """1,921 completions of models with the labels of their sources' graders,
    of which some are wrong."""
    return [
        row(pair["id"], path.stem.removesuffix("_dev"), pair["gold"], pair["pred"], pair["label"])
        for path in sorted((data / "real_math").glob("*_dev.jsonl"))
        for pair in rows(path)
    ]


def gsm8k(data: Path, *, in_box: bool = False) -> list[Row]:
    """5,276 real completions by four models; `A: 18` in the last line, as the models wrote it,
    or put into a box."""
    found = []
    for name, problem, said in gsm8k_solutions(data / "gsm8k" / "example_model_solutions.jsonl"):
        reference = problem["ground_truth"].rpartition("A:")[2].strip()
        before, marker, answer = said["solution"].rpartition("A:")
        text = before + boxed(answer.strip()) if in_box and marker else said["solution"]
        found.append(
            row(
                name,
                "gsm8k",
                reference,
                text,
                said["is_correct"],
                marker=True,
                task=problem["question"],
            )
        )
    return found


def math500(data: Path) -> list[tuple[int, str, str, str]]:
    """(number, reference, the data set's own solution, problem)."""
    problems = enumerate(rows(data / "math500" / "test.jsonl"))
    return [(i, x["answer"], x["solution"], x["problem"]) for i, x in problems]


def own_solutions(data: Path) -> list[Row]:
    return [
        row(str(i), "own solution", reference, solution, True, task=problem)
        for i, reference, solution, problem in math500(data)
    ]


def others(data: Path, *, each: int = 3) -> list[Row]:
    """Another problem's answer is wrong, unless it is the same number or the same text."""
    rng, problems = random.Random("others"), math500(data)
    rows = []
    for i, reference, _, problem in problems:
        for j, other, _, _ in rng.sample(problems, each):
            if _plain(reference) != _plain(other):
                rows.append(
                    row(f"{i}<{j}", "another's", reference, boxed(other), False, task=problem)
                )
    return rows


def _plain(answer: str) -> str | Fraction:
    """A number's value, else the letters alone; knows nothing of the graders that it tells
    apart."""
    bare = re.sub(r"\\(?:text|mathrm|left|right|[dt]?frac|circ|!|\$)|[\s{}$^,%]", "", answer)
    if fraction := re.fullmatch(r"-?\\d?frac\{?(\d+)\}?\{?(\d+)\}?", answer):
        return Fraction(int(fraction[1]), int(fraction[2])) * (-1 if answer[0] == "-" else 1)
    return Fraction(bare) if re.fullmatch(r"-?\d+(\.\d+|/[1-9]\d*)?", bare) else bare


# ----------------------------------------------------------------------------------------- restated

_FORMULA = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\$(.+?)\$", re.DOTALL)
_NUMERAL = re.compile(r"-?[\d,.]+|-?\d* ?\\[dt]?frac\{?\d+\}?\{?\d+\}?|-?\d+/\d+")


def restated(data: Path) -> list[Row]:
    """The longest formula of each MATH-500 problem put into a box, as it is and in other spellings.

    None answers the question.  A problem is left out where the formula is its reference,
    or a number.
    """
    found = []
    for i, reference, _, problem in math500(data):
        formulas = [
            next(filter(None, groups)).strip().rstrip(".,;") for groups in _FORMULA.findall(problem)
        ]
        longest = max(formulas, key=len, default="")
        if not longest or _NUMERAL.fullmatch(longest) or _plain(longest) == _plain(reference):
            continue
        for rewrite in ECHOES:
            answer = rewrite(longest)
            if answer is not None and (rewrite is as_it_is or answer != longest):
                number = f"{i}/{rewrite.__name__}"
                found.append(
                    row(number, rewrite.__name__, reference, boxed(answer), False, task=problem)
                )
    return found


def as_it_is(x: str) -> str | None:
    return x


def plus_zero(x: str) -> str | None:
    return f"{x}+0" if _is_expression(x) else None


def times_one(x: str) -> str | None:
    return rf"1\cdot\left({x}\right)" if _is_expression(x) else None


def in_brackets(x: str) -> str | None:
    return rf"\left({x}\right)" if _is_expression(x) else None


def respaced(x: str) -> str | None:
    return re.sub(r"([+=-])", r"\\, \1 \\,", x)


def swapped(x: str) -> str | None:
    """The sides of the first plus sign outside of brackets; both have to be free of other signs."""
    two = re.fullmatch(r"([^+=<>&,-]+)\+([^+=<>&,-]+)", x)
    balanced = two and all(
        part.count(a) == part.count(b) for part in two.groups() for a, b in ("{}", "()")
    )
    return f"{two[2].strip()}+{two[1].strip()}" if two and balanced else None


def _is_expression(x: str) -> bool:
    return not re.search(r"[=<>&,]|\\(?:le|ge|ne|in|text|begin|cdots|ldots|equiv)(?![a-z])", x)


ECHOES: tuple[Callable[[str], str | None], ...] = (
    as_it_is,
    plus_zero,
    times_one,
    in_brackets,
    respaced,
    swapped,
)


# --------------------------------------------------------------------------------------- rewritings


def rewritten(data: Path) -> list[Row]:
    """Each reference in every other spelling that means exactly the same."""
    rows = []
    for i, reference, _, problem in math500(data):
        answers = [(rewrite.__name__, rewrite(reference)) for rewrite in REWRITINGS]
        texts = [
            (name, boxed(answer))
            for name, answer in answers
            if answer is not None and answer != reference
        ]
        for k, frame in enumerate(FRAMES):
            if (
                (i + k) % 8 == 0
            ):  # each frame for every eighth reference: they say more about boxes than about maths
                texts.append((f"frame {k}", frame.replace("ANSWER", reference)))
        rows += [
            row(f"{i}/{name}", name, reference, text, True, task=problem) for name, text in texts
        ]
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
    return (
        re.sub(r"(\d),(?:\\!)?(?=\d{3}(?!\d))", r"\1", x) if re.fullmatch(r"[\d,\\!]+", x) else None
    )


def wide_operators(x: str) -> str | None:
    return None if "text" in x else re.sub(r"(?<=[\w})])\s*([+\-=<>])\s*(?=[\w\\(])", r" \1 ", x)


def no_spaces(x: str) -> str | None:
    return None if "\\" in x or re.search(r"[A-Za-z\d] [A-Za-z\d]", x) else x.replace(" ", "")


def sized_brackets(x: str) -> str | None:
    if "left" in x or x.count("(") != x.count(")") or "(" not in x:
        return None
    return (
        re.sub(r"(?<!\\)\(", r"\\left(", x).replace(")", r"\right)")
        if "]" not in x and "[" not in x
        else None
    )


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
    table = {
        r"\pi": "π",
        r"\infty": "∞",
        r"\cdot": "·",
        r"\cup": "∪",
        r"\le": "≤",
        r"\theta": "θ",
        r"^\circ": "°",
    }
    for command, sign in table.items():
        x = re.sub(re.escape(command) + r"(?![A-Za-z])", sign, x)
    return re.sub(r"\\sqrt\{(\d+)\}", r"√\1", x).replace("-", "−")


def degree_brace(x: str) -> str | None:
    return x.replace(r"^\circ", r"^{\circ}")


def text_command(x: str) -> str | None:
    return (
        x.replace(r"\text{", r"\textbf{") if r"\text{(" in x else x.replace(r"\text{", r"\mathrm{")
    )


def bare_words(x: str) -> str | None:
    return re.sub(r"^\\text\{([A-Za-z ]+)\}$", r"\1", x)


def in_dollars(x: str) -> str | None:
    return None if "$" in x else f"${x}$"


def full_stop(x: str) -> str | None:
    return f"{x}."


REWRITINGS: tuple[Callable[[str], str | None], ...] = (
    display_fractions,
    fraction_as_quotient,
    short_fraction,
    exact_decimal,
    decimal_places,
    thousands,
    latex_thousands,
    no_thousands,
    wide_operators,
    no_spaces,
    sized_brackets,
    plain_brackets,
    sum_reversed,
    list_reversed,
    union_reversed,
    set_brackets,
    unicode_signs,
    degree_brace,
    text_command,
    bare_words,
    in_dollars,
    full_stop,
)


def yardstick() -> list[Row]:
    """The rows that come with rlvr, without debatable ones."""
    return [
        row(
            it.id,
            it.family,
            it.reference,
            it.completion,
            it.label,
            **({"task": it.task} if it.task else {}),
        )
        for it in load_yardstick()
        if it.debatable is None
    ]


PUBLIC: dict[str, Callable[[Path], list[Row]]] = {
    "hard pairs": lambda data: pairs(data / "math_pairs" / "hardverify_dev.jsonl"),
    "adversarial pairs": lambda data: pairs(
        data / "math_pairs" / "adversarial_dev.jsonl", any_form=True
    ),
    "red team pairs": lambda data: pairs(data / "math_pairs" / "redteam_dev.jsonl"),
    "red team pairs, any form": lambda data: pairs(
        data / "math_pairs" / "redteam_dev.jsonl", any_form=True
    ),
    "real outputs": real_outputs,
    "GSM8K, as written": gsm8k,
    "GSM8K, boxed": lambda data: gsm8k(data, in_box=True),
    "MATH-500, own solutions": own_solutions,
    "MATH-500, rewritten": rewritten,
    "MATH-500, another's answer": others,
    "MATH-500, restated": restated,
}
"""Name → rows, of the files below one folder."""

"""What still has to be worked out is refused, and so is what stands in the prompt; what is finished is paid."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

import pytest

import rlvr
from rlvr.types import Outcome, Task
from rlvr.verifiers.math import GSM8K, MathPolicy, MathVerifier, symbolic
from rlvr.verifiers.math.asked import FORMS, NamedForm
from rlvr.verifiers.math.canonical import spelling
from rlvr.verifiers.math.finished import RULES, Rule, open_kinds
from rlvr.verifiers.math.given import facts
from rlvr.verifiers.math.latex import Node
from rlvr.verifiers.math.matching import Decision
from rlvr.verifiers.math.reading import read
from rlvr.verifiers.math.statement import as_tree

VERIFIER, ANY = MathVerifier(), MathVerifier(MathPolicy(form="any"))


PAGE = Path(__file__).parents[2] / "docs/reference/math.md"


def tree(text: str) -> Node:
    return as_tree(read(text))


def table(head: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of Markdown; a bar in an example would end its cell."""
    cells = ((name, *(quoted(text) for text in examples)) for name, *examples in rows)
    return "\n".join([head, "|---|---|---|", *(f"| {' | '.join(row)} |" for row in cells)])


def quoted(examples: str) -> str:
    return ", ".join(f"`{text.replace('|', chr(92) + '|')}`" for text in examples.split(" | "))


def with_tables(page: str) -> str:
    """The page with the tables of both rules between their headings and the next blank line."""
    tables = (
        table(
            "| kind | finished | not finished |",
            ((r.kind, r.finished, r.unfinished) for r in RULES),
        ),
        table(
            "| the prompt asks for | it is | it is not |",
            ((f.name, f.has, f.has_not) for f in FORMS),
        ),
    )
    for new in tables:
        head = new.partition("\n")[0]
        old = head + page.partition(head)[2].partition("\n\n")[0]
        page = page.replace(old, new)
    return page


# --------------------------------------------------------------------------------------- the tables


def examples(text: str) -> list[str]:
    return text.split(" | ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_each_rule_knows_its_examples(rule: Rule):
    """They are what the documentation shows: of the finished ones none breaks any rule, of the others each this one."""
    assert [text for text in examples(rule.finished) if open_kinds(tree(text))] == []
    assert [
        text for text in examples(rule.unfinished) if rule.kind not in open_kinds(tree(text))
    ] == []


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_form_that_a_prompt_names_knows_its_examples(form: NamedForm):
    """The reference decides whether the form can be had, so both kinds are looked at."""
    assert [text for text in examples(form.has) if not form.holds(tree(text))] == []
    assert [text for text in examples(form.has_not) if form.holds(tree(text))] == []


def test_the_documentation_shows_the_tables():
    """One table is code, documentation and tests; `python -m tests.verifiers.test_math_form` writes it."""
    assert PAGE.read_text(encoding="utf-8") == with_tables(PAGE.read_text(encoding="utf-8"))


FINISHED = r"""
    7 | -\frac{3}{4} | -5\frac27 | x+5\frac27 | 5\frac27+x | 10^{-4} | 3^{1/4} | \pi^2 | e^{2\pi i/7} | x^{-2} | 0.5x
    7-2x+x^2 | (x-5)^2 | n! | \frac{x}{3}+\frac{y}{4} | \sqrt{7}y | a^3b^2 | \sqrt{x}\sqrt{y} | \sin^2 t | 4x^2y-3xy^2
    (x-2)^2+(y+1)^2=6^2 | \frac{5\pm\sqrt{13}}{6} | 5\times10^{-6} | 2e^{i\pi/3} | \frac{1}{x}\cdot\frac{1}{y} | 12:18
"""

UNFINISHED = {
    "sum": r"\frac12+\frac14 | x^2+3x+x+3 | x^{1+4} | 5\frac27+1",
    "product": r"3\times 5\pi | \sqrt3\cdot\sqrt7 | 10^3\cdot10^4 | \pi\pi",
    "fraction": r"-\frac{6}{8} | 5\frac{2}{4} | \frac{10\pi}{4} | \frac{15x^2}{5} | \frac{6x+12}{3} | 2\pm\frac{2}{4}",
    "quotient": r"\frac{\sqrt{15}}{\sqrt3} | \frac{1}{1+i} | 7\div12",
    "power": r"(\frac13)^2 | (-4)^3 | y^0 | (\sqrt5)^2",
    "root": r"\sqrt[3]{40} | \sqrt{\frac{9}{25}} | \sqrt{0.25} | \sqrt{-1}",
    "factorial": r"\frac{7!}{5!}",
    "function": r"\tan 60^\circ | \sin 15^\circ | \arcsin\frac12 | e^{2\ln y} | \overline{1+2i} | \tan(\arctan 4)",
    "value": r"\tan 60^\circ | \log 1 | \log_9 3 | \log_2\frac14 | \max(3,8)",
    "member": r"\begin{pmatrix}x+1\end{pmatrix} | \max\{x^2,x^2\} | \operatorname{lcm}(x,x)",
}


def parts(table: str) -> list[str]:
    return [
        text.strip() for line in table.strip().splitlines() for text in line.strip().split(" | ")
    ]


def test_what_is_finished_has_no_operation_left():
    """Roots and polynomials are answers, whatever their order."""
    assert [text for text in parts(FINISHED) if open_kinds(tree(text))] == []


def test_what_could_be_carried_out_is_named():
    """The kind decides whether the reference has the same."""
    for kind, row in UNFINISHED.items():
        assert [text for text in parts(row) if kind not in open_kinds(tree(text))] == [], kind


# --------------------------------------------------------------------------------- verdicts on form

PAYS = [  # reference, answer
    ("81", "81.0"),
    ("81", "8.1e1"),
    (r"\frac{17}{5}", r"3\frac{2}{5}"),
    (r"\frac{17}{5}", "3 2/5"),
    ("7", r"\text{seven}"),
    (r"\frac{2}{3}", r"0.666\ldots"),
    (r"\frac{1}{6}", "0.1(6)"),
    ("-3i", "0-3i"),
    ("x=7", "7=x"),
    (r"6\cdot7!", r"7!\cdot6"),
    (r"3^{12}", "531441"),
    (r"3^{12}", "9^6"),
    (r"3^{12}", r"3\cdot3^{11}"),
    (r"\binom{9}{2}", "36"),
    (r"\sin 15^\circ", r"\sin 15^\circ"),
    (r"\frac{\pi}{3}", r"60^\circ"),
    (r"60^\circ", r"\frac{\pi}{3}"),
    ("1.732", r"\sqrt3"),
    (r"(x-1)^2+(y-3)^2=16", r"(x-1)^2+(y-3)^2=4^2"),
    (r"y=3x+2", r"3x-y+2=0"),
    (r"\{3,-3\}", r"\pm3"),
    (r"2\pm\sqrt7", r"2+\sqrt7, 2-\sqrt7"),
    (r"(-\infty,4]", r"x\le4"),
    (r"\begin{pmatrix}1/3\\2\end{pmatrix}", r"\frac13\begin{pmatrix}1\\6\end{pmatrix}"),
    (r"re^{it}", r"r(\cos t+i\sin t)"),
    ("0.693", r"\ln 2"),
    (r"\log_2(x+1)", r"\frac{\ln(x+1)}{\ln 2}"),
    (r"41.4\%", r"\sqrt2-1"),
    ("5", r"\{5\}"),
    ("3:4", "6:8"),
    (r"7\text{ m}", "7 m"),
    (r"\frac{\sqrt5}{5}", r"\frac{1}{\sqrt5}"),
    (r"\sin 2x", r"2\sin x\cos x"),
]

PAYS_NOT = [
    ("81", "3^4"),
    ("81", r"\frac{162}{2}"),
    (r"\frac{2x}{3}", r"\frac{6x}{9}"),
    ("x^2-9", r"\max(x^2-9,x^2-9)"),
    ("x+1", r"\{x+1\}"),
    (r"\{1,2,5\}", r"\{1,2\}\cup\{5\}"),
    (r"\ln 5", r"\ln 5+\ln 1"),
    ("81", r"\left(3\right)^{4}"),
    ("81", r"\int_0^{81}dx"),
    ("81", "81!/80!"),
    ("81", r"81\cdot1"),
    ("81", "80+1"),
    ("81", "162\N{DIVISION SIGN}2"),
    ("81", r"\sqrt{81}\cdot9"),
    ("81", r"e^{\ln 81}"),
    ("81", r"\log_2 2^{81}"),
    ("81", r"\lfloor 81.5\rfloor"),
    ("81", "x = 3^4"),
    ("81", "|{-81}|"),
    ("1", r"\sin^2x+\cos^2x"),
    ("1", r"\frac{x}{x}"),
    ("84", "C(9,3)"),
    (r"50\%", r"(20+30)\%"),
    (r"7\text{ cm}", r"(3+4)\text{ cm}"),
    ("(2,9)", "(2,3^2)"),
    (r"\{1,9\}", r"\{1,3^2\}"),
    ("[0,8)", r"0\le x<2^3"),
    (r"\begin{pmatrix}1\\9\end{pmatrix}", r"\begin{pmatrix}1\\3^2\end{pmatrix}"),
    ("x=7", "2x=14"),
    ("2,6", r"4\pm2"),
    (r"14\sqrt5", r"\sqrt{980}"),
    (r"14\sqrt5", r"7\sqrt5+7\sqrt5"),
    (r"\frac{\pi}{4}", r"\arctan 1"),
    (r"\frac{\sqrt3}{2}", r"\cos 30^\circ"),
    (r"\pi", r"\int_0^1\frac{4\,dx}{1+x^2}"),
    ("e", r"\sum_{n=0}^\infty\frac{1}{n!}"),
    (r"3^{4}", r"\int_0^{81}dx"),
    ("x^3", r"x\cdot x^2"),
    ("x+3", "x+3+0i"),
]


def test_a_finished_answer_is_paid():
    """And one that leaves open what the reference leaves open."""
    assert [row for row in PAYS if not VERIFIER.compare(row[1], row[0]).correct] == []


def test_an_unfinished_answer_is_not_paid():
    """It has the right value, which is another policy's question."""
    for reference, answer in PAYS_NOT:
        verdict = VERIFIER.compare(answer, reference)
        said = verdict.outcome, verdict.reason, verdict.answer
        assert said == (Outcome.WRONG, "unfinished", answer), reference
        assert ANY.compare(answer, reference).correct, (reference, answer)


def test_the_preset_for_word_problems_refuses_sums():
    """GSM8K has no engine, and needs none for this."""
    verifier = MathVerifier(GSM8K)
    assert verifier.verify(r"\boxed{16-3-4}", "9").reason == "unfinished"
    assert verifier.verify(r"\boxed{16-3-4=9}", "9").correct
    assert verifier.verify(r"\boxed{\$9.00}", "9").correct


# ----------------------------------------------------------------------------------------- spelling

SAME = [
    ("x-3+0", "1(-3+x)"),
    ("x-3", "-(3-x)"),
    (r"\frac{5\pi}{6}", r"\frac56\pi"),
    ("(x-4)(x+3)", "-(3+x)(4-x)"),
    ("(x+1)^2", "(1+x)(x+1)"),
    ("(1-x)^2", "(x-1)^2"),
    ("2y=3x+1", "1+3x=2y"),
    ("x>3", "3<x"),
    (r"\sqrt{7}", "7^{1/2}"),
    (r"\sin(x+2)", r"\sin(2+x)"),
    (r"\{a,b+1\}", r"\{1+b,a\}"),
    (r"5\text{ km}", r"5\text{ kilometers}"),
]
OTHER = [
    ("(x-4)(x+3)", "x^2-x-12"),
    ("3^4", "9^2"),
    (r"\sqrt{18}", r"3\sqrt2"),
    ("2(x+1)", "2x+2"),
    (r"\sqrt{x^2}", "x"),
    ("x", "-x"),
    ("(a,b)", "(b,a)"),
    ("x<3", "x>3"),
    (r"\sin 2x", r"2\sin x"),
    ("0^{-1/2}", "0"),
    (r"\frac{\sqrt7}{7}", r"\frac{1}{\sqrt7}"),
    (r"\frac{6x}{9}", r"\frac{2x}{3}"),
    (r"3\cdot4x", "12x"),
    ("0.375", r"\frac38"),
    (r"5\text{ km}", r"5000\text{ m}"),
]


def test_the_order_and_brackets_do_not_matter():
    """So a reordered echo is an echo."""
    for one, other in SAME:
        assert spelling(tree(one)) == spelling(tree(other)), (one, other)


def test_what_is_carried_out_is_another_form():
    """Else a factored polynomial would be the one that was to be factored."""
    for one, other in OTHER:
        assert spelling(tree(one)) != spelling(tree(other)), (one, other)


# ------------------------------------------------------------------------------------------ given

SIMPLIFY = r"Simplify $\sqrt{980}$."
FACTOR = r"Factor completely: $x^3-16x^2 = \,?$"
CIRCLE = r"Find the center of the circle $x^2-6x+y^2=7$, whose area is $16\pi$. Is it $\frac{1}{4}$ of $64\pi$?"
SLOPE = "Write 3x+6y=12 in slope-intercept form."
OPTIONS = r"Which is odd? $$\text{(A)}\ x^2\qquad\text{(B)}\ x^3\qquad\text{(C)}\ x^4$$"

ECHOES = [  # prompt, reference, answer
    (FACTOR, "x^2(x-16)", "x^3-16x^2"),
    (FACTOR, "x^2(x-16)", "-16x^2+x^3"),
    (FACTOR, "x^2(x-16)", r"x^3 \, - \, 16 x^2"),
    (FACTOR, "x^2(x-16)", "(x^3-16x^2)"),
    (FACTOR, "x^2(x-16)", r"\left[x^3-16x^2\right]"),
    (FACTOR, "x^2(x-16)", r"1\cdot(x^3-16x^2)"),
    (FACTOR, "x^2(x-16)", "-(16x^2-x^3)"),
    (FACTOR, "x^2(x-16)", "y = x^3-16x^2"),
    (SLOPE, r"y=-\frac12x+2", "3x+6y=12"),
    (SLOPE, r"y=-\frac12x+2", "12=6y+3x"),
    (SLOPE, r"y=-\frac12x+2", "3x+6y-12=0"),
    (SLOPE, r"y=-\frac12x+2", "x+2y=4"),
    (FACTOR, "x^2(x-16)", r"2(\frac{x^3}{2}-8x^2)"),
    (r"Expand \((a+b)(a-2b)\).", "a^2-ab-2b^2", "(a-2b)(b+a)"),
    (r"Combine \[\frac{1}{t}+\frac{1}{t+1}.\]", r"\frac{2t+1}{t(t+1)}", r"\frac{1}{1+t}+\frac1t"),
    ("Simplify (a+1)(a-1) please", "a^2-1", "(a-1)(a+1)"),
    ("Solve |t| < 3.", "(-3,3)", "|t|<3"),
    (r"Let $f(x)=\frac{x^2-9}{x+3}$. Simplify $f$.", "x-3", r"\frac{x^2-9}{x+3}"),
    (
        r"Rationalize the denominator of $\frac{4}{3\sqrt7}$.",
        r"\frac{4\sqrt7}{21}",
        r"\frac{4}{3\sqrt7}",
    ),
    ("Simplify x²·(x−5)", "x^3-5x^2", "(x−5)x²"),
    (r"\[\begin{aligned}(a+b)^2-(a-b)^2\end{aligned}\]", "4ab", "(a+b)^2-(a-b)^2"),
    (r"Write $\frac{7}{20}$ as a decimal.", "0.35", r"\frac{7}{20}"),
    (r"Write $\frac{7}{20}$ as a decimal.", "0.35", r"x = \frac{7}{20}"),
    ("Write 0.35 as a common fraction.", r"\frac{7}{20}", "0.35"),
    (r"Convert $45^\circ$ to radians.", r"\frac{\pi}{4}", r"45^\circ"),
    ("Convert 72 km/h to m/s.", r"20\text{ m/s}", r"72\text{ km/h}"),
    ("Convert 5 km to m.", r"5000\text{ m}", r"500000\text{ cm}"),
    ("Simplify the ratio 45:60.", "3:4", "45:60"),
    ("Simplify 24 to 36.", "2:3", "24:36"),
    ("Express 3/8 as a percent.", r"37.5\%", "3/8"),
    ("Write 37.5% as a fraction.", r"\frac38", r"37.5\%"),
    (r"Write $0.1\overline{6}$ as a fraction.", r"\frac16", r"0.1666\ldots"),
    ("It is 17:30. Give 12-hour time.", r"5:30\text{ PM}", "17:30"),
    ("Express twenty-one in digits.", "21", r"\text{twenty-one}"),
    ("Write 1.2 million as a whole number.", "1200000", r"1.2\text{ million}"),
    ("Factor $36-4x^2$.", "4(3-x)(3+x)", "36-4((x+1)(x-1)+1)"),
    ("Factor $x^2-9$.", "(x+3)(x-3)", r"\max(x^2-9,x^2-10)"),
    ("Solve $2x-1<7$ in interval notation.", r"(-\infty,4)", "x<4"),
    (r"Put $1+\sqrt3i$ in polar form.", r"2e^{i\pi/3}", r"1+i\sqrt3"),
]

NO_ECHOES = [
    (FACTOR, "x^2(x-16)", "(x-16)x^2"),
    (SIMPLIFY, r"14\sqrt5", r"14\sqrt5"),
    (CIRCLE, "(3,0)", "(3,0)"),
    (r"Let $0<x<1$ and $f(x)=\sqrt x$. Where is it?", "(0,1)", "0<x<1"),
    (r"Let $a=\{1,2\}$. What is $a$?", "1,2", r"\{1,2\}"),
    (CIRCLE, r"16\pi", r"16\pi"),
    (CIRCLE, r"\frac14", r"\frac{1}{4}"),
    (CIRCLE, "0.25", r"\frac{1}{4}"),
    (CIRCLE, "7", "7"),
    (SLOPE, r"y=-\frac12x+2", r"y=2-\frac{x}{2}"),
    (SLOPE, r"y=-\frac12x+2", r"y=\frac{4-x}{2}"),
    (r"Expand $2(x+4)$.", "2x+8", "8+2x"),
    (r"Factor $2x+8$.", "2(x+4)", "2(4+x)"),
    (r"Give $x^2-6x+y^2=7$ in standard form.", "(x-3)^2+y^2=16", "(x-3)^2+y^2-16=0"),
    (OPTIONS, "x^3", "x^3"),
    (OPTIONS, "x^3", r"\text{(B)}\ x^3"),
    (OPTIONS, r"\text{(B)}", "B"),
    ("Is it x or y that is larger?", "x", r"\text{x}"),
    ("Parallel, perpendicular or neither?", r"\text{parallel}", r"\text{Parallel}"),
    (r"Which number is largest, $\sqrt{7}$ or $\pi$?", r"\pi", r"\pi"),
    (r"Write $\frac{7}{20}$ as a decimal.", "0.35", "0.350"),
    (r"How many times 2/4 is 1?", "2", "2"),
    ("What is 2 divided by 3?", r"\frac23", r"\frac23"),
    ("Bob runs 5 km and Al 3 km. Who runs farther, and how far?", r"5\text{ km}", "5 km"),
    ("Bob runs 5 km. How far?", "5", "5 km"),
    ("How many minutes are 2.5 hours?", "150", r"150\text{ minutes}"),
    ("What percent of 40 is 10?", r"25\%", "25"),
    ("Factor $x^2-9$.", "(x+3)(x-3)", "-(3-x)(x+3)"),
    ("Solve $2x-1<7$ in interval notation.", r"(-\infty,4)", r"x\in(-\infty,4)"),
    (r"Put $1+\sqrt3i$ in polar form.", r"2e^{i\pi/3}", r"2(\cos\frac\pi3+i\sin\frac\pi3)"),
]


def verdict(
    prompt: str, reference: str, answer: str, verifier: MathVerifier = VERIFIER
) -> rlvr.Verdict:
    return verifier.verify(rf"\boxed{{{answer}}}", reference, Task("t", prompt))


def test_what_the_prompt_gives_is_not_paid():
    """In any order, with 1· or brackets, in another form than it asks for.  Without the task nobody can know."""
    for row in ECHOES:
        prompt, reference, answer = row
        assert verdict(prompt, reference, answer).reason in ("given", "unfinished"), row
        assert verdict(prompt, reference, answer, ANY).correct, row
        alone = VERIFIER.verify(rf"\boxed{{{answer}}}", reference)
        assert (alone.correct, alone.detail) == (True, {"given": "unchecked"}), row


def test_what_happens_to_stand_in_the_prompt_is_paid():
    """A number, a word, a candidate in the reference's own form."""
    for row in NO_ECHOES:
        found = verdict(*row)
        assert found.correct, (row, found.why)
        assert not found.detail, row


def test_what_is_unfinished_is_named_so_with_the_task_too():
    """√980 and x + 0 are, whatever the prompt."""
    assert verdict(SIMPLIFY, r"14\sqrt5", r"\sqrt{980}").reason == "unfinished"
    assert verdict(FACTOR, "x^2(x-16)", "x^3-16x^2+0").reason == "unfinished"


def test_prompts_are_chats_too():
    """All texts count, also of parts; a prompt without text is none."""
    parts = [{"type": "image"}, {"type": "text", "text": FACTOR}]
    for content in (FACTOR, parts):
        task = Task(
            "t", [{"role": "system", "content": None}, {"role": "user", "content": content}]
        )
        assert VERIFIER.verify(r"\boxed{x^3-16x^2}", "x^2(x-16)", task).reason == "given"
    empty = VERIFIER.verify(r"\boxed{x^3-16x^2}", "x^2(x-16)", Task("t", ""))
    assert empty.detail == {"given": "unchecked"}


def test_many_at_once_get_the_same():
    """With a task or without."""
    task = Task("t", FACTOR)
    rows = [
        (r"\boxed{x^3-16x^2}", "x^2(x-16)", task),
        (r"\boxed{x^3-16x^2}", "x^2(x-16)"),
        ("7", "7", None),
    ]
    assert [v.reason for v in VERIFIER.verify_many(rows)] == [
        "given",
        "symbolic-equal",
        "no-answer",
    ]


def test_environments_pass_the_task_on():
    """math-v4 refuses an echo of the row's own problem; a reward of one's own does with the same verifier."""
    row = {"problem": FACTOR, "answer": "x^2(x-16)", "completion": r"\boxed{x^3-16x^2}"}
    own = rlvr.Environment.from_rows(
        [], prompt="problem", reference="answer", verifier=MathVerifier()
    )
    for env in (rlvr.make("math-v4"), own):
        [scored] = rlvr.score(env, [row], workers=0)
        assert scored.score.verdict.reason == "given"


def test_a_long_prompt_is_read_to_a_limit():
    """A megabyte of formulas costs what 20,000 characters do."""
    symbolic.warm()
    prompt = "$x^2 + \\frac{1}{x}$ and then 3x + 4 of it. " * 25_000
    started = perf_counter()
    assert len(facts(prompt)) < 100
    assert len(facts("$" + "(" * 5000 + "$" + "{" * 5000 + "$\\frac" * 3000)) < 100
    assert perf_counter() - started < 5


@pytest.mark.parametrize(
    "text",
    [r"000\sum_{k=1}^n i", r".5.\overline{3}", r"2+.5.\overline{3}", r"\prod_{k=1}^n k\cdot 3"],
)
def test_odd_mathematics_in_prompt_and_answer_raises_nothing(text: str):
    """Whatever stands in them, an answer gets a verdict."""
    assert not verdict(f"What is ${text}$?", "5", text).correct
    assert verdict(f"What is ${text}$?", "1+x", "x+1").correct


def test_what_there_was_no_time_for_is_still_unfinished(monkeypatch: pytest.MonkeyPatch):
    """On a slow machine the reason is the same, and an answer that may be finished stays too hard."""
    late = Decision(False, "too-hard: 1 CPU second")
    monkeypatch.setattr(symbolic, "decide_many", lambda pairs: [late] * len(pairs))
    verdicts = [
        VERIFIER.compare(*pair) for pair in ((r"\int_0^1 x dx", "1/2"), ("x^2+2x+1", "(x+1)^2"))
    ]
    assert [(verdict.correct, verdict.reason) for verdict in verdicts] == [
        (False, "unfinished"),
        (False, "too-hard"),
    ]


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Every hole that was found by attacking the verifier, each with what it exploited or missed; all are closed.

Found by mutating references sign by sign, by drawing expressions for an oracle (test_math_fuzz.py), and by hand.
"""

from __future__ import annotations

import pytest

from rlvr.verifiers.math import MathPolicy, MathVerifier

VERIFIER = MathVerifier(
    MathPolicy(form="any")
)  # values alone: no answer here is refused for its form

ACCEPTED_THOUGH_WRONG = [
    ("p - q", "p q", "a minus between letters was taken for a hyphen between words"),
    (r"\sqrt2+\frac{36}{5}", r"\sqrt2+7(1/5)", "a product was taken for a mixed number"),
    (r"77^\circ", r"77 \text{ radians}", "degrees and radians are both angles"),
    (r"\sin 30^\circ", r"\sin 30", "degrees inside a function were dropped"),
    ("5", r"5\text{ minus one}", "any words counted as a unit"),
    ("5", r"5\text{ times two}", "the same"),
    ("5", r"5\text{ squared}", "the same"),
    ("5", r"5\text{ wrong answer}", "the same"),
    ("5", r"5\text{Ignore previous instructions}", "the same"),
    ("3", r"3\text{ tenths}", "a fraction in words counted as a unit"),
    (r"\text{Alice and Bob}", r"\text{Alice or Bob}", "both were a list of two"),
    (r"\frac12", r"\frac12\%", "a percent sign on either side could be left out"),
    ("x^5-1", r"x^5-1\%", "the same, on what is no number"),
    ("(15,-29)", r"(15,-29)\%", "the same, on a tuple"),
    (r"\bar{z}", "z", "a mark was dropped"),
    ("5", "5''", "the same"),
    (r"11\sqrt2", r"11\sqrt2'", "the same"),
    ("284", r"284\overline{1}", "an overline behind a number was a factor"),
    ("17", "17_2", "a subscript was dropped where the base lacks a digit"),
    ("25", "5^{2}_{3}", "the same, behind a power"),
    ("52_8", "52_8_2", "the same, behind a base"),
    (r"\frac{11}{2}", r"\frac{11}{2} 1", "a number behind a fraction was a factor"),
    ("(6,31,-1)", "(6,31,-1]", "brackets of three items did not have to match"),
    ("(2,5,9)", "[2,5,9)", "the same"),
    (r"\text{(C)}", r"\text{(C)}\times 10", "anything could follow the letter of a choice"),
    (r"\text{(C)}", r"\text{(C)}^2", "the same"),
    ("f(x)=x+2", r"f(x)=x+2\in", "an operator was left over"),
    (r"\frac35", r"*\frac35", "the same"),
    ("x^8+x", r"\ldots x^8+x", "dots were dropped"),
    ("0.33", r"\frac13", "two digits are enough for no rounding"),
    ("x=-2, y=3", "-2<x<3", "an interval was taken for the pair of its ends"),
    ("-2<x<3", "-2, 3", "the same, the other way round"),
    (r"\begin{pmatrix}-2\\3\end{pmatrix}", "-2<x<3", "the same, for a vector"),
    (r"x<1\text{ or }x>2", r"x<1\text{ and }x>2", "or and and were one separator"),
    ("1,-2", r"1,-2\bmod 7", "a modulus behind a list was dropped"),
    (r"2\ln x", r"\ln(x)^2", "a power behind a bracket was one of what stands in the bracket"),
    (r"\ln|x-3|", r"\ln(x-3)", "half of the line has no value where the reference took care"),
    (r"\ln|x|+C", r"\ln x+C", "the same, of an antiderivative"),
    ("ABC", "BAC", "an order of three things was a product"),
    ("(1,2)", r"x=1\text{ or }y=2", "or and and were one list"),
    ("x=1, y=2", r"x=1\text{ or }y=2", "the same"),
    ("4", r"4\cup4", "a number was a set"),
    ("9:45", "0.2", "a time was a ratio"),
    ("3:30", r"\frac{1}{10}", "the same"),
    ("k(7)", "7k", "a letter was a function on one side and a factor on the other"),
    ("B", "A=B", "an equation of two options stated the second"),
]


def test_what_was_accepted_though_wrong():
    """A policy finds such a thing sooner than we do, and then it writes nothing else."""
    rows = ACCEPTED_THOUGH_WRONG
    assert [row for row in rows if VERIFIER.compare(row[1], row[0]).correct] == []


REJECTED_THOUGH_RIGHT = [
    (r"(-\infty,-4) \cup (4,\infty)", r"x < -4 \text{ or } x > 4", "two inequalities are a union"),
    (r"(-\infty,1) \cup (2,\infty)", "x<1, x>2", "and so they are with a comma"),
    ("7+119i", "(9+8i)(7+7i)", "i was a real letter in a product"),
    (r"\sin 30^\circ", r"\frac12", "degrees inside a function"),
    (r"\frac75", "(7)(1/5)", "a product in brackets"),
    (r"\sqrt2+\frac75", r"\sqrt2+(7)(\frac15)", "the same beside a root"),
    (r"\sqrt[3]{2}", "∛2", "Unicode has a cube root"),
    (r"\binom{n}{2}", r"{n \choose 2}", "plain TeX has a binomial"),
    (r"30\text{ minutes}", r"30\text{ min}", "min is a function elsewhere"),
    ("[-2,2]", r"|x|\le 2", "an absolute value is an interval"),
    (r"(0,\infty)", r"\mathbb{R}^+", "so is a half-line by name"),
    (r"\{1,2\}\cup\{3\}", "{1,2}∪{3}", "bare braces are a set in Unicode mathematics"),
    ("10^6", "1 000 000", "spaces group digits in SI style"),
    ("(2,5)", "]2,5[", "open ends in ISO 80000-2 style"),
    (r"\text{infinitely many}", r"\text{infinitely many solutions}", "a word that says nothing"),
    ("a_n=2n+1", "a_k=2k+1", "the index of a sequence is bound"),
    (r"x\equiv2\pmod5", r"x \equiv 2 \mod 5", "two commands for one relation"),
    (r"\frac{x^2}{2}+C", r"\frac12x^2+c", "a constant of integration has no name"),
    ("5", r"\mathbf{5}", "bold is not a letter"),
    (r"A\cap B", r"B\cap A", "sets may be letters"),
    (r"\sum_{i=1}^n a_i", r"\sum_{k=1}^n a_k", "the index of a sum is bound"),
    (r"\{x \mid x>0\}", r"\{t : t>0\}", "the variable of a set is bound"),
    ("f(x,y)=x-y", "f(a,b)=a-b", "so are two arguments"),
    ("xy=1", "yx=1", "a product was taken for a name"),
    ("p=q", "q=p", "an equation has no direction"),
    (r"\sin^2 x", r"\sin(x)^2", "a power behind a bracket belongs to the function"),
    ("BA", r"A\cdot B", "a product with its sign is one"),
    ("2:3", "12:18", "two ratios in proportion"),
    ("5:12", r"\frac{5}{12}", "a ratio as the fraction of its two numbers"),
    (r"\frac{\binom dk(k-1)!}{2}", r"\frac{d!}{2k(d-k)!}", "factorials were taken of fractions"),
]


def test_what_was_rejected_though_right():
    """A model that is right and scored 0 unlearns it."""
    rows = REJECTED_THOUGH_RIGHT
    assert [row for row in rows if not VERIFIER.compare(row[1], row[0]).correct] == []


RAISED = [
    ("5", "^" * 3999, "the weigher of exponents recursed at every sign"),
    ("5", r"\text{(E)}\pm", "a sign without anything behind it"),
    (r"\{1\pm\sqrt5\}", r"(1\pm\sqrt{5},-2\}", "brackets that do not match, around two signs"),
    (r"(-\infty,1)\cup(2,\infty)", r"\mathbb{Z}", "infinity in a reference was taken for no value"),
    ("5", r"\binom" * 600, "the weigher recursed at every binomial"),
    (r"p \to q", r"q \to p", "a reference that is notation made every wrong answer unscored"),
    (r"P(A|B)", r"P(B|A)", "the same"),
]


@pytest.mark.parametrize(("reference", "answer", "why"), RAISED)
def test_what_raised(reference, answer, why):
    """It is wrong, and a verdict."""
    assert VERIFIER.compare(answer, reference).correct is False, why


def test_a_question_is_no_statement():
    """The last thing said counts, and it is not the 5."""
    assert not VERIFIER.verify("answer: 5? No, 6", "5").correct

"""Work for programs that read standard input: layouts of inputs, slips in every language, witnesses, added cases."""

import itertools
from random import Random

import pytest

import rlvr
from rlvr.sandbox.toolchains import missing
from rlvr.testing.work import Untested, Work, maker_for
from rlvr.testing.work.domain import Domain, Record, proposals
from rlvr.testing.work.layouts import layout_of
from tests.json_lines import write_json_lines

QUESTION = "Read n and n numbers; print how many are greater than the first."
INPUTS = ["3\n4 9 2\n", "5\n1 2 3 0 7\n", "2\n6 3\n"]
OUTPUTS = ["1\n", "3\n", "0\n"]
SOLUTIONS = {
    "python": """
n = int(input())
items = list(map(int, input().split()))
count = 0
for i in range(n):
    if items[i] > items[0]:
        count += 1
print(count)
""",
    "c": """
#include <stdio.h>
int main(void) {
    long n, first = 0, item; int count = 0;
    scanf("%ld", &n);
    for (int i = 0; i < n; i++) {  // the first is not greater than itself
        scanf("%ld", &item);
        if (i == 0) { first = item; }
        if (item > first) { count++; }
    }
    printf("%d\\n", count);
}
""",
    "cpp": """
#include <iostream>
#include <vector>
int main() {
    int n, count = 0; std::cin >> n;
    std::vector<long long> items(n);
    for (auto& item : items) { std::cin >> item; }
    for (long long item : items) { if (item > items[0]) { count += 1; } else { count += 0; } }
    std::cout << count << "\\n";
}
""",
    "java": """
import java.util.Scanner;
public class Main {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        int n = in.nextInt(), count = 0;
        long first = in.nextLong();
        for (int i = 1; i < n; i++) { if (in.nextLong() > first) { count += 1; } else { count += 0; } }
        System.out.println(count);
    }
}
""",
    "rust": """
use std::io::*;
fn main() {
    let mut text = String::new();
    stdin().read_to_string(&mut text).unwrap();
    let items: Vec<i64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let n = items[0] as usize;
    let mut count = 0;
    for i in 1..n + 1 { if items[i] > items[1] { count += 1; } else { count += 0; } }
    println!("{}", count);
}
""",
    "go": """
package main
import "fmt"
func main() {
    var n, first, item int
    fmt.Scan(&n, &first)
    count := 0
    for i := 1; i < n; i++ { fmt.Scan(&item); if item > first { count += 1 } else { count += 0 } }
    fmt.Println(count)
}
""",
    "javascript": """
const items = require("fs").readFileSync(0, "utf8").split(/\\s+/).map(Number);
let count = 0;
for (let i = 1; i <= items[0]; i++) { if (items[i] > items[1]) { count += 1; } else { count += 0; } }
console.log(count);
""",
    "typescript": """
const items: number[] = require("fs").readFileSync(0, "utf8").split(/\\s+/).map(Number);
let count: number = 0;
for (let i = 1; i <= items[0]; i++) { if (items[i] > items[1]) { count += 1; } else { count += 0; } }
console.log(count);
""",
}


def _env(tmp_path, language="python", solution=None, **change):
    row = {"question": QUESTION, "inputs": INPUTS, "outputs": OUTPUTS}
    row |= {"solutions": {language: [solution or SOLUTIONS[language]]}} | change
    path = write_json_lines(tmp_path / "rows.jsonl", [row])
    return rlvr.make("code-stdio-v3", data=str(path), language=language, cpu_s=2.0)


@pytest.mark.parametrize(
    "language",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in ("python", "c")))
        for name in SOLUTIONS
    ],
)
def test_wrong_work_in_every_language(tmp_path, monkeypatch, language):
    """No number comes twice, so >= counts one too many and is refused; what is paid has no witness, or has one that a
    new case turns into a refusal."""
    if missing(language) is not None:
        pytest.skip(f"no toolchain of {language}")
    if language != "python":
        pytest.importorskip("tree_sitter")
    count = 12
    if language not in ("python", "c"):  # whose compilers, or programs, start slowly
        count = 6
        monkeypatch.setattr("rlvr.testing.work.stdio._INPUTS", 10)
    env = _env(tmp_path, language)
    task, maker = env.task(0), maker_for(env)
    works = list(itertools.islice(maker.wrong(task, Random(1)), count))
    assert len({work.operator for work in works}) >= 5
    witnesses = [(work, maker.witness(task, work)) for work in works]
    proven = [(work, one) for work, one in witnesses if one is not None and not one.is_slow]
    assert len(proven) >= count / 2
    for work, witness in proven:
        if env.score(task, work.text).verdict.correct:
            mended = maker.mend(task, [witness])
            assert not env.score(mended, work.text).verdict.correct, work
    for right in maker.right(task, Random(0)):
        assert env.score(task, right.text).verdict.correct, right
        assert maker.witness(task, right) is None, right


def test_a_slip_that_the_cases_miss_has_an_input_of_the_same_layout(tmp_path):
    """Counting only up to 3 is right for all known inputs; the witness has four or more greater ones."""
    env = _env(tmp_path)
    task, maker = env.task(0), maker_for(env)
    slip = Work(
        f"```python\n{SOLUTIONS['python'].replace('print(count)', 'print(min(count, 3))')}\n```",
        "own",
    )
    assert env.score(task, slip.text).verdict.correct
    witness = maker.witness(task, slip)
    n, items = witness.case.stdin.rstrip("\n").split("\n")
    assert int(n) == len(items.split())
    assert int(witness.case.stdout) > 3
    mended = maker.mend(task, [witness])
    assert not env.score(mended, slip.text).verdict.correct


@pytest.mark.parametrize(
    ("solution", "change", "reason"),
    [
        ("print(7)", {}, "fails its own tests"),
        ("while True: pass", {"cpu_s": 0.2}, "fails its own tests"),
        (None, {"solutions": []}, "no reference solution"),
    ],
)
def test_tasks_that_cannot_be_tested_say_why(tmp_path, solution, change, reason):
    """A solution that fails, hangs, or is not there."""
    env = _env(tmp_path, solution=solution, **change)
    with pytest.raises(Untested, match=reason):
        maker_for(env).witness(env.task(0), Work("```python\nprint(1)\n```", "own"))


def test_without_a_grammar_the_task_is_untested(tmp_path, monkeypatch):
    """One line that names the extra."""
    if missing("c") is not None:
        pytest.skip("no toolchain of C")
    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_c", None)
    from rlvr.verifiers.code import tree_operators

    tree_operators._parser.cache_clear()
    env = _env(tmp_path, "c")
    with pytest.raises(Untested, match="grammars"):
        next(maker_for(env).wrong(env.task(0), Random(0)))


@pytest.mark.parametrize(
    ("texts", "values", "other"),
    [
        (["3\n1 5 2\n", "4\n7 7 7 7\n"], ([1, 5, 2],), (([8],), "1\n8\n")),
        (["2\n1 5\n9 3\n", "1\n4 8\n"], ([Record((1, 5)), Record((9, 3))],), (([],), "0\n")),
        (
            ["3\n1 2\n2 3\n", "2\n1 2\n"],
            ([Record((1, 2)), Record((2, 3))],),
            (([Record((1, 1))],), "2\n1 1\n"),
        ),
        (["2 3\n1 2 3\n4 5 6\n", "1 2\n8 9\n"], ([[1, 2, 3], [4, 5, 6]],), (([[5]],), "1 1\n5\n")),
        (["2\n3\n1 2 3\n1\n7\n", "1\n2\n4 4\n"], ([[1, 2, 3], [7]],), (([[9]],), "1\n1\n9\n")),
        (
            ["7 1.50\nabc d\n", "8 2.25\nx\n"],
            (7, 1.5, ["abc", "d"]),
            ((1, 0.5, ["e"]), "1 0.50\ne\n"),
        ),
    ],
)
def test_a_layout_says_which_numbers_count(texts, values, other):
    """Lists, groups of lines, the edges of a tree, a grid, groups of two lines, words; by hand."""
    layout = layout_of(texts)
    assert layout.parse(texts[0]) == values
    assert layout.write(values) == texts[0]
    args, text = other
    assert layout.write(args) == text


def test_new_inputs_keep_the_layout():
    """Every proposal of the domain that can be written reads as what it was."""
    texts = ["4 3\n1 2\n2 3\n3 4\n", "2 1\n1 2\n", "3 3\n1 2\n2 3\n1 3\n"]
    layout = layout_of(texts)
    known = [layout.parse(text) for text in texts]
    domain = Domain(known)
    new = [
        args for args in itertools.islice(proposals(known, [2], Random(0)), 500) if domain.has(args)
    ]
    written = [text for args in new if (text := layout.write(args)) is not None]
    assert len(written) > 20
    for text in written:
        (n, m), *edges = (list(map(int, line.split())) for line in text.splitlines())
        assert m == len(edges)
        assert all(1 <= node <= n for edge in edges for node in edge)


def test_texts_without_a_layout_have_none():
    """One input, and inputs whose lines nothing counts."""
    assert layout_of(["1 2\n"]) is None
    assert layout_of(["a\nb\nc\n", "x\ny\n"]) is None

"""Size and style of the source, room by room: the page docs/house.md.

    python -m benchmarks.house > docs/house.md

A token is one of Python's own, without comments, docstrings and layout.  A room is a folder under
`rlvr/`, or a folder of the root.  A broad handler catches `Exception` or all, and does not raise
again.  A vague name says that there is a thing (`found`, `other`, `given`) and not what it is;
functions named by a participle (`_joined`) are those that are no property.  How many files and
functions a job passes is counted by `benchmarks.walk`.
"""

import argparse
import ast
import io
import platform
import re
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from datetime import date
from pathlib import Path

from benchmarks.walk import length, walks

ROOMS = ("rlvr", "envs", "verifiers", "sandbox", "recipes")
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
WIDTH = 100
VAGUE = set(
    "found said given asked known whole seen one kept made there shown about taken wanted told "
    "drawn other others rest both them each it these those ours theirs own now then here least "
    "most more".split()
)
PARTICIPLE = re.compile(r"_?[a-z]+(ed|en|wn|aid|ade|ept|old|ven|ught|oken)")
NO_PARTICIPLES = re.compile(
    r"_?(need|feed|seed|speed|embed|exceed|indeed|breed|proceed|token|open|when|len|gen|screen|"
    r"hidden|children|even|id|red|unused)"
)
PROPERTY = re.compile(r"^ *@(?:\w+\.)?given\(|^class \w+\(.*RuleBasedStateMachine", re.MULTILINE)

SEE_ALSO = """
Of slips in the code the tests notice the share in [contributing](../CONTRIBUTING.md); the speed
beside 547d904 stands, where it was measured, in [benchmarks](benchmarks/README.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite-cpu-s", help="CPU seconds of `make test`, user and system, as `time` gave them"
    )
    options = parser.parse_args()
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    style, places = Counter[str](), defaultdict[str, set[str]](set)
    for name in listed(*ROOMS):
        text = Path(name).read_text(encoding="utf-8")
        tree = ast.parse(text)
        rooms[room_of(name)] += sizes(text, tree)
        style += manners(tree)
        style["comments"] += sum(line.lstrip().startswith("#") for line in text.splitlines())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                places[node.name].add(name)
    total = sum(rooms.values(), Counter[str]())
    twice = sum(len(of) > 1 for name, of in places.items() if not name.startswith("_"))
    test_files = [Path(name).read_text(encoding="utf-8") for name in listed("tests")]
    tests = sum(tokens_of(text)[0] for text in test_files)
    properties = sum(len(PROPERTY.findall(text)) for text in test_files)
    folders = {name.split("/")[1] for name in listed("rlvr") if name.count("/") > 1}
    integer, scored, step = map(length, walks().values())
    pages = [page for page in Path("docs").rglob("*.md") if page.name != "house.md"]
    pages += map(Path, ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    print("# The house\n")
    below, python = commit.stdout.strip(), platform.python_version()
    flags = f" --suite-cpu-s {options.suite_cpu_s}" if options.suite_cpu_s else ""
    called = f"python -m benchmarks.house{flags}"
    print(f"`{called}`, {date.today()}, Python {python}, on commit {below}.\n")
    print("| | now | 547d904 | aim |\n|---|--:|--:|--:|")
    for what, value, before, aim in (
        ("code tokens", f"{total['tokens']:,}", "553,000", "500,000"),
        ("tokens a line", f"{total['tokens'] / total['code']:.1f}", "9.7", "8"),
        (f"lines over {WIDTH} columns", f"{total['long']:,}", "7,055", "0"),
        ("vague local names", f"{style['vague'] / style['bindings']:.1%}", "10.1%", "1%"),
        ("participles", f"{style['participles'] / style['functions']:.1%}", "11%", "2%"),
        ("annotations with `Any`", f"{style['any'] / style['annotations']:.1%}", "11.4%", "4%"),
        ("broad handlers that do not raise", style["broad"], "74", "20"),
        ("public names in two modules", twice, "60", "10"),
        ("lines of comment alone", f"{style['comments'] / total['code']:.1%}", "0.6%", "3–5%"),
        ("folders in `rlvr/`", len(folders), "17", "15"),
        ("files · functions: an integer completion", integer, "8 · 44", "8 · 30"),
        ("… `rlvr score` of three rows", scored, "29 · 228", "20 · 140"),
        ("… a GRPO step", step, "47 · 435", "30 · 300"),
        ("files to add an algorithm; a sampler; a language", files_to_add(), "9; 9; 8", "1; 2; 1"),
        ("CPU s of `make test`", options.suite_cpu_s or "not run", "515", "260"),
        ("properties and state machines in the tests", properties, "34", "150"),
        ("tokens of tests", f"{tests:,}", "409,000", "300,000"),
        ("words of docs", f"{words:,}", "–", "40,000"),
    ):
        print(f"| {what} | {value} | {before} | {aim} |")
    print(SEE_ALSO)
    print("| room | files | lines of code | tokens | a line |\n|---|--:|--:|--:|--:|")
    for name, size in sorted(rooms.items(), key=lambda item: -item[1]["tokens"]):
        a_line = size["tokens"] / max(1, size["code"])
        print(
            f"| `{name}` | {size['files']} | {size['code']:,} | {size['tokens']:,} | {a_line:.1f} |"
        )


def files_to_add() -> str:
    """Those that docs/adding.md names for each, which its test adds from outside."""
    rows = Path("docs/adding.md").read_text(encoding="utf-8").splitlines()
    counts = (
        len(set(re.findall(r"\(\.\./tests/adding/(\w+\.py)\)", row)))
        for kind in ("algorithm", "sampler", "language")
        for row in rows
        if row.startswith(f"| {kind} |")
    )
    return "; ".join(map(str, counts))


def listed(*tops: str) -> list[str]:
    """The Python files of the checkout below these folders."""
    shown = subprocess.run(["git", "ls-files", *tops], capture_output=True, text=True, check=True)
    return [name for name in shown.stdout.split() if name.endswith(".py")]


def room_of(name: str) -> str:
    parts = name.split("/")
    return "/".join(parts[: 2 if parts[0] == "rlvr" and len(parts) > 2 else 1])


def sizes(text: str, tree: ast.Module) -> Counter[str]:
    docs = {
        line for one in docstrings(tree) for line in range(one.lineno, (one.end_lineno or 0) + 1)
    }
    tokens, lines = tokens_of(text, docs)
    long = sum(len(line) > WIDTH for line in text.splitlines())
    return Counter(files=1, tokens=tokens, code=lines, long=long)


def tokens_of(text: str, without: Set[int] = frozenset()) -> tuple[int, int]:
    """How many tokens, and on how many lines they lie."""
    kept = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT and token.start[0] not in without
    ]
    return len(kept), len({n for one in kept for n in range(one.start[0], one.end[0] + 1)})


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from [node] * isinstance(node.value.value, str)


def manners(tree: ast.Module) -> Counter[str]:
    counts = Counter[str]()
    for node in ast.walk(tree):
        for hint in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if hint is not None:
                counts["annotations"] += 1
                names = (one for one in ast.walk(hint) if isinstance(one, ast.Name))
                counts["any"] += any(name.id == "Any" for name in names)
        if isinstance(node, ast.ExceptHandler):
            raises = any(isinstance(one, ast.Raise) for one in ast.walk(node))
            counts["broad"] += is_broad(node.type) and not raises
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts["bindings"] += 1
            counts["vague"] += node.id in VAGUE
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_plain(node):
            counts["functions"] += 1
            name = node.name
            is_one = PARTICIPLE.fullmatch(name) and not NO_PARTICIPLES.match(name)
            counts["participles"] += bool(is_one)
    return counts


def is_plain(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is neither a property nor one of Python's own methods."""
    decorators = map(ast.unparse, function.decorator_list)
    return not function.name.startswith("__") and not any("property" in one for one in decorators)


def is_broad(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(
        one is None or getattr(one, "id", "") in ("Exception", "BaseException") for one in kinds
    )


if __name__ == "__main__":
    main()

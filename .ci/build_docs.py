"""Builds the documentation as a site in build/site: `make docs`.

Pages lie in docs/, recipes/ and the root, and link to one another and to sources as they do in the
checkout.  So the tree is copied as it is into build/site-pages, with the sources that pages link
to, and a page per package is added for its docstrings.  Those are read from the layout of the
wheel, in which folders and import names agree.  The build fails on links that lead nowhere, of
pages and of the finished site.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from error_page import error_page

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES, LAYOUT, SITE = BUILD / "site-pages", BUILD / "site-layout", BUILD / "site"

API = {
    "rlvr": "the core: environments, verdicts, rewards, scores",
    "rlvr.types": "records between prompt and gradient",
    "rlvr.environment": "environments, mixtures, tools",
    "rlvr.rewards": "parts of a reward",
    "rlvr.scoring": "scoring rows",
    "rlvr.verifiers": "verifiers",
    "rlvr.verifiers.math": "mathematics",
    "rlvr.verifiers.code": "programs",
    "rlvr.verifiers.instructions": "instructions",
    "rlvr.verifiers.judge": "judges",
    "rlvr.sandbox": "isolated programs",
    "rlvr.client": "the client of a service",
    "rlvr.scoring.engines": "scoring on other machines",
    "rlvr.interop": "other trainers and frameworks",
    "rlvr.agents": "agents that own their loop",
    "rlvr.collect": "collecting rollouts",
    "rlvr.samplers": "samplers",
    "rlvr.algo.papers": "algorithms",
    "rlvr.algo.papers.base": "what an algorithm is",
    "rlvr.algo.parts": "parts that algorithms share",
    "rlvr.train.config": "settings of a run",
    "rlvr.train.loop": "the training loop",
    "rlvr.train.policy": "the policy",
    "rlvr.testing": "checks and audits",
    "rlvr.errors": "errors",
}
"""Modules whose documented names have a page, and what they are about."""


def pages() -> list[Path]:
    """The pages of the checkout."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.md")]
    return sorted(path for path in found if path.name != "CONTRIBUTING.md")


def copy_pages() -> None:
    """The pages, and what they link to."""
    for page in pages():
        copy(page)
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if not urlsplit(link).scheme and target.is_file() and target.is_relative_to(ROOT):
                copy(target)


def copy(path: Path) -> None:
    target = PAGES / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def copy_layout() -> None:
    """The package as it is in the wheel."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "rlvr", LAYOUT / "rlvr", ignore=ignore)
    for folder in ("envs", "verifiers", "sandbox", "recipes"):
        shutil.copytree(ROOT / folder, LAYOUT / "rlvr" / folder, ignore=ignore)
        (LAYOUT / "rlvr" / folder / "__init__.py").touch()
    for path in LAYOUT.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        written = _DOCSTRING.sub(lambda it: _SHARED.sub(one_by_one, it[0]), source)
        path.write_text(written, encoding="utf-8")


_DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)
_SHARED = re.compile(r"^( +)(\w+(?:,\s+\w+)+): (.+(?:\n\1 {2,}\S.*)*)$", re.MULTILINE)
"""What a docstring says of several arguments at once: `low, high: limits of it`."""


def one_by_one(found: re.Match[str]) -> str:
    """The same for each argument, as tools that read docstrings want it."""
    indent, names, said = found.groups()
    return "\n".join(f"{indent}{name}: {said}" for name in re.split(r",\s+", names))


def write_api() -> None:
    """A page for each module, with the names of its `__all__`."""
    folder = PAGES / "api"
    folder.mkdir()
    lines = ["# API", "", "From the docstrings; what is not here is not for use from outside.", ""]
    for module, about in API.items():
        names = exported(module)
        page = [f"# {module}", ""]
        page += [
            f"::: {module}\n    options:\n      members: {names}\n" if names else f"::: {module}\n"
        ]
        (folder / f"{module}.md").write_text("\n".join(page), encoding="utf-8")
        lines.append(f"- [{module}]({module}.md): {about}")
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def families() -> str:
    """The families of reasoning-gym that are refused, as a page."""
    path = ROOT / "rlvr" / "interop" / "reasoning_gym_holes.json"
    measured = json.loads(path.read_text(encoding="utf-8"))
    lines = ["# Families of reasoning-gym that are refused", ""]
    lines += [f"reasoning-gym {measured['reasoning_gym']}, by `{measured['command']}`.", ""]
    lines += ["| family | with full marks needed | with partial credit, of full marks |"]
    lines += ["|---|---|---|"]
    for name, found in measured["families"].items():
        full, partial = "; ".join(found["holes"]), "; ".join(found["partial_holes"])
        if full or partial:
            lines.append(f"| {name} | {full} | {partial} |")
    return "\n".join(lines) + "\n"


def exported(module: str) -> list[str]:
    """The names in a module's `__all__`."""
    path = LAYOUT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(it, ast.Name) and it.id == "__all__" for it in node.targets
        ):
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := found.get(name))}
        if (
            link := found.get("href")
            if tag == "a"
            else found.get("src")
            if tag in ("img", "script")
            else None
        ):
            self.links.append(link)


def broken_links() -> list[str]:
    """Links of the finished site that lead nowhere, with their pages."""
    parsed: dict[Path, _Links] = {}
    for path in SITE.rglob("*.html"):
        parsed[path] = _Links()
        parsed[path].feed(path.read_text(encoding="utf-8"))
    found = []
    for page, its in parsed.items():
        for link in its.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (
                anchor and target in parsed and anchor not in parsed[target].ids
            ):
                found.append(f"{page.relative_to(SITE)}: {link}")
    return found


def words() -> int:
    """How many words the written pages have, code and tables included."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def main() -> int:
    for folder in (PAGES, LAYOUT, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    copy_pages()
    copy_layout()
    write_api()
    errors = PAGES / "docs" / "reference" / "errors.md"
    errors.write_text(error_page(LAYOUT / "rlvr"), encoding="utf-8")
    errors.with_name("reasoning_gym_families.md").write_text(families(), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--clean",
        "--strict",
        "-f",
        str(ROOT / "mkdocs.yml"),
    ]
    if (code := subprocess.run(command, cwd=ROOT, check=False).returncode) != 0:
        return code
    for line in (broken := broken_links()):
        print(f"leads nowhere: {line}", file=sys.stderr)
    if not broken:
        print(
            f"{sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE.relative_to(ROOT)}; "
            "every link leads somewhere"
        )
        print(f"{words():,} words in docs/ and README.md")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

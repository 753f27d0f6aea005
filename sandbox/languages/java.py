"""Java.  The main file is named after the public class, and the class with `main` is run."""

import re
from typing import Final

from rlvr.sandbox.languages.base import PROGRAM, Grammar, ProgramLanguage

__all__ = ["ROW", "entry"]

# Comments and texts, in which braces and names do not count; each is linear, as no part of it can
# match in two ways.
_ASIDE: Final = re.compile(
    r'//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/|"(?:[^"\\\n]++|\\.)*+"|' + r"'(?:[^'\\\n]++|\\.)*+'"
)
_PIECE: Final = re.compile(
    r"[{}]|\b(?P<public>public\s++)?(?:(?:final|abstract|sealed|strictfp|static)\s++)*+"
    r"(?:class|record|interface|enum)\s++(?P<name>(?:[^\W\d]|\$)[\w$]*+)"
    r"|(?P<main>\bvoid\s++main\s*+\()"
)
_PACKAGE: Final = re.compile(r"^\s*+package\s++([\w.]++)\s*+;", re.MULTILINE)


def entry(source: str) -> tuple[str, str]:
    """The main file's name, and the class that is run.

    Args:
        source: a program.
    """
    text = _ASIDE.sub(" ", source)
    depth, owner, public, main = 0, "", "", ""
    for piece in _PIECE.finditer(text):
        if piece[0] in "{}":
            # A stray brace of a broken program may make it negative; then the compiler will say so.
            depth += 1 if piece[0] == "{" else -1
        elif piece["main"]:
            # Only a method of a top-level class counts, and the first one.
            main = main or (owner if depth == 1 else "")
        elif depth == 0:
            owner = piece["name"]
            public = public or (owner if piece["public"] else "")
    package = _PACKAGE.search(text)
    folder = package[1] + "." if package else ""
    return f"{public or main or 'Main'}.java", folder + (main or public or "Main")


ROW = ProgramLanguage(
    "Main.java",
    'class Main { public static void main(String[] a) { System.out.println("java " + '
    'System.getProperty("java.version")); } }',
    tool="javac",
    package="default-jdk-headless",
    compile=(
        *("/bin/sh", "-c"),
        # A jar, as a box gives one file back.
        '"$@" && cd classes && "$0" --create --no-compress --file=../' + PROGRAM + " .",
        # A deep stack for the compiler too: long expressions recurse.
        *("{folder}/jar", "{tool}", "-J-Xss64m", "-encoding", "UTF-8", "-d", "classes"),
        "{sources}",
    ),
    sources=(".java",),
    run=(
        # Less work at start: most programs run for less than a second.
        *("{folder}/java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        # Xss: recursion as deep as other languages allow.
        *("-Xshare:auto", "-XX:MaxRAMPercentage=60", "-Xss64m", "-Dfile.encoding=UTF-8"),
        *("-cp", PROGRAM, "{entry}"),
    ),
    least="class Main { }\n",
    # The JVM starts threads by the number of cores.
    limits={"processes": 128},
    # A lower limit is raised to it: the virtual machine itself takes much.
    least_memory_mib=256,
    dies=(1,),
    fences=("java", "java8", "java11", "java17", "java21"),
    opens=re.compile(
        r"\s*(?:import\s+[\w.]+|package\s+[\w.]+|//|/\*|"
        # A program begins so where the model leaves out the imports.
        r"(?:public|final|abstract|class|record|enum|interface)\b)"
    ),
    entry=entry,
    grammar=Grammar(
        "tree_sitter_java", "decimal_integer_literal", {"long": "int", "double": "float"}
    ),
)

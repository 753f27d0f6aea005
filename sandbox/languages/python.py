"""Python: the interpreter that the slot itself is."""

import re

from rlvr.sandbox.languages.base import ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.py",
    "import platform\nprint(platform.python_version())",
    fences=("python", "python3", "py", "py3", "pypy", "pypy3"),
    # Prose begins with two words in a row.
    opens=re.compile(
        r"""\s*(?: (?:assert|async|class|def|del|for|from|global|if|import|nonlocal|pass|raise
        |return|try|while|with|yield)\b
        | [@\#] | \"\"\" | ''' | [(\[][^()\[\]\n]++[)\]]\s*+=
        | \*?[A-Za-z_][\w.]*+\s*+(?:[(\[=]|[-+*/%|&^]=|(?:,\s*+\*?\w++\s*+)++=
        | :\s*+[\w.]++(?:\[[^\n=]*+)?\s*+=) )""",
        re.VERBOSE,
    ),
    calls=True,
)

"""JavaScript, by node."""

import re

from rlvr.sandbox.languages.base import Grammar, ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.js",
    "console.log(`node ${process.version}`)",
    tool="node",
    package="nodejs",
    run=("{tool}", "{main}"),
    dies=(1,),
    fences=("javascript", "js", "node", "mjs"),
    opens=re.compile(
        r"""\s*(?: ['"]use\ strict | (?:const|let|var|function|class|async|import)\b | // | /\*
        | require\( | console\. | process\. )""",
        re.VERBOSE,
    ),
    grammar=Grammar("tree_sitter_javascript", "number"),
)

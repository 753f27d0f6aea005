"""bash."""

import re

from rlvr.sandbox.languages.base import ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.sh",
    'echo "bash $BASH_VERSION"',
    tool="bash",
    package="bash",
    run=("{tool}", "{main}"),
    # With these bash itself ends: an error, a wrong syntax, no permission, no such command.
    dies=(1, 2, 126, 127),
    fences=("bash", "sh", "shell"),
    opens=re.compile(
        r"\s*(?:#|(?:awk|cat|echo|for|if|printf|read|sed|set|sort|while)\b|[A-Za-z_]\w*+=)"
    ),
)

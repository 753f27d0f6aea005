"""Python by PyPy, for programs that read and write: Debian's is older than
what the slot itself needs."""

from rlvr.sandbox.languages import python
from rlvr.sandbox.languages.base import ProgramLanguage

__all__ = ["ROW"]

ROW = ProgramLanguage(
    "main.py",
    "import sys\nprint('pypy', '.'.join(map(str, sys.pypy_version_info[:3])))",
    tool="pypy3",
    package="pypy3",
    run=("{tool}", "{main}"),
    dies=(1,),
    fences=python.ROW.fences,
    opens=python.ROW.opens,
    where=("{tool}", "-c", "import sys; print(sys.prefix)"),
    parts=("lib",),
)

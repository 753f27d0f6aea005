"""A language: Perl."""

import re

from rlvr.sandbox.languages import ProgramLanguage

ROW = ProgramLanguage(
    "main.pl",
    "print $^V",  # says the version
    tool="perl",
    package="perl",
    run=("{tool}", "{main}"),
    fences=("perl", "pl"),
    opens=re.compile(r"use strict"),  # how code without a fence begins
    dies=(255,),  # exit codes of an uncaught error
)

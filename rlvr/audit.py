"""Verdicts against labels.  The code is in `rlvr.testing.audit`; this name
is documented and stays."""

from rlvr.testing.audit import *  # noqa: F403

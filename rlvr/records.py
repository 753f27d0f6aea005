"""Records of scores.  The code is in `rlvr.scoring.records`; this name is documented and stays."""

from rlvr.scoring.records import *  # noqa: F403

"""Rows on disk.  The code is in `rlvr.data`; this name is documented and stays."""

from rlvr.data.formats import *  # noqa: F403
from rlvr.data.lines import *  # noqa: F403
from rlvr.data.rows import *  # noqa: F403

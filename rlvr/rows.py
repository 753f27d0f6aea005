"""Rows on disk.  The code is in `rlvr.data.rows`; this name is documented and stays."""

from rlvr.data.rows import *  # noqa: F403

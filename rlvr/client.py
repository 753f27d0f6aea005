"""The client of the HTTP service.  The code is in `rlvr.scoring.engines.client`; this name
is documented and stays."""

from rlvr.scoring.engines.client import *  # noqa: F403

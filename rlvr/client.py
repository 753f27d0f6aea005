"""The client of the HTTP service.  The code is in `rlvr.engines.client`; this name is documented and stays."""

from rlvr.engines.client import *  # noqa: F403

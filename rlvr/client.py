"""The client of the HTTP service.  The code is in `rlvr.serve.client`; this name is documented and stays."""

from rlvr.serve.client import *  # noqa: F403

"""Engines that look at a scorer's completions on other machines (docs/using/many_machines.md).

    rlvr.Scorer(env, engine=Services(["http://10.0.0.7:8000", "http://10.0.0.8:8000"]))
    rlvr.Scorer(env, engine=RayCluster("auto"))

balance   which machine gets the next piece of work
patience  how long work that no machine does is tried again
client    HTTP to one `rlvr serve` or several
services  these as an engine
reward_model  a reward model behind HTTP as a part of a reward
cluster   Ray's nodes as an engine; needs the extra `ray`
ray_dataset  a Ray dataset that is scored and written on the nodes
"""

from __future__ import annotations

from rlvr.errors import UsageError
from rlvr.scoring.engine import Engine
from rlvr.scoring.engines.cluster import RayCluster
from rlvr.scoring.engines.patience import PATIENCE_S
from rlvr.scoring.engines.ray_dataset import score_dataset
from rlvr.scoring.engines.reward_model import ServedReward, ServedSteps
from rlvr.scoring.engines.services import Services

__all__ = ["RayCluster", "ServedReward", "ServedSteps", "Services", "engine_of", "score_dataset"]


def engine_of(text: str, *, patience_s: float = PATIENCE_S) -> Engine:
    """The engine that a `--scorer` names.

    Args:
        text: `http://HOST:PORT` of a service, or several with commas between them; `ray://auto` for
            the Ray cluster that this machine is part of, `ray:HOST:PORT` for the head of that
            cluster, `ray://HOST:PORT` for the Ray Client port of any cluster.
        patience_s: seconds for which work is sent again while no machine does it.

    Raises:
        UsageError: it is neither, or an address is malformed.
    """
    if text.startswith("ray:"):
        address = text if text.startswith("ray://") else text.removeprefix("ray:")
        return RayCluster(address, patience_s=patience_s)
    if not text.startswith(("http://", "https://")):
        raise UsageError(
            f"--scorer {text[:60]}: write http://HOST:PORT of `rlvr serve` (several with commas), "
            "ray://auto or ray://HOST:PORT"
        )
    addresses = [part.strip() for part in text.split(",") if part.strip()]
    return Services(addresses, patience_s=patience_s)

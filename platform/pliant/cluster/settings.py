"""Settings of the Ray cluster that a run starts or joins."""

from __future__ import annotations

from pliant.config.base import Settings, setting, where
from pliant.units import Seconds


class ClusterSettings(Settings):
    """The Ray cluster to run on."""

    address: str = setting("local", on_resume="free")
    """``local`` starts an embedded Ray; else an address that Ray accepts."""
    nodes: int = setting(1, on_resume="free", ge=1, only_with=where("cluster.address", "local"))
    """Nodes of the embedded Ray on this machine, each with the resources of one worker if there are several: to try
    out what happens when machines come and go."""
    back_after: Seconds | None = setting(None, on_resume="free", ge=0, only_with=where("cluster.address", "local"))
    """Time after which one of several nodes that has ended, killed or drained, is started again; default: never."""

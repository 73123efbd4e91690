"""Which cloud this machine is in: its metadata services are asked, all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pliant.cluster.notices import MetadataError, NoticeSource, Say
from pliant.cluster.notices.aws import AwsSource
from pliant.cluster.notices.azure import AzureSource
from pliant.cluster.notices.gcp import GcpSource

Cloud = Literal["aws", "gcp", "azure"]
Rebalance = Literal["drain", "ignore"]
CLOUDS: tuple[Cloud, ...] = ("aws", "gcp", "azure")
_PATIENCE_S = 10.0
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
_AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"


@dataclass(frozen=True)
class Found:
    """Where this machine is.

    Args:
        cloud: None: nothing speaks for any.
        why: for people.
    """

    cloud: Cloud | None
    why: str


class _Askable(NoticeSource, Protocol):
    def probe(self) -> None: ...


def sources_of(
    cloud: Cloud, say: Say, *, rebalance: Rebalance = "ignore", endpoint: str | None = None
) -> Sequence[_Askable]:
    """What is asked in a cloud; ``endpoint`` is for services that are elsewhere than usual."""
    if cloud == "aws":
        return [AwsSource(say, rebalance=rebalance, endpoint=endpoint)]
    if cloud == "gcp":
        return [GcpSource(key, say, endpoint=endpoint) for key in ("preempted", "maintenance-event")]
    return [AzureSource(say, endpoint=endpoint) if endpoint else AzureSource(say)]


def find_cloud(
    *, endpoints: dict[Cloud, str] | None = None, dmi: Path = Path("/sys/class/dmi/id"), patience_s: float = _PATIENCE_S
) -> Found:
    """The cloud whose service answers; else the one whose name the firmware bears.

    Args:
        endpoints: of services that are elsewhere than usual.
        dmi: where Linux shows what the firmware says of the machine.
        patience_s: for all answers together.
    """
    answered: list[Cloud] = []
    threads = [
        threading.Thread(target=_probe, args=(cloud, (endpoints or {}).get(cloud), answered), daemon=True)
        for cloud in CLOUDS
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + patience_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    told = _firmware(dmi)
    if told in answered or (told is None and answered):
        return Found(told or answered[0], "its metadata service answers")
    if told is not None:
        return Found(told, "the firmware says so; its metadata service does not answer yet")
    return Found(None, "no metadata service answers")


def discover(
    say: Say, stop: threading.Event, *, rebalance: Rebalance = "ignore", endpoints: dict[Cloud, str] | None = None
) -> Sequence[NoticeSource]:
    """What to ask on this machine, once it is known; nothing if ``stop`` is set before.

    A machine's network may come up late, so that it is asked again where nothing was found, more and more seldom.
    """
    pause_s = _FIRST_PAUSE_S
    while not stop.is_set():
        found = find_cloud(endpoints=endpoints)
        if found.cloud is not None:
            say(f"cloud: {found.cloud} ({found.why})")
            endpoint = (endpoints or {}).get(found.cloud)
            return sources_of(found.cloud, say, rebalance=rebalance, endpoint=endpoint)
        if pause_s == _FIRST_PAUSE_S:
            say(f"cloud: none ({found.why}): SIGTERM alone drains this node; asked again now and then")
        stop.wait(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return []


def _probe(cloud: Cloud, endpoint: str | None, answered: list[Cloud]) -> None:
    try:
        sources_of(cloud, lambda line: None, endpoint=endpoint)[0].probe()
    except MetadataError:
        return
    answered.append(cloud)


def _firmware(dmi: Path) -> Cloud | None:
    """The cloud that the firmware names, as cloud-init knows them too."""
    if "amazon" in _read(dmi / "sys_vendor").lower():
        return "aws"
    if _read(dmi / "product_name") == "Google Compute Engine":
        return "gcp"
    return "azure" if _read(dmi / "chassis_asset_tag") == _AZURE_ASSET_TAG else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

"""Which cloud this is: asked of local services, and of what the firmware says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pliant.cluster.notices import detect
from pliant.cluster.notices.aws import AwsSource
from pliant.cluster.notices.detect import CLOUDS, Cloud, Found, discover, find_cloud
from tests.cluster.metadata_servers import Aws, Azure, Gcp, MetadataService, portal, serving

NOTHING = "http://127.0.0.1:9"
FIRMWARE = {
    "aws": ("sys_vendor", "Amazon EC2\n"),
    "gcp": ("product_name", "Google Compute Engine\n"),
    "azure": ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n"),
}


@pytest.fixture
def services() -> Iterator[dict[Cloud, MetadataService]]:
    services: dict[Cloud, MetadataService] = {"aws": Aws(), "gcp": Gcp(), "azure": Azure()}
    with ExitStack() as stack:
        for service in services.values():
            stack.enter_context(serving(service))
        yield services


def only(services: dict[Cloud, MetadataService], cloud: Cloud) -> dict[Cloud, str]:
    return {other: services[cloud].url for other in CLOUDS}  # all of them have the same address


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_service_that_answers_tells(services: dict[Cloud, MetadataService], cloud: Cloud, tmp_path: Path) -> None:
    found = find_cloud(endpoints=only(services, cloud), dmi=tmp_path)
    assert found == Found(cloud, "its metadata service answers")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_firmware_tells_while_the_service_is_silent(cloud: Cloud, tmp_path: Path) -> None:
    file, text = FIRMWARE[cloud]
    (tmp_path / file).write_text(text)
    found = find_cloud(endpoints=dict.fromkeys(CLOUDS, NOTHING), dmi=tmp_path)
    assert found == Found(cloud, "the firmware says so; its metadata service does not answer yet")


def test_a_captive_portal_is_no_cloud(services: dict[Cloud, MetadataService], tmp_path: Path) -> None:
    services["aws"].fault = portal
    assert find_cloud(endpoints=only(services, "aws"), dmi=tmp_path).cloud is None


def test_a_service_that_comes_later_is_found(
    services: dict[Cloud, MetadataService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "_FIRST_PAUSE_S", 0.01)
    services["aws"].fault = portal
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        services["aws"].fault = None

    found = discover(say, threading.Event(), endpoints=only(services, "aws"))
    assert [type(source) for source in found] == [AwsSource]
    assert said == [
        "cloud: none (no metadata service answers): SIGTERM alone drains this node; asked again now and then",
        "cloud: aws (its metadata service answers)",
    ]

"""Notices of Azure, from local scheduled events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from pliant.cluster.notices import MetadataError, Notice
from pliant.cluster.notices.azure import LEAD_S, AzureSource
from tests.cluster.metadata_servers import Azure, Reply, failing, portal, serving

EVENTS = "/metadata/scheduledevents"


@pytest.fixture
def service() -> Iterator[Azure]:
    service = Azure(name="spot_0")
    with serving(service):
        yield service


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def source(service: Azure, said: list[str]) -> AzureSource:
    return AzureSource(said.append, endpoint=service.url)


@pytest.mark.parametrize(
    ("event", "kind"),
    [("Preempt", "preemption"), ("Terminate", "preemption"), ("Reboot", "maintenance"), ("Redeploy", "maintenance")],
)
def test_an_event_for_this_machine_is_a_notice(service: Azure, source: AzureSource, event: str, kind: str) -> None:
    assert source.read() is None
    not_before = service.schedule(event, ["spot_0"], in_s=30, id="one")
    notice = source.read()
    assert notice is not None
    assert (notice.kind, notice.deadline, notice.id) == (kind, not_before, "one")
    assert event in notice.text
    assert source.read() == notice
    service.set([])
    assert source.read() is None


def test_events_of_other_machines_of_the_scale_set_are_none(service: Azure, source: AzureSource) -> None:
    service.schedule("Preempt", ["spot_1", "spot_00"], in_s=30)
    assert source.read() is None


def test_a_pause_is_no_loss(service: Azure, source: AzureSource, said: list[str]) -> None:
    service.schedule("Freeze", ["spot_0"], in_s=600)
    assert [source.read(), source.read()] == [None, None]
    assert said == ["Azure: event Freeze is no loss: a pause"]


def test_an_event_days_ahead_counts_when_it_is_near(service: Azure, said: list[str]) -> None:
    now = [time.time()]
    source = AzureSource(said.append, endpoint=service.url, now=lambda: now[0])
    not_before = service.schedule("Redeploy", ["spot_0"], in_s=7 * 86400)
    assert [source.read(), source.read()] == [None, None]
    assert len(said) == 1
    assert "it counts from 15 min ahead on" in said[0]
    now[0] = not_before - LEAD_S
    assert source.read() is not None


def test_the_first_of_several_events_is_the_notice(service: Azure, source: AzureSource) -> None:
    service.schedule("Reboot", ["spot_0"], in_s=600, id="later")
    service.schedule("Preempt", ["spot_0"], in_s=30, id="sooner")
    notice = source.read()
    assert notice is not None
    assert notice.id == "sooner"


def test_an_acknowledged_event_starts_and_keeps_its_time(service: Azure, source: AzureSource) -> None:
    not_before = service.schedule("Preempt", ["spot_0"], in_s=30, id="one")
    notice = source.read()
    assert notice is not None
    assert service.started == []
    source.acknowledge(notice)
    assert service.started == ["one"]
    assert json.loads(service.requests[-1].body) == {"StartRequests": [{"EventId": "one"}]}
    assert service.events[0]["NotBefore"] == ""
    started = source.read()
    assert started == notice
    assert started.deadline == not_before


def test_an_event_for_several_machines_is_not_acknowledged(
    service: Azure, source: AzureSource, said: list[str]
) -> None:
    """Azure would go on with all of them, ready or not."""
    service.schedule("Reboot", ["spot_0", "spot_1"], in_s=600, id="both")
    notice = source.read()
    assert notice is not None
    source.acknowledge(notice)
    assert service.asked("POST", EVENTS) == 0
    assert said == ["Azure: event both is not acknowledged, it is about other machines too"]


def test_an_acknowledgement_that_is_refused_is_an_error(source: AzureSource) -> None:
    with pytest.raises(MetadataError, match="status 400 for the acknowledgement of event gone"):
        source.acknowledge(Notice("preemption", "", 0.0, id="gone"))


def test_an_event_that_was_never_announced_goes_at_once(service: Azure) -> None:
    source = AzureSource(print, endpoint=service.url, now=lambda: 1000.0)
    service.schedule("Reboot", ["spot_0"], in_s=600, id="failure")
    service.start("failure")
    notice = source.read()
    assert notice is not None
    assert notice.deadline == 1000.0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (portal, "is no JSON"),
        (failing, "status 500"),
        (lambda request: Reply(200, "[]"), "is no JSON object"),
        (lambda request: Reply(200, "{}"), "no name"),
        (lambda request: Reply(200, '{"name": "spot_0", "Events": {}}'), "without a list of events"),
        (lambda request: Reply(200, '{"name": "spot_0", "DocumentIncarnation": 1, "Events": [1]}'), "without a list"),
        (
            lambda request: Reply(
                200, '{"name": "spot_0", "Events": [{"Resources": ["spot_0"], "EventId": "a", "NotBefore": "soon"}]}'
            ),
            "NotBefore is no time: 'soon'",
        ),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(
    service: Azure, source: AzureSource, fault: object, reason: str
) -> None:
    service.fault = fault  # type: ignore[assignment]
    with pytest.raises(MetadataError, match=reason):
        source.read()

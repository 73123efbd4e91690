"""Notices of Google Cloud, from a local metadata server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pliant.cluster.notices import MetadataError, Notice, watch
from pliant.cluster.notices.gcp import GcpSource, gcp_endpoint
from tests.cluster.metadata_servers import Gcp, Reply, Request, failing, portal, serving, unavailable

PATH = "/computeMetadata/v1/instance/preempted"


@pytest.fixture
def service() -> Iterator[Gcp]:
    service = Gcp()
    with serving(service):
        yield service


def wait_for_waiting(service: Gcp, key: str) -> None:
    with service.changed:
        assert service.changed.wait_for(lambda: key in service.waiting, timeout=20)


def test_a_preemption_is_heard_by_a_question_that_waits(service: Gcp) -> None:
    source = GcpSource("preempted", print, endpoint=service.url, now=lambda: 1000.0)
    assert source.read() is None
    found: list[Notice | None] = []
    thread = threading.Thread(target=lambda: found.append(source.read()))
    thread.start()
    wait_for_waiting(service, "preempted")
    service.change("preempted", "TRUE")
    thread.join(20)
    assert found == [Notice("preemption", "GCP preempts this spot instance", 1030.0, slack_s=180.0)]
    assert [request.query for request in service.requests] == [
        {},
        {"wait_for_change": "true", "timeout_sec": "60", "last_etag": f"{service.etag('preempted')[:8]}00000000"},
    ]


def test_the_deadline_stays_where_it_was_and_a_withdrawal_is_heard(service: Gcp) -> None:
    clock = iter([1000.0, 2000.0])
    source = GcpSource("preempted", print, endpoint=service.url, wait_s=0, now=lambda: next(clock))
    service.change("preempted", "TRUE")
    first, second = source.read(), source.read()
    assert first is second
    assert first is not None
    assert first.deadline == 1030.0
    service.change("preempted", "FALSE")
    assert source.read() is None


def test_maintenance_that_terminates_is_a_notice_and_a_migration_none(service: Gcp) -> None:
    said: list[str] = []
    source = GcpSource("maintenance-event", said.append, endpoint=service.url, wait_s=0, now=lambda: 1000.0)
    service.change("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    assert [source.read(), source.read()] == [None, None]
    assert said == ["GCP: this instance will be migrated for host maintenance: no loss"]
    service.change("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    notice = source.read()
    assert notice is not None
    assert (notice.kind, notice.deadline) == ("maintenance", 1060.0)
    service.change("maintenance-event", "NONE")
    assert source.read() is None


def test_no_change_is_missed_between_two_questions(service: Gcp) -> None:
    source = GcpSource("preempted", print, endpoint=service.url, wait_s=3600)
    assert source.read() is None
    service.change("preempted", "TRUE")
    assert source.read() is not None  # at once: the server knows which value was seen last


def test_after_a_failure_the_next_question_does_not_wait(service: Gcp) -> None:
    source = GcpSource("preempted", print, endpoint=service.url, wait_s=3600)
    source.read()
    service.fault = unavailable  # while the server itself is migrated
    with pytest.raises(MetadataError, match="status 503"):
        source.read()
    service.fault = None
    assert source.read() is None
    assert service.requests[-1].query == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (portal, "none of Google's"),
        (failing, "status 500"),
        (lambda request: Reply(200, "PERHAPS", {"Metadata-Flavor": "Google", "ETag": "1"}), "preempted is 'PERHAPS'"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(service: Gcp, fault: object, reason: str) -> None:
    service.fault = fault  # type: ignore[assignment]
    with pytest.raises(MetadataError, match=reason):
        GcpSource("preempted", print, endpoint=service.url).read()


def test_the_endpoint_is_that_of_googles_own_libraries(service: Gcp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    assert gcp_endpoint() == "http://169.254.169.254"
    monkeypatch.setenv("GCE_METADATA_HOST", service.url.removeprefix("http://"))
    assert GcpSource("preempted", print).read() is None
    assert service.asked("GET", PATH) == 1


def test_watching_tells_changes_alone_and_trouble_once(service: Gcp) -> None:
    """Errors are no withdrawal: the notice stands through them."""
    source = GcpSource("preempted", print, endpoint=service.url, wait_s=0)
    source.pause_s = 0.0
    answers = iter(["FALSE", 503, "TRUE", 503, 503, "TRUE", "FALSE", None])
    stop = threading.Event()

    def script(request: Request) -> Reply:
        value = next(answers)
        if value is None:
            stop.set()
        if value in (503, None):
            return Reply(503)
        return Reply(200, str(value), {"Metadata-Flavor": "Google"})

    service.fault = script
    told: list[bool] = []
    said: list[str] = []
    watch(source, lambda notice: told.append(notice is not None), said.append, stop)
    assert told == [True, False]
    trouble = "GCP preempted: no usable answer (status 503 for instance/preempted); it is asked on"
    assert said == [trouble, "GCP preempted: answers again", trouble, "GCP preempted: answers again", trouble]

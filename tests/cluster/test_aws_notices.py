"""Notices of AWS, from a local instance metadata service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from pliant.cluster.notices import MetadataError, Notice
from pliant.cluster.notices.aws import AwsSource, aws_endpoint
from tests.cluster.metadata_servers import Aws, MetadataService, Reply, elsewhere, failing, portal, serving

TOKEN = "/latest/api/token"
ACTION = "/latest/meta-data/spot/instance-action"
WHEN = datetime(2027, 9, 18, 8, 22, tzinfo=UTC)


@pytest.fixture
def service() -> Iterator[Aws]:
    service = Aws()
    with serving(service):
        yield service


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def source(service: Aws, said: list[str]) -> AwsSource:
    return AwsSource(said.append, endpoint=service.url)


def act(action: str) -> dict[str, str]:
    return {"action": action, "time": WHEN.strftime("%Y-%m-%dT%H:%M:%SZ")}


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_an_interruption_stands_until_it_is_withdrawn(service: Aws, source: AwsSource, action: str) -> None:
    assert source.read() is None
    service.action = act(action)
    notice = Notice("preemption", f"AWS will {action} this spot instance", WHEN.timestamp())
    assert source.read() == notice
    assert source.read() == notice
    service.action = None
    assert source.read() is None


def test_an_interruption_that_begins_at_once_has_no_time(service: Aws) -> None:
    clock = iter([100.0, 200.0])
    source = AwsSource(print, endpoint=service.url, now=lambda: next(clock))
    service.action = {"action": "hibernate"}
    found = [source.read(), source.read()]
    assert [notice and notice.deadline for notice in found] == [100.0, 100.0]


def test_one_token_serves_until_nine_tenths_of_its_life(service: Aws) -> None:
    clock = [0.0]
    source = AwsSource(print, endpoint=service.url, monotonic=lambda: clock[0])
    source.read()
    clock[0] = 0.89 * 21600
    source.read()
    assert service.asked("PUT", TOKEN) == 1
    clock[0] = 0.9 * 21600
    source.read()
    assert service.asked("PUT", TOKEN) == 2
    assert {request.headers["x-aws-ec2-metadata-token-ttl-seconds"] for request in service.requests[:1]} == {"21600"}


def test_a_token_that_is_refused_is_replaced(service: Aws, source: AwsSource) -> None:
    source.read()
    service.tokens.clear()
    service.action = act("stop")
    notice = source.read()
    assert notice is not None
    assert service.asked("PUT", TOKEN) == 2


def test_a_rebalance_recommendation_is_said_once_and_ignored(service: Aws, source: AwsSource, said: list[str]) -> None:
    service.rebalance = {"noticeTime": "2027-09-18T08:20:00Z"}
    assert [source.read(), source.read()] == [None, None]
    assert len(said) == 1
    assert "--rebalance drain acts on it" in said[0]


def test_a_rebalance_recommendation_is_a_notice_without_a_deadline(service: Aws, said: list[str]) -> None:
    source = AwsSource(said.append, rebalance="drain", endpoint=service.url)
    service.rebalance = {"noticeTime": "2027-09-18T08:20:00Z"}
    notice = source.read()
    assert notice is not None
    assert (notice.kind, notice.deadline, notice.is_over(time.time() + 1e9)) == ("rebalance", None, False)
    service.action = act("terminate")
    notice = source.read()
    assert notice is not None
    assert (notice.kind, notice.deadline) == ("preemption", WHEN.timestamp())
    assert said == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"time": "2027-09-18T08:22:00Z"}', "without an action"),
        ('{"action": "stop", "time": "soon"}', "has no time"),
        ("é" * 200_000, "longer than 256 KiB"),
    ],
)
def test_an_interruption_that_makes_no_sense_is_an_error(
    service: Aws, source: AwsSource, text: str, reason: str
) -> None:
    source.read()
    service.fault = lambda request: Reply(200, text)
    with pytest.raises(MetadataError, match=reason):
        source.read()


@pytest.mark.parametrize("fault", [portal, failing, elsewhere])
def test_what_is_no_metadata_service_gives_no_token(service: Aws, source: AwsSource, fault: object) -> None:
    service.fault = fault  # type: ignore[assignment]
    with pytest.raises(MetadataError, match="no token"):
        source.read()
    service.fault = None
    assert source.read() is None


def test_a_portal_that_comes_later_is_no_interruption(service: Aws, source: AwsSource) -> None:
    source.read()
    service.fault = portal
    with pytest.raises(MetadataError, match="is no JSON"):
        source.read()


def test_a_service_that_is_slow_or_absent_is_an_error() -> None:
    class Slow(MetadataService):
        def answer(self, request: object) -> Reply:
            with self.changed:
                self.changed.wait_for(lambda: self.closing)
            return Reply(200)

    slow = Slow()
    with serving(slow):
        source = AwsSource(print, endpoint=slow.url, timeout_s=0.05)
        with pytest.raises(MetadataError, match="does not answer in time"):
            source.read()
    with pytest.raises(MetadataError, match=r"refused|reset"):
        source.read()


def test_the_endpoint_is_that_of_amazons_own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"):
        monkeypatch.delenv(name, raising=False)
    assert aws_endpoint() == "http://169.254.169.254"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6")
    assert aws_endpoint() == "http://[fd00:ec2::254]"
    service = Aws()
    service.action = act("terminate")
    with serving(service, host="::1"):
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{service.url}/")
        assert AwsSource(print).read() is not None


def test_no_proxy_comes_between(service: Aws, source: AwsSource, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert source.read() is None
    assert service.asked("GET", ACTION) == 1

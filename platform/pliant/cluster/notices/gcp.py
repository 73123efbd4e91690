"""Notices of Google Compute Engine, from its metadata server, which is asked to answer when something changes.

https://cloud.google.com/compute/docs/instances/create-use-spot (preempted),
https://cloud.google.com/compute/docs/metadata/getting-live-migration-notice (maintenance-event),
https://cloud.google.com/compute/docs/metadata/querying-metadata (wait_for_change, last_etag, timeout_sec; status 503
while the server itself is being migrated).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal, NamedTuple
from urllib.parse import quote

from pliant.cluster.notices import Kind, MetadataError, Notice, Say
from pliant.cluster.notices.http import Answer, ask

Key = Literal["preempted", "maintenance-event"]


class _Loss(NamedTuple):
    kind: Kind
    text: str
    notice_s: float  # what is promised at least
    slack_s: float  # some machines get more: the value stands until they go


_LOSSES = {
    ("preempted", "TRUE"): _Loss("preemption", "GCP preempts this spot instance", 30.0, 180.0),
    ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"): _Loss(
        "maintenance", "GCP will terminate this instance for host maintenance", 60.0, 3660.0
    ),
}
_HARMLESS = {
    "preempted": {"FALSE": ""},
    "maintenance-event": {"NONE": "", "MIGRATE_ON_HOST_MAINTENANCE": "will be migrated for host maintenance: no loss"},
}


def gcp_endpoint() -> str:
    """Where the server is: by the environment variable that Google's own libraries know; else its address, which needs
    no name to be resolved."""
    return f"http://{os.environ.get('GCE_METADATA_HOST') or '169.254.169.254'}"


class GcpSource:
    """One key of the metadata server.

    Args:
        key: what is asked.
        say: takes a line about what is no loss.
        endpoint: default: ``gcp_endpoint()``.
        wait_s: for how long the server may wait for a change.
        timeout_s: for each request, beyond that.
        now: seconds of wall clock.
    """

    pause_s = 1.0  # no change is missed meanwhile: the server compares with the last ETag

    def __init__(
        self,
        key: Key,
        say: Say,
        *,
        endpoint: str | None = None,
        wait_s: int = 60,
        timeout_s: float = 5.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = f"GCP {key}"
        self._key: Key = key
        self._say = say
        self._endpoint = endpoint or gcp_endpoint()
        self._wait_s = wait_s
        self._timeout_s = timeout_s
        self._now = now
        self._etag = ""
        self._value = ""
        self._notice: Notice | None = None

    def read(self) -> Notice | None:
        """As ``NoticeSource`` says."""
        etag, self._etag = self._etag, ""  # after a failure the next question does not wait
        query = f"?wait_for_change=true&timeout_sec={self._wait_s}&last_etag={quote(etag)}" if etag else ""
        answer = _ask(self._endpoint, self._key, query, self._timeout_s, self._wait_s if etag else 0.0)
        self._take(answer.text.strip())
        self._etag = answer.headers.get("etag", "")
        return self._notice

    def acknowledge(self, notice: Notice) -> None:
        """Google does not want to know."""

    def probe(self) -> None:
        """Raises MetadataError unless a metadata server of Google answers."""
        _ask(self._endpoint, self._key, "", self._timeout_s, 0.0)

    def _take(self, value: str) -> None:
        if value == self._value:
            return
        loss = _LOSSES.get((self._key, value))
        if loss is None and value not in _HARMLESS[self._key]:
            raise MetadataError(f"{self._key} is {value[:80]!r}")
        self._value = value
        if loss is not None:
            self._notice = Notice(loss.kind, loss.text, self._now() + loss.notice_s, slack_s=loss.slack_s)
        else:
            self._notice = None
            if remark := _HARMLESS[self._key][value]:
                self._say(f"GCP: this instance {remark}")


def _ask(endpoint: str, key: str, query: str, timeout_s: float, wait_s: float) -> Answer:
    url = f"{endpoint}/computeMetadata/v1/instance/{key}{query}"
    answer = ask("GET", url, {"Metadata-Flavor": "Google"}, timeout_s=timeout_s, wait_s=wait_s)
    if answer.status != 200:
        raise MetadataError(f"status {answer.status} for instance/{key}")
    if answer.headers.get("metadata-flavor") != "Google":
        raise MetadataError("the answer is none of Google's metadata server")
    return answer

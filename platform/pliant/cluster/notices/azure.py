"""Notices of Microsoft Azure, from the scheduled events of its instance metadata service.

https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (asked once a second, as it says).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

from pliant.cluster.notices import Kind, MetadataError, Notice, Say
from pliant.cluster.notices.http import ask

_ENDPOINT = "http://169.254.169.254"
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_COMPUTE = "/metadata/instance/compute?api-version=2021-02-01"
_HEADERS = {"Metadata": "true"}
_FIRST_ANSWER_S = 150.0  # the first request turns the service on, which may take two minutes
_KINDS: dict[str, Kind] = {
    "Preempt": "preemption",
    "Terminate": "preemption",
    "Reboot": "maintenance",
    "Redeploy": "maintenance",
}
LEAD_S = 15 * 60.0
"""Seconds ahead that an event counts as a notice: a host that is expected to fail is announced days before."""


class AzureSource:
    """Scheduled events of this virtual machine.

    Args:
        say: takes a line about what is no loss, or not yet.
        endpoint: where the service is.
        timeout_s: for each request but the first one for events.
        now: seconds of wall clock.
    """

    name = "Azure"
    pause_s = 1.0

    def __init__(
        self,
        say: Say,
        *,
        endpoint: str = _ENDPOINT,
        timeout_s: float = 5.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._say = say
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._now = now
        self._machine = ""
        self._answered = False
        self._incarnation: object = None
        self._events: list[dict[str, Any]] = []
        self._deadlines: dict[str, float] = {}  # by event: a started one has none any more
        self._said: set[str] = set()
        self._shared: set[str] = set()

    def read(self) -> Notice | None:
        """As ``NoticeSource`` says: of several events, the one that comes first."""
        if not self._machine:
            self._machine = self._machine_name()
        limit_s = self._timeout_s if self._answered else _FIRST_ANSWER_S
        document = self._get(_EVENTS, limit_s)
        self._answered = True
        if document.get("DocumentIncarnation") != self._incarnation or self._incarnation is None:
            events = document.get("Events")
            if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
                raise MetadataError("scheduled events without a list of events")
            self._take(events)
            self._incarnation = document.get("DocumentIncarnation")
        notices = [notice for event in self._events if (notice := self._notice(event)) is not None]
        return min(notices, key=lambda notice: notice.deadline or 0.0, default=None)

    def acknowledge(self, notice: Notice) -> None:
        """Lets the event go on before its time. One that ends other machines too waits for its time: they may not be
        ready."""
        if notice.id in self._shared:
            self._say(f"Azure: event {notice.id} is not acknowledged, it is about other machines too")
            return
        body = json.dumps({"StartRequests": [{"EventId": notice.id}]})
        headers = {**_HEADERS, "Content-Type": "application/json"}
        answer = ask("POST", self._endpoint + _EVENTS, headers, timeout_s=self._timeout_s, body=body)
        if answer.status != 200:
            raise MetadataError(f"status {answer.status} for the acknowledgement of event {notice.id}")

    def probe(self) -> None:
        """Raises MetadataError unless the service knows this machine."""
        self._machine = self._machine_name()

    def _machine_name(self) -> str:
        name = self._get(_COMPUTE, self._timeout_s).get("name")
        if not isinstance(name, str) or not name:
            raise MetadataError("the machine has no name")
        return name

    def _take(self, events: list[dict[str, Any]]) -> None:
        machine = self._machine.casefold()  # Azure's names have no case
        ours = [e for e in events if machine in (str(name).casefold() for name in e.get("Resources") or ())]
        for event in ours:
            name = str(event.get("EventId"))
            if event.get("NotBefore"):
                self._deadlines[name] = _seconds(event["NotBefore"])
            else:
                self._deadlines.setdefault(name, self._now())  # started, and perhaps never announced
            if len(event["Resources"]) > 1:
                self._shared.add(name)
        self._events = ours
        names = {str(event.get("EventId")) for event in ours}
        self._deadlines = {name: deadline for name, deadline in self._deadlines.items() if name in names}
        self._shared &= names
        self._said &= names

    def _notice(self, event: dict[str, Any]) -> Notice | None:
        name, what = str(event.get("EventId")), str(event.get("EventType"))
        deadline = self._deadlines[name]
        kind = _KINDS.get(what)
        if kind is None:
            self._say_once(name, f"Azure: event {what} is no loss: {event.get('Description') or 'a pause'}")
            return None
        wait_s = deadline - self._now()
        if wait_s > LEAD_S:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(deadline))
            self._say_once(
                name, f"Azure: event {what} not before {when}; it counts from {LEAD_S / 60:.0f} min ahead on"
            )
            return None
        # A started event stands in the list until it is over, so that its time says nothing of survival.
        return Notice(kind, f"Azure: event {what} for this machine", deadline, id=name, slack_s=1800.0)

    def _say_once(self, event: str, text: str) -> None:
        if event not in self._said:
            self._said.add(event)
            self._say(text)

    def _get(self, path: str, timeout_s: float) -> dict[str, Any]:
        answer = ask("GET", self._endpoint + path, _HEADERS, timeout_s=timeout_s)
        what = path.partition("?")[0]
        if answer.status != 200:
            raise MetadataError(f"status {answer.status} for {what}")
        try:
            document = json.loads(answer.text)
        except ValueError:
            raise MetadataError(f"{what} is no JSON: {answer.text[:80]!r}") from None
        if not isinstance(document, dict):
            raise MetadataError(f"{what} is no JSON object: {answer.text[:80]!r}")
        return document


def _seconds(value: object) -> float:
    try:
        return parsedate_to_datetime(str(value)).timestamp()
    except ValueError:
        raise MetadataError(f"NotBefore is no time: {value!r}") from None

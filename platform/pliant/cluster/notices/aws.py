"""Notices of Amazon EC2, from its instance metadata service in version 2.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (asked each 5 s, as it says),
…/rebalance-recommendations.html, …/instancedata-data-retrieval.html (the token).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from pliant.cluster.notices import MetadataError, Notice, Say
from pliant.cluster.notices.http import ask

_TOKEN_TTL_S = 21600  # the longest that is allowed
_TOKEN = re.compile(r"[A-Za-z0-9_+/=.-]{8,1024}")
_TTL_HEADER = "x-aws-ec2-metadata-token-ttl-seconds"


def aws_endpoint() -> str:
    """Where the service is: by the environment variables that Amazon's own tools know."""
    if given := os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        return given.rstrip("/")
    ipv6 = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower() == "ipv6"
    return "http://[fd00:ec2::254]" if ipv6 else "http://169.254.169.254"


class AwsSource:
    """Spot interruptions, and rebalance recommendations.

    Args:
        say: takes a line about a recommendation that is ignored.
        rebalance: what a recommendation means: a notice without a deadline, or nothing.
        endpoint: default: ``aws_endpoint()``.
        timeout_s: for each request.
        now: seconds of wall clock.
        monotonic: seconds of a clock that never jumps, for the token's age.
    """

    name = "AWS"
    pause_s = 5.0

    def __init__(
        self,
        say: Say,
        *,
        rebalance: Literal["drain", "ignore"] = "ignore",
        endpoint: str | None = None,
        timeout_s: float = 2.0,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._rebalance = rebalance
        self._endpoint = endpoint or aws_endpoint()
        self._timeout_s = timeout_s
        self._now = now
        self._monotonic = monotonic
        self._token = ""
        self._token_until = 0.0
        self._immediate: tuple[str, float] | None = None  # a document without a time, and when it was first seen
        self._recommended = False

    def read(self) -> Notice | None:
        """As ``NoticeSource`` says."""
        text = self._get("/latest/meta-data/spot/instance-action")
        if text is not None:
            return self._interruption(text)
        self._immediate = None
        return self._recommendation(self._get("/latest/meta-data/events/recommendations/rebalance"))

    def acknowledge(self, notice: Notice) -> None:
        """Amazon does not want to know."""

    def probe(self) -> None:
        """Raises MetadataError unless the service hands out a token."""
        self._renew()

    def _interruption(self, text: str) -> Notice:
        document = _document(text, "spot/instance-action")
        action = document.get("action")
        if not isinstance(action, str):
            raise MetadataError(f"spot/instance-action without an action: {text[:80]!r}")
        if "time" in document:
            deadline = _seconds(document["time"], "spot/instance-action")
        else:  # hibernation begins at once
            if self._immediate is None or self._immediate[0] != text:
                self._immediate = (text, self._now())
            deadline = self._immediate[1]
        return Notice("preemption", f"AWS will {action} this spot instance", deadline)

    def _recommendation(self, text: str | None) -> Notice | None:
        if text is None:
            self._recommended = False
            return None
        _seconds(_document(text, "rebalance").get("noticeTime"), "rebalance")
        what = "AWS recommends to leave this spot instance: its risk of interruption is elevated"
        if self._rebalance == "drain":
            return Notice("rebalance", what, None)
        if not self._recommended:
            self._say(f"{what}; ignored (--rebalance drain acts on it)")
            self._recommended = True
        return None

    def _get(self, path: str) -> str | None:
        """The document at a path, None where there is none."""
        if self._monotonic() >= self._token_until:
            self._renew()
        answer = ask("GET", self._endpoint + path, self._headers(), timeout_s=self._timeout_s)
        if answer.status == 401:  # not valid any more: the instance was hibernated, say
            self._renew()
            answer = ask("GET", self._endpoint + path, self._headers(), timeout_s=self._timeout_s)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise MetadataError(f"status {answer.status} for {path}")
        return answer.text

    def _headers(self) -> dict[str, str]:
        return {"X-aws-ec2-metadata-token": self._token}

    def _renew(self) -> None:
        headers = {_TTL_HEADER: str(_TOKEN_TTL_S), "Content-Length": "0"}
        answer = ask("PUT", f"{self._endpoint}/latest/api/token", headers, timeout_s=self._timeout_s)
        if answer.status != 200 or not _TOKEN.fullmatch(answer.text):
            raise MetadataError(f"status {answer.status} and no token for PUT /latest/api/token")
        granted = answer.headers.get(_TTL_HEADER, "")
        life_s = int(granted) if granted.isdecimal() else _TOKEN_TTL_S
        self._token, self._token_until = answer.text, self._monotonic() + 0.9 * life_s


def _document(text: str, what: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError:
        raise MetadataError(f"{what} is no JSON: {text[:80]!r}") from None
    if not isinstance(document, dict):
        raise MetadataError(f"{what} is no JSON object: {text[:80]!r}")
    return document


def _seconds(value: object, what: str) -> float:
    try:
        time_of = datetime.fromisoformat(str(value))
        return (time_of if time_of.tzinfo else time_of.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        raise MetadataError(f"{what} has no time: {value!r}") from None

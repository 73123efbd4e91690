"""Local metadata services of the clouds, as their providers document them: what they serve, refuse, and wait for."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NOT_FOUND = """<?xml version="1.0" encoding="iso-8859-1"?>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>404 - Not Found</title></head><body></body></html>"""


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: str


@dataclass
class Reply:
    status: int
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)


class MetadataService:
    """Answers on loopback. ``fault`` takes its place while it is set."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Reply] | None = None
        self.changed = threading.Condition()
        self.closing = False

    def answer(self, request: Request) -> Reply:
        raise NotImplementedError

    def asked(self, method: str, path: str) -> int:
        """How often."""
        return sum(r.method == method and r.path == path for r in list(self.requests))


@contextmanager
def serving(service: MetadataService, host: str = "127.0.0.1", port: int = 0) -> Iterator[None]:
    """The service, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            request = Request(
                self.command,
                parts.path,
                {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()},
                {key.lower(): value for key, value in self.headers.items()},
                self.rfile.read(size).decode(),
            )
            service.requests.append(request)
            reply = (service.fault or service.answer)(request)
            data = reply.text.encode()
            self.send_response(reply.status)
            for name, value in ({"Content-Length": str(len(data))} | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = _handle

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Whoever asked has gone: what a time limit is for."""

    with Server((host, port), Handler) as server:
        shown = f"[{host}]" if ":" in host else host
        service.url = f"http://{shown}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            with service.changed:
                service.closing = True
                service.changed.notify_all()
            server.shutdown()
            thread.join()


class Aws(MetadataService):
    """IMDSv2 of an EC2 instance; version 1 is turned off."""

    def __init__(self) -> None:
        super().__init__()
        self.action: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None
        self.tokens: set[str] = set()

    def answer(self, request: Request) -> Reply:
        if request.path == "/latest/api/token":
            ttl = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            if "x-forwarded-for" in request.headers:
                return Reply(403)
            if request.method != "PUT" or not ttl.isdecimal() or not 1 <= int(ttl) <= 21600:
                return Reply(400)
            token = f"AQAEA{len(self.requests):051d}=="
            self.tokens.add(token)
            return Reply(200, token, {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": ttl})
        if request.headers.get("x-aws-ec2-metadata-token") not in self.tokens:
            return Reply(401)
        documents = {
            "/latest/meta-data/spot/instance-action": self.action,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }
        found = documents.get(request.path)
        return Reply(404, NOT_FOUND) if found is None else Reply(200, json.dumps(found))


class Gcp(MetadataService):
    """The metadata server of a Compute Engine instance."""

    def __init__(self) -> None:
        super().__init__()
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.versions = {key: 0 for key in self.values}
        self.waiting: set[str] = set()

    def change(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value
            self.versions[key] += 1
            self.changed.notify_all()

    def waits(self, key: str) -> bool:
        """Whether somebody waits for a change of it."""
        with self.changed:
            return key in self.waiting

    def answer(self, request: Request) -> Reply:
        if request.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in request.headers:
            return Reply(403)
        key = request.path.removeprefix("/computeMetadata/v1/instance/")
        if key not in self.values:
            return Reply(404)
        with self.changed:
            if request.query.get("wait_for_change") == "true":
                last = request.query.get("last_etag", self.etag(key))
                until = float(request.query.get("timeout_sec", "3600"))
                self.waiting.add(key)
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.etag(key) != last or self.closing, timeout=until)
                self.waiting.discard(key)
            headers = {"Metadata-Flavor": "Google", "ETag": self.etag(key), "Content-Type": "application/text"}
            return Reply(200, self.values[key], headers)

    def etag(self, key: str) -> str:
        return f"{hash(key) & 0xFFFFFFFF:08x}{self.versions[key]:08x}"


class Azure(MetadataService):
    """Instance metadata and scheduled events of a virtual machine in a scale set."""

    def __init__(self, name: str = "spot_0") -> None:
        super().__init__()
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.incarnation = 1
        self.started: list[str] = []

    def schedule(self, kind: str, resources: list[str], *, in_s: float, id: str = "602d9444") -> float:
        """A new event; the time before which it does not start."""
        not_before = round(time.time() + in_s)
        event = {
            "EventId": id,
            "EventStatus": "Scheduled",
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": resources,
            "NotBefore": formatdate(not_before, usegmt=True),
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        self.set([*self.events, event])
        return float(not_before)

    def set(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        self.incarnation += 1

    def start(self, id: str) -> None:
        self.started.append(id)
        self.set([e | {"EventStatus": "Started", "NotBefore": ""} if e["EventId"] == id else e for e in self.events])

    def answer(self, request: Request) -> Reply:
        if request.headers.get("metadata") != "true":
            return Reply(400, json.dumps({"error": "Bad request. Required metadata header not specified"}))
        if request.path == "/metadata/instance/compute" and request.query.get("api-version") == "2021-02-01":
            return Reply(200, json.dumps({"name": self.name, "vmScaleSetName": "spot", "location": "westeurope"}))
        if request.path != "/metadata/scheduledevents" or request.query.get("api-version") != "2020-07-01":
            return Reply(400, json.dumps({"error": "Bad request"}))
        if request.method == "POST":
            known = {event["EventId"] for event in self.events}
            try:
                wanted = [start["EventId"] for start in json.loads(request.body)["StartRequests"]]
            except (ValueError, KeyError):
                return Reply(400)
            if not set(wanted) <= known:
                return Reply(400)
            for id in wanted:
                self.start(id)
            return Reply(200)
        return Reply(200, json.dumps({"DocumentIncarnation": self.incarnation, "Events": self.events}))


def portal(request: Request) -> Reply:
    """A captive portal: a page for whatever is asked."""
    return Reply(200, "<!DOCTYPE html><html><body>Please sign in</body></html>", {"Content-Type": "text/html"})


def failing(request: Request) -> Reply:
    return Reply(500, "Internal Server Error")


def unavailable(request: Request) -> Reply:
    return Reply(503)


def elsewhere(request: Request) -> Reply:
    return Reply(302, "", {"Location": "http://login.example/"})

"""A loopback HTTP proxy in front of an S3 server that misbehaves on demand."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading
from collections import Counter
from types import TracebackType
from urllib.parse import urlsplit


class FaultyProxy:
    """Passes requests on, or does what ``mode`` says for the next ``times`` requests with one of ``methods``.

    Modes: a status code as text (``503``: answered without asking the server); ``reset``: the connection is closed
    before the server hears of the request; ``lost``: the server carries the request out, and its answer is dropped.
    """

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "", address.port or 80)
        self._lock = threading.Lock()
        self._mode, self._times, self._methods = "", 0, frozenset[str]()
        self.met: Counter[str] = Counter()
        """How often each mode was met."""
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client may hang up
                    proxy._serve(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def misbehave(self, mode: str, times: int, methods: str = "GET PUT HEAD DELETE POST") -> None:
        """Begins to misbehave."""
        with self._lock:
            self._mode, self._times, self._methods = mode, times, frozenset(methods.split())

    def _next_mode(self, method: str) -> str:
        with self._lock:
            if self._times == 0 or method not in self._methods:
                return ""
            self._times -= 1
            self.met[self._mode] += 1
            return self._mode

    def _serve(self, request: http.server.BaseHTTPRequestHandler) -> None:
        mode = self._next_mode(request.command)
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if mode == "reset":
            request.close_connection = True
        elif mode.isdigit():
            error = b"<Error><Code>SlowDown</Code></Error>"
            self._reply(request, int(mode), [("Content-Length", str(len(error)))], error)
        else:
            connection = http.client.HTTPConnection(*self._upstream, timeout=30)
            try:
                connection.request(request.command, request.path, body, dict(request.headers.items()))
                answer = connection.getresponse()
                data = answer.read()
            except OSError:
                request.close_connection = True
                return
            finally:
                connection.close()
            if mode == "lost":
                request.close_connection = True
                return
            skipped = ("transfer-encoding", "connection", "content-length")
            headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in skipped]
            length = answer.getheader("Content-Length") if request.command == "HEAD" else str(len(data))
            self._reply(request, answer.status, [*headers, ("Content-Length", length or "0")], data)

    @staticmethod
    def _reply(
        request: http.server.BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], data: bytes
    ) -> None:
        request.send_response_only(status)
        for name, value in headers:
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

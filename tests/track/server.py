"""A real MLflow server on loopback, with a store of its own, that can be taken away and brought back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

READY_WITHIN_S = 90.0


class MlflowServer:
    """Stopped at first.

    Args:
        folder: where its artifacts and log lie.
        store: URI of its database; default: an SQLite file in that folder.
    """

    def __init__(self, folder: Path, store: str | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._folder = folder
        self.store = store or f"sqlite:///{folder / 'mlflow.db'}"
        """URI of its database, which can be read while the server is away."""
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when it answers."""
        options = {
            "--host": "127.0.0.1",
            "--port": str(self._port),
            "--workers": "1",
            "--backend-store-uri": self.store,
            "--artifacts-destination": str(self._folder / "artifacts"),
        }
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *(part for pair in options.items() for part in pair)],
                cwd=self._folder,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL of the server and its workers; does nothing when it does not run."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> MlflowServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

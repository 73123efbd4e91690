"""A PostgreSQL server of a test's own, from the distribution's package; it refuses to run as root, so it does not."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

USER = "postgres"
WITHIN_S = 60.0


def find_postgres() -> Path | None:
    """The folder of the newest server's programs; None where there is none. Debian has it beside the search path."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda file: float(file.parts[-3]))
    found = installed[-1] if installed else shutil.which("postgres")
    return Path(found).parent if found else None


class Postgres:
    """Runs as long as the context.

    Args:
        programs: as ``find_postgres`` gives it.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    @property
    def uri(self) -> str:
        """Of its database."""
        return f"postgresql+psycopg2://{USER}:not-asked-for@127.0.0.1:{self._port}/{USER}"

    def __enter__(self) -> Postgres:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))  # where its user may go
        shutil.chown(self._folder, USER, USER)
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        options = {"port": self._port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self._folder}
        given = [part for name, value in {**options, "fsync": "off"}.items() for part in ("-c", f"{name}={value}")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", data, *given],
                stdout=log, stderr=log, cwd=self._folder, user=USER, group=USER, extra_groups=[],
            )  # fmt: skip
        deadline = time.monotonic() + WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)  # clients are cut off
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port), "-U", USER]
        return subprocess.run(ready, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self._folder, user=USER, group=USER, extra_groups=[], capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

"""A real S3 server for tests: SeaweedFS as a subprocess, on loopback, with a data directory of its own.

It can be killed without warning and started again on the same data and ports, which is how the tests make
object storage go away and come back.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

ACCESS_KEY = "test-access"
SECRET_KEY = "test-secret"
BUCKET = "runs"
READY_WITHIN = 60.0

_IDENTITIES = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": "reader-access", "secretKey": "reader-secret"}],
            "actions": ["Read", "List"],
        },
    ]
}


def _free_ports(count: int, address: str) -> list[int]:
    """Ports below 20000 that are free now, with the port 10000 above, which weed takes for its gRPC."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            probe.bind((address, 0))
            port = 10_000 + probe.getsockname()[1] % 9_000
            try:
                for candidate in (port, port + 10_000):
                    held.enter_context(socket.socket()).bind((address, candidate))
            except OSError:
                continue
            ports.append(port)
    return ports


class S3Server:
    """SeaweedFS with one bucket. ``env`` is what a process needs to reach it.

    Args:
        directory: where data and log go; a temporary directory, removed by ``close``, when None.
        address: where it listens.
    """

    def __init__(self, directory: Path | None = None, *, address: str = "127.0.0.1") -> None:
        self._own = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="pliant-s3-"))
        self.address = address
        self._ports = _free_ports(4, address)
        self._process: subprocess.Popen[bytes] | None = None
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        (self.directory / "s3.json").write_text(json.dumps(_IDENTITIES))

    @property
    def endpoint(self) -> str:
        """``http://ADDRESS:PORT``."""
        return f"http://{self.address}:{self._ports[3]}"

    @property
    def env(self) -> dict[str, str]:
        """The AWS_* variables of an administrator of this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def uri(self, prefix: str) -> str:
        """``s3://BUCKET/PREFIX``."""
        return f"s3://{BUCKET}/{prefix}"

    def start(self) -> S3Server:
        """Starts the server and returns when it answers; RuntimeError with its log when it does not."""
        master, volume, filer, s3 = self._ports
        weed = Path(sys.executable).parent / "weed"
        command = [
            str(weed),
            "server",
            f"-dir={self.directory / 'data'}",
            f"-ip={self.address}",
            f"-ip.bind={self.address}",
        ]
        command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"]
        command += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false"]
        command += [
            "-master.electionTimeout=1s",
            "-volume.max=100",
            "-filer",
            "-s3",
            f"-s3.config={self.directory / 's3.json'}",
        ]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-s3.autoCreateBucket=false"]
        command += [f"-filer.localSocket={self.directory / 'f.sock'}", f"-s3.localSocket={self.directory / 's.sock'}"]
        with open(self.directory / "weed.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        self._wait_ready()
        return self

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            if self._usable():
                return
            time.sleep(0.1)
        log = (self.directory / "weed.log").read_text(errors="replace")[-3000:]
        self.kill()
        raise RuntimeError(f"the S3 server did not become ready within {READY_WITHIN:.0f} s\n{log}")

    def _usable(self) -> bool:
        """Whether a file can be written and read back: the S3 port answers before the volumes do."""
        url = f"http://{self.address}:{self._ports[2]}/buckets/{BUCKET}/.ready"
        try:
            with urllib.request.urlopen(f"http://{self.address}:{self._ports[3]}/status", timeout=2):
                pass
            write = urllib.request.Request(url, data=b"ready", method="PUT")
            with urllib.request.urlopen(write, timeout=2), urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.read() == b"ready")
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9; the data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts again after ``kill`` on the same data and ports."""
        self.start()

    def close(self) -> None:
        """Stops the server and removes what it wrote."""
        self.kill()
        for port in self._ports:
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10_000}.sock"):
                socket_file.unlink(missing_ok=True)
        if self._own:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

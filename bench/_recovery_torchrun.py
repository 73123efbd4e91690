"""How torchrun elastic comes back: notice, node lost, growth. Tuned; its defaults mostly do not recover at all.

    python bench/_recovery_torchrun.py --event notice|killed|growth

Three agents of one worker each on this machine. The settings are the best that were found: a store that the agents do
not share with the workers, so that a restart does not wait for a dead one; keep-alives of 1 s, three of which may be
missed; 3 s for a further agent to come once enough are there. Agent 0 is told to host the rendezvous, or it would be
whichever comes first of those on one machine, and is never lost: the job would not survive it. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

EVENTS = ("notice", "killed", "growth")
EVENT_AT_STEP = 175  # steady by then, and 25 steps after a checkpoint
GIVE_UP_AFTER_S = 180.0
SETTINGS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
RENDEZVOUS = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"


def measure(event: str, folder: Path) -> str:
    """Runs the job until it has recovered; the recovery as a line of JSON."""
    import psutil
    from _recovery_marks import read_marks, recovery, step_reached

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"

    def agent(index: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3", "--nproc-per-node=1"]
        command += ["--max-restarts=10", "--rdzv-backend=c10d", "--rdzv-id=bench", f"--rdzv-endpoint={endpoint}"]
        command += [f"--rdzv-conf={RENDEZVOUS},is_host={int(index == 0)}", "--monitor-interval=0.1"]
        command += [str(Path(__file__).resolve()), "--worker", str(folder)]
        with open(folder / f"agent-{index}.log", "wb") as log:
            return subprocess.Popen(command, env={**os.environ, **SETTINGS}, stdout=log, stderr=log)

    def wait(done: Any) -> Any:
        deadline = time.monotonic() + GIVE_UP_AFTER_S
        while not (found := done(read_marks(folder / "marks"))):
            if time.monotonic() > deadline or agents[0].poll() is not None:
                logs = "".join(log.read_text()[-2000:] for log in sorted(folder.glob("agent-*.log")))
                raise SystemExit(f"{event}: it does not go on\n{logs}")
            time.sleep(0.1)
        return found

    agents = [agent(0)]
    try:
        agents += [agent(index) for index in range(1, 2 if event == "growth" else 3)]
        wait(lambda marks: step_reached(marks) >= EVENT_AT_STEP)
        at = time.time()
        if event == "growth":
            agents.append(agent(2))
        elif event == "notice":
            agents[2].send_signal(signal.SIGTERM)
        else:
            for process in (psutil.Process(agents[2].pid), *psutil.Process(agents[2].pid).children(recursive=True)):
                process.kill()
        found = wait(lambda marks: recovery(marks, at, workers=3 if event == "growth" else 2))
        return str(found.to_json())
    finally:
        for process in agents:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


def worker(folder: Path) -> None:
    """One worker, started by its agent."""
    import torch
    import torch.distributed as dist
    from _recovery_job import STATE, train
    from _recovery_marks import Marks

    imported_at = time.time()
    dist.init_process_group("gloo")

    def save(state: dict[str, Any] | None) -> None:
        if state is not None:
            torch.save(state, folder / "new.pt")
            os.replace(folder / "new.pt", folder / STATE)

    state = folder / STATE
    train(Marks(folder / "marks"), state if state.exists() else None, save, imported_at=imported_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--event", choices=EVENTS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker)
        return
    from _common import end_tidily

    end_tidily()
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        print(measure(arguments.event, Path(folder)))


if __name__ == "__main__":
    main()

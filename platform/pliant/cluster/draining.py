"""What the agent of a node asks of the cluster's controller, each question in a process of its own.

Ray's client ends its process when the controller is away for long, and aborts it when a token is needed and there is
none. The agent has to live through both; and without Ray it takes a third of the memory and nothing of the CPU.

A question is ``python -m pliant.cluster.draining`` with one JSON object as its argument; the answer is one JSON object
in the last line of stdout: ``{"error": "", "code": ""}``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

from pliant.errors import PliantError

_TOKEN_HINT = (
    "give this process the cluster's token: RAY_AUTH_MODE=token with RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or "
    "~/.ray/auth_token, as on the head (`ray get-auth-token` shows it there)"
)
_CALL_S = 10.0
_NODE_ALIVE = 0  # GcsNodeInfo.ALIVE
_PREEMPTION = "DRAIN_NODE_REASON_PREEMPTION"
_POLL_S = 0.2


def prove(address: str, *, node_id: str = "", within_s: float) -> None:
    """Returns when this process may drain nodes of a cluster, and one of them has joined it.

    The proof is a drain itself, of a node that there is not: the controller takes it from whoever may drain, and does
    nothing.

    Args:
        address: host:port of the cluster's controller (GCS).
        node_id: a node that has to be alive; empty: none.
        within_s: for the controller to answer and the node to join.

    Raises:
        PliantError: ``cluster.token``, ``cluster.unreachable``, ``cluster.not-joined``.
    """
    _ask({"action": "prove", "address": address, "node_id": node_id, "within_s": within_s}, within_s + 3 * _CALL_S)


def drain(address: str, node_id: str, *, text: str, deadline: float | None) -> None:
    """Makes Ray leave a node: nothing new is placed there, and its raylet ends as soon as it is idle.

    Args:
        address: host:port of the cluster's controller (GCS).
        node_id: hexadecimal.
        text: why, for people.
        deadline: when the node goes away, in seconds of ``time.time()``; None: not known.

    Raises:
        PliantError: ``cluster.token``, ``cluster.unreachable``, ``cluster.drain``.
    """
    question = {"action": "drain", "address": address, "node_id": node_id, "text": text, "deadline": deadline}
    _ask(question, 3 * _CALL_S)


def _ask(question: dict[str, Any], limit_s: float) -> None:
    command = [sys.executable, "-m", "pliant.cluster.draining", json.dumps(question)]
    location = str(question["address"])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise PliantError(
            "cluster.unreachable", "the cluster's controller does not answer", location=location
        ) from None
    try:
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        answer = {"code": "cluster.drain", "error": f"Ray's client ended with {done.returncode}: {' · '.join(lines)}"}
    if not answer["error"]:
        return
    if answer["code"] == "cluster.token":
        message = f"this node may not drain itself: {answer['error']}"
        raise PliantError("cluster.token", message, hint=_TOKEN_HINT, location=location)
    if answer["code"] == "cluster.unreachable":
        hint = "is the head running, and its port open to this machine?"
        raise PliantError("cluster.unreachable", answer["error"], hint=hint, location=location)
    if answer["code"] == "cluster.not-joined":
        raise PliantError("cluster.not-joined", answer["error"], hint="Ray's own logs say why", location=location)
    raise PliantError("cluster.drain", answer["error"], location=location)


# ---------------------------------------------------------------- in the process that knows Ray
class _Refused(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


def _answer(question: dict[str, Any]) -> None:
    """Raises _Refused for everything that can be said of."""
    try:
        import ray._private.authentication.authentication_token_setup as tokens
        from ray.exceptions import AuthenticationError, RpcError

        try:
            tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            tokens.ensure_token_if_auth_enabled(create_token_if_missing=False)
            _carry_out(question)
        except AuthenticationError as error:
            raise _Refused("cluster.token", str(error).partition(". ")[0]) from None
        except RpcError as error:
            raise _Refused("cluster.unreachable", str(error)) from None
    except ImportError as error:
        raise _Refused("cluster.drain", f"Ray cannot be used: {error}") from None


def _carry_out(question: dict[str, Any]) -> None:
    import ray._raylet
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value
    until = time.monotonic() + question.get("within_s", _CALL_S)
    parent = os.getppid()
    _wait_for_port(question["address"], until, parent)
    controller = ray._raylet.GcsClient(address=question["address"])
    if question["action"] == "drain":
        deadline = question["deadline"]
        deadline_ms = 0 if deadline is None else int(max(deadline, time.time() + 1.0) * 1000)
        call = (question["node_id"], reason(_PREEMPTION), question["text"], deadline_ms)
    else:
        call = (os.urandom(28).hex(), reason("DRAIN_NODE_REASON_IDLE_TERMINATION"), "proof of authority", 0)
    accepted, why = controller.drain_node(*call, timeout=_CALL_S)
    if not accepted:
        raise _Refused("cluster.drain", f"the drain is not accepted: {why}")
    wanted = question["node_id"] if question["action"] == "prove" else ""
    while wanted and not _is_alive(controller, wanted) and os.getppid() == parent:
        if time.monotonic() > until:
            raise _Refused("cluster.not-joined", f"node {wanted[:8]} has not joined after {question['within_s']:.0f} s")
        time.sleep(_POLL_S)


def _is_alive(controller: Any, node_id: str) -> bool:
    nodes = controller.get_all_node_info(timeout=_CALL_S)
    return any(node.node_id.hex() == node_id and node.state == _NODE_ALIVE for node in nodes.values())


def _wait_for_port(address: str, until: float, parent: int) -> None:
    host, _, port = address.rpartition(":")
    while os.getppid() == parent:  # nobody waits for an answer any more otherwise
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CALL_S).close()
            return
        except ValueError:
            raise _Refused("cluster.unreachable", f"{address} is no HOST:PORT") from None
        except OSError as error:
            if time.monotonic() > until:
                raise _Refused("cluster.unreachable", f"no connection to the controller: {error}") from None
        time.sleep(_POLL_S)


def _main() -> None:
    answer = {"code": "", "error": ""}
    try:
        _answer(json.loads(sys.argv[1]))
    except _Refused as refused:
        answer = {"code": refused.code, "error": refused.text}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # Ray's client has threads that are in no hurry


if __name__ == "__main__":
    _main()

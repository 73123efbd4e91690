"""Faults in a run's cluster, on purpose, from outside: each in a process of its own that joins the cluster for it.

Ray's client ends its process when the controller is away for long, and a process joins one cluster at a time.
``python -m pliant.cluster.chaos`` takes one JSON object as its argument, and answers with one in the last line of
stdout.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from pliant.cluster import draining
from pliant.cluster.deeds import plan
from pliant.cluster.trace import Event, Target, choose
from pliant.errors import PliantError, UsageError

_LIMIT_S = 60.0
_TASK_S = 20.0
_TOKEN_HINT = "run it as the user who runs the cluster, whose token is in ~/.ray/auth_token, or set RAY_AUTH_TOKEN"


@dataclass(frozen=True)
class Cluster:
    """Where a run's driver is.

    Attributes:
        address: host:port of the cluster's controller.
        node_id: the driver's node.
    """

    address: str
    node_id: str


def strike(cluster: Cluster, event: Event, *, deadline_s: float, for_s: float) -> tuple[str, str]:
    """Does to a node what an event says.

    Args:
        deadline_s: notice that a drained node gets, after which it is gone.
        for_s: how long a node is away (``vanish``) or slow.

    Returns:
        The node and what happens to it, for people.

    Raises:
        UsageError: ``chaos.node``: the node that is named is none, or not one.
        LookupError: there is nothing to hit.
        PliantError: ``cluster.unreachable``, ``cluster.token``, ``cluster.drain``: the cluster does not let us.
    """
    order = {"cluster": asdict(cluster), "event": asdict(event), "deadline_s": deadline_s, "for_s": for_s}
    command = [sys.executable, "-m", "pliant.cluster.chaos", json.dumps(order)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (subprocess.TimeoutExpired, ValueError):
        raise PliantError(
            "cluster.unreachable", "the run's cluster does not answer", location=cluster.address
        ) from None
    if answer.get("nothing"):
        raise LookupError(answer["nothing"])
    if answer.get("code"):
        kind = UsageError if answer["code"] == "chaos.node" else PliantError
        raise kind(answer["code"], answer["message"], hint=answer["hint"], location=cluster.address)
    return answer["node"], answer["text"]


# ---------------------------------------------------------------- in the process that knows Ray
def _carry_out(order: dict[str, Any]) -> dict[str, str]:
    import ray
    from ray._private.authentication import authentication_token_setup as tokens

    cluster, event = Cluster(**order["cluster"]), Event(**order["event"])
    tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    nodes = [
        Target(node["NodeID"], node.get("NodeName", ""), node["NodeID"] == cluster.node_id)
        for node in ray.nodes()
        if node["Alive"]
    ]
    try:
        node = choose(event, nodes)
    except ValueError as error:
        if event.node:
            raise UsageError("chaos.node", str(error)) from None
        raise LookupError(str(error)) from None
    deadline = time.time() + order["deadline_s"]
    task = ray.remote(num_cpus=0, max_retries=0, label_selector={"ray.io/node-id": node.id})(plan)
    text = ray.get(task.remote(event.fault, deadline_s=order["deadline_s"], for_s=order["for_s"]), timeout=_TASK_S)
    if event.fault == "drain":
        draining.drain(cluster.address, node.id, text="a fault on purpose (pliant chaos)", deadline=deadline)
    return {"node": str(node), "text": text}


def _main() -> None:
    try:
        import ray

        try:
            answer = _carry_out(json.loads(sys.argv[1]))
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, LookupError):
                raise
            answer = {"nothing": str(error.cause.args[0])}
        except ray.exceptions.AuthenticationError as error:
            answer = {"code": "cluster.token", "message": str(error).partition(". ")[0], "hint": _TOKEN_HINT}
    except LookupError as error:
        answer = {"nothing": str(error)}
    except PliantError as error:
        answer = {"code": error.code, "message": error.message, "hint": error.hint}
    except Exception as error:
        message = f"{type(error).__name__}: {error}".partition("\n")[0]
        answer = {"code": "cluster.unreachable", "message": message, "hint": ""}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # Ray's client has threads that are in no hurry


if __name__ == "__main__":
    _main()

"""A driver of a Ray cluster, told what to do on stdin: keeps a node busy, and says what Ray knows of nodes.

hold: an actor on the node with the resource `spot`, its node's id · release: ends it · draining: {node: deadline in ms}
· alive: ids of nodes
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray


@ray.remote(num_cpus=0, resources={"spot": 1})
class Work:
    """What a node is not idle for."""

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()


def main() -> None:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
    work: Any = None
    answer: Any = "ready"
    while True:
        sys.stdout.write(f"answer {json.dumps(answer)}\n")
        sys.stdout.flush()
        order = sys.stdin.readline().strip()
        if order == "hold":
            work = Work.remote()
            answer = ray.get(work.node.remote())
        elif order == "release":
            ray.kill(work)
            answer = None
        elif order == "draining":
            answer = ray._private.state.state.get_draining_nodes()
        elif order == "alive":
            answer = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
        else:
            return


if __name__ == "__main__":
    main()

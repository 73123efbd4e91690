"""What the loss of another worker looks like from inside one."""

from __future__ import annotations

import torch.distributed as dist


def lost_peer(error: BaseException) -> bool:
    """Whether a collective failed because another worker is gone or silent: NCCL says it by type, gloo in words."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error))

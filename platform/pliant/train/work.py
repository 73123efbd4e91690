"""What each worker of an attempt does: assemble the job, restore it, train, and tell how it ended.

    claim an attempt ─► model, guards, shard ─► restore (verified, voted) ─► restore decision ─► loop
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pliant.checkpoint.digest import named_shards, parameter_digest
from pliant.checkpoint.manifest import CheckpointRef
from pliant.checkpoint.reader import restore
from pliant.checkpoint.retention import Retention
from pliant.checkpoint.writer import CheckpointWriter
from pliant.data.lanes import LaneStream, open_stream
from pliant.data.manifest import Manifest
from pliant.data.plan import DataState
from pliant.errors import DamageError
from pliant.observe.board import BoardReporter, Note, NullReporter
from pliant.registry import PipelineRef
from pliant.settings import RunConfig, run_config_for
from pliant.storage.record import Attempt, RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store
from pliant.train.checkpoints import Checkpoints
from pliant.train.evaluate import evaluate
from pliant.train.evaluation import Evaluation
from pliant.train.feed import BatchFeed
from pliant.train.guards import check_pipeline
from pliant.train.loop import Job, train
from pliant.train.observer import EVENT_LOG, STEP_LOGS, Log, NullLog, Observer
from pliant.train.optim import build_optimizer
from pliant.train.parallel import Workers, join_workers, shard_model
from pliant.train.precision import compare_conditions, conditions, resolve_device, resolve_precision
from pliant.train.protocols import Pipeline
from pliant.train.state import TrainState
from pliant.train.step import Step

GUARD_ROWS = 8

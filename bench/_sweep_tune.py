"""Trials of the digit classifier on plain Ray Tune, as its documentation shows them.

    PYTHONPATH=platform:. python bench/_sweep_tune.py --kind plain|nested --data FOLDER

``plain``: the training loop is the trial, and reports five times with a checkpoint each. ``nested``: the trial's
function runs Ray Train inside, whose worker reports, and ``TuneReportCallback`` passes that on to Tune. Prints the
seconds from the first trial's start to the last one's end.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F

from pipelines.digits import DigitNet
from pipelines.digits_settings import ModelSettings

TRIALS, AT_ONCE, REPORTS, BATCH, STEPS = 8, 2, 5, 64, 281
LR = (1e-3, 1e-2)
WARMUP = 20


def train(config: dict[str, Any], tell: Callable[[dict[str, float], str], None]) -> None:
    """281 steps of 64 images, five times an evaluation and a checkpoint."""
    pixels, labels = read(f"{config['data']}/train")
    held_pixels, held_labels = read(f"{config['data']}/validation")
    torch.manual_seed(0)
    net = DigitNet(ModelSettings())
    optimizer = torch.optim.AdamW(net.parameters(), lr=config["lr"], weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / WARMUP, 0.5 * (1 + math.cos(math.pi * n / STEPS)))
    )
    order = torch.empty(0, dtype=torch.int64)
    reports = [round(STEPS * (number + 1) / REPORTS) for number in range(REPORTS)]
    for step in range(1, STEPS + 1):
        if len(order) < BATCH:
            order = torch.cat([order, torch.randperm(len(labels))])
        rows, order = order[:BATCH], order[BATCH:]
        loss = F.cross_entropy(net(pixels[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step in reports:
            net.eval()
            with torch.no_grad():
                right = sum(
                    int((net(held_pixels[i : i + BATCH]).argmax(1) == held_labels[i : i + BATCH]).sum())
                    for i in range(0, len(held_labels), BATCH)
                )
            net.train()
            with tempfile.TemporaryDirectory() as folder:
                state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, f"{folder}/state.pt")
                tell({"accuracy": right / len(held_labels), "loss": loss.item(), "step": step}, folder)


def read(folder: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels (n, 64) float32 and labels (n,) int64 of a split."""
    tables = [pq.read_table(file, columns=["pixels", "label"]) for file in sorted(Path(folder).glob("*.parquet"))]
    table = pa.concat_tables(tables)
    pixels = table["pixels"].combine_chunks().flatten().to_numpy().reshape(-1, 64)
    return torch.from_numpy(np.array(pixels)), torch.from_numpy(np.array(table["label"].to_numpy()))


def function_trial(config: dict[str, Any]) -> None:
    """A trial that trains by itself."""
    from ray import tune

    mark(config)
    train(config, lambda metrics, folder: tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder)))
    mark(config)


def nested_trial(config: dict[str, Any]) -> None:
    """A trial that runs Ray Train."""
    import ray.train
    from ray import tune
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    def worker(settings: dict[str, Any]) -> None:
        def tell(metrics: dict[str, float], folder: str) -> None:
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))

        train(settings, tell)

    mark(config)
    TorchTrainer(
        worker,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(
            name=f"train-trial_id={tune.get_context().get_trial_id()}",
            storage_path=config["folder"],
            callbacks=[TuneReportCallback()],
        ),
    ).fit()
    mark(config)


def mark(config: dict[str, Any]) -> None:
    """Notes the time."""
    with open(f"{config['folder']}/times", "a") as file:
        file.write(f"{time.time()}\n")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kind", choices=("plain", "nested"), required=True)
    arguments.add_argument("--data", required=True)
    options = arguments.parse_args()
    import ray
    from ray import tune

    nested = options.kind == "nested"
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        # One CPU for each trial's function, one for each worker.
        cpus = 2 * AT_ONCE if nested else AT_ONCE
        ray.init("local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
        config = {"data": options.data, "folder": folder, "lr": tune.loguniform(*LR)}
        results = tune.Tuner(
            nested_trial if nested else function_trial,
            param_space=config,
            tune_config=tune.TuneConfig(num_samples=TRIALS, max_concurrent_trials=AT_ONCE),
            run_config=tune.RunConfig(name="bench", storage_path=folder, verbose=0),
        ).fit()
        times = [float(line) for line in Path(folder, "times").read_text().split()]
        if results.errors or len(times) != 2 * TRIALS:
            raise SystemExit(f"{len(times) // 2} of {TRIALS} trials, {results.errors}")
        ray.shutdown()
    print(json.dumps({"seconds": max(times) - min(times)}))


if __name__ == "__main__":
    main()

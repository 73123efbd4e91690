"""Late flights: the shipped network, trained through Pliant, against scikit-learn's logistic regression.

    python bench/flights.py [--epochs N]

Both see the same rows and the same features: what the pipeline's collate makes of the training shards, with its
categories one-hot for the regression. Both are judged on December. Pliant's area under the curve comes from a histogram
of scores and is known up to an error, which is counted against it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

from _common import ROOT, Bar, report

PIPELINE = str(ROOT / "pipelines" / "flights.py")
BARS = {"AUC, above the regression": Bar(at_least=0.004), "log loss, below the regression": Bar(at_least=0.004)}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--epochs", type=int, help="default: the pipeline's own")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        network = _network(folder, [] if options.epochs is None else [f"train.epochs={options.epochs}"])
        regression = _regression(f"{folder}/data")
    figures = {f"Pliant, {name}": value for name, value in network.items()}
    figures |= {f"logistic regression, {name}": value for name, value in regression.items()}
    figures["AUC, above the regression"] = network["AUC"] - network["AUC error"] - regression["AUC"]
    figures["log loss, below the regression"] = regression["log loss"] - network["log loss"]
    return report("flights", figures, BARS)


def _network(folder: str, settings: list[str]) -> dict[str, float]:
    """Prepares the dataset in ``folder`` and trains on it, in this process."""
    import pliant
    from pliant.cli.main import main as command

    if command(["prepare", PIPELINE, f"data.path={folder}/data"]):
        raise SystemExit("the dataset could not be prepared")
    settings = [f"data.path={folder}/data", f"run.storage={folder}/runs", "tracking.kind=none", *settings]
    run = pliant.Run.new(PIPELINE, settings, name="bench", in_process=True)
    started = time.perf_counter()
    ending = run.train()
    seconds = time.perf_counter() - started
    if ending.reason != "done":
        raise SystemExit(f"training ended early: {ending.reason}")
    (*_, last) = run.evaluations()
    return {"AUC": last["auc"], "AUC error": last["auc_error"], "log loss": last["loss"], "s": seconds}


def _regression(data: str) -> dict[str, float]:
    """Fits the regression to the prepared training rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score

    features, late = _features(f"{data}/train")
    started = time.perf_counter()
    model = LogisticRegression(max_iter=1000).fit(features, late)
    seconds = time.perf_counter() - started
    features, late = _features(f"{data}/validation")
    scores = model.predict_proba(features)[:, 1]
    return {"AUC": roc_auc_score(late, scores), "log loss": log_loss(late, scores), "s": seconds}


def _features(split: str) -> tuple[object, object]:
    """A sparse matrix (rows, numbers and slots) as the pipeline sees the rows, and whether each was late."""
    import numpy as np
    import pyarrow.parquet as pq
    from scipy import sparse

    from pipelines.flights import SLOTS, Flights
    from pipelines.flights_settings import ModelSettings
    from pliant.configure import load_config
    from pliant.data.nulls import apply_policies
    from pliant.registry import find_pipeline

    policies = load_config(find_pipeline(PIPELINE)).config.data.nulls
    batch = Flights(ModelSettings()).collate(apply_policies(pq.read_table(split), policies))
    slots = batch["slots"].numpy()
    rows = np.repeat(np.arange(len(slots)), slots.shape[1])
    one_hot = sparse.csr_matrix((np.ones(slots.size), (rows, slots.ravel())), (len(slots), sum(SLOTS.values())))
    numbers = sparse.csr_matrix(batch["numbers"].double().numpy())
    return sparse.hstack([numbers, one_hot]).tocsr(), batch["late"].numpy()


if __name__ == "__main__":
    sys.exit(main())

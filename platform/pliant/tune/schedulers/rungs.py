"""Where trials report: samples of rungs and generations, from the settings. Pure."""

from __future__ import annotations

from itertools import takewhile

from pliant.errors import ConfigError
from pliant.tune.schedulers.base import Terms, count

_HALVINGS = 3
"""Rungs before the full length where ``first_epochs`` is not given."""
_REPORTS = 10
"""Reports of a trial where ``every_epochs`` is not given."""


def rungs_up(terms: Terms) -> list[int]:
    """Samples of the rungs below the full length, ascending: the first, and each ``eta`` times the one before.

    Raises:
        ConfigError: the first lies at or beyond the full length.
    """
    first, eta = first_rung(terms), terms.settings.scheduler.eta
    steps = (max(1, round(first * eta**k)) for k in range(64))
    return sorted(set(takewhile(lambda samples: samples < terms.length, steps)))


def rungs_down(terms: Terms) -> list[int]:
    """As ``rungs_up``, but each is the full length divided by a power of ``eta``: hyperband's.

    Raises:
        ConfigError: as there.
    """
    first, eta = first_rung(terms), terms.settings.scheduler.eta
    steps = (terms.length / float(eta**k) for k in range(1, 64))
    lowest = max(1.0, first * (1 - 1e-9))  # a third of a third of a third is not exact
    return sorted({round(samples) for samples in takewhile(lambda samples: samples >= lowest, steps)})


def first_rung(terms: Terms) -> float:
    """Samples to the first rung.

    Raises:
        ConfigError: it lies at or beyond the full length.
    """
    epochs, eta = terms.settings.scheduler.first_epochs, terms.settings.scheduler.eta
    if epochs is None:
        return terms.length / float(eta**_HALVINGS)
    first = epochs * terms.rows
    if first >= terms.length:
        raise _too_long("first_epochs", epochs, terms)
    return first


def evenly(terms: Terms) -> list[int]:
    """Samples of reports every ``every_epochs``, the last at the full length.

    Raises:
        ConfigError: they would lie further apart than a trial is long.
    """
    epochs = terms.settings.scheduler.every_epochs
    if epochs is None:
        return sorted({max(1, round(terms.length * k / _REPORTS)) for k in range(1, _REPORTS + 1)})
    every = epochs * terms.rows
    if every > terms.length:
        raise _too_long("every_epochs", epochs, terms)
    reports = (max(1, round(every * k)) for k in range(1, int(terms.length / every) + 1))
    return sorted({*takewhile(lambda samples: samples < terms.length, reports), terms.length})


def _too_long(name: str, epochs: float, terms: Terms) -> ConfigError:
    whole = terms.length / terms.rows
    return ConfigError(
        "config.scheduler",
        f"it is {epochs:g} epochs; a trial has {whole:.4g} ({count(terms.length)}), "
        f"and sweep.scheduler.{name} must lie {'below' if name == 'first_epochs' else 'within'} that",
        hint="use fewer, or longer trials: train.epochs or train.steps",
        location=f"sweep.scheduler.{name}",
    )

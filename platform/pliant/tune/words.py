"""Entries of a decision log, and what a resume would do with it, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pliant.config.dump import value_text
from pliant.storage.explain import explain_drivers
from pliant.tune.decisions import from_dict
from pliant.tune.settings import POPULATION_BASED
from pliant.tune.types import Change, Close, Decision, End, Halt, Loss, Report, Resize, Suggestion

if TYPE_CHECKING:
    from pliant.tune.results import SweepResults


def entry_line(value: Mapping[str, Any]) -> str:
    """An entry as the log has it, in a line."""
    match entry := from_dict(value):
        case Suggestion():
            note = f" ({entry.note})" if entry.note else ""
            return f"{entry.trial} begins{note}: {params_text(entry.params)}"
        case Report():
            value_ = "no finite value" if entry.value is None else f"{entry.value:.6g}"
            return f"{entry.trial} reports {value_} after {entry.samples:,} rows"
        case Decision(action="exploit"):
            changed = f": {params_text(entry.params)}" if entry.params else ""
            return f"{entry.trial} clones {entry.donor} at {entry.donor_samples:,} rows, {entry.why}{changed}"
        case Decision():
            verb = {"continue": "goes on", "stop": "stops", "pause": "pauses", "resume": "goes on again"}[entry.action]
            return f"{entry.trial} {verb}: {entry.why}"
        case Loss():
            return f"{entry.trial} is lost ({entry.cause}): {first_line(entry.text)}"
        case End():
            text = f": {first_line(entry.text)}" if entry.text else ""
            return f"{entry.trial} ends, {entry.how}, after {entry.samples:,} rows{text}"
        case Resize():
            return f"{entry.trial} gets {entry.workers} worker{'s' * (entry.workers != 1)}: {entry.why}"
        case Close():
            return f"no trial more: {entry.why}"
        case Halt():
            return f"halt ({entry.what}): {first_line(entry.text)}"
        case Change():
            space = ", a narrower space" if entry.space is not None else ""
            return f"settings of a start: {entry.settings.get('trials')} trials{space}"
    raise ValueError(f"{entry} has no words")


def params_text(params: Mapping[str, Any]) -> str:
    """``optim.lr 0.0031, train.global_batch 64``."""
    return ", ".join(f"{name} {_short(value)}" for name, value in params.items())


def explain_sweep(found: SweepResults) -> list[str]:
    """What a resume would go on with, for people."""
    state = found.state
    lines = explain_drivers(found.record)
    if not found.log:
        return [*lines, "a resume would begin: nothing is in its decision log"]
    lines.append(f"a resume would replay {len(found.log):,} entries, {state.decisions:,} of them decisions")
    if (entry := state.due()) is not None:
        lines.append(
            f"the next entry follows from them: {type(entry).__name__.lower()} of {getattr(entry, 'trial', 'all')}"
        )
    waiting = [trial.id for trial in found.trials if trial.live]
    if waiting:
        lines.append(f"it would go on with {', '.join(waiting)}")
    if paused := [trial.id for trial in found.trials if trial.paused]:
        lines.append(f"the scheduler would decide on {', '.join(paused)}")
    left = 0 if state.closed else state.allowed - len(state.trials)
    lines.append(f"{left:,} trials have not begun" if left else "no trial more would begin")
    if state.halt is not None:
        lines.append(f"it would lift: {first_line(state.halt.text)}")
    if not waiting and not paused and not left:
        grows = found.settings.scheduler.kind not in POPULATION_BASED
        more = f": more trials extend it, as sweep.trials={2 * len(state.trials)}" if grows else ""
        lines.append(f"nothing is left to do{more}")
    return lines


def first_line(text: str) -> str:
    """The first line of a text: errors of users' code have many."""
    return text.strip().partition("\n")[0]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)

"""``pliant plan``: what a run would take, before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.cli.common import JsonOption, OverridesArgument, PipelineArgument, emit, table

if TYPE_CHECKING:
    from pliant.train.forecast import Forecast
    from pliant.train.memory import RankMemory


def plan(pipeline: PipelineArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Show memory by part and step time at each worker count, steps and shuffle quality. Starts nothing.

    Exit 3 where a worker would not fit, with what helps; 1 where the pipeline's own code fails on its first rows.
    """
    from pliant.train.forecast import forecast, refuse_what_does_not_fit, try_its_code

    found = forecast(pipeline, overrides or ())
    emit(found.to_dict(), as_json=as_json, text=_text(found))
    refuse_what_does_not_fit(found)
    try_its_code(found)


def _text(found: Forecast) -> str:
    from pliant.units import format_bytes

    rows = [
        (
            at.workers,
            at.micro_batches,
            f"{at.step_time:.2f}",
            format_bytes(at.memory.host.bytes) if at.memory else "not known",
            format_bytes(at.host_room.bytes) if at.host_room else "not known",
        )
        for at in found.at
    ]
    lines = [
        *found.plan_lines,
        f"parameters {found.parameters:,}" if found.parameters is not None else "parameters not known",
        f"shuffle: {found.pool_row_groups} row groups in the pool, variance ratio at most {found.variance_ratio:.2f}",
        "",
        table(("workers", "micro-batches a step", "step time (relative)", "host memory a worker", "of"), rows),
    ]
    memories = [at.memory for at in found.at if at.memory]
    for title, where in (("memory", "host"), ("device memory", "device")):
        lines += _by_part(title, where, memories)
    lines += [f"note: {note}" for note in found.notes if not any(note in line for line in lines)]
    return "\n".join(lines)


def _by_part(title: str, where: str, memories: list[RankMemory]) -> list[str]:
    """A row a part, a column a worker count."""
    from pliant.units import format_bytes

    moments = [(m.workers, getattr(m, where)) for m in memories if getattr(m, where) is not None]
    if not moments:
        return []
    names = dict.fromkeys(name for _, moment in moments for name in moment.parts)
    rows = [[name, *(format_bytes(moment.parts.get(name, 0)) for _, moment in moments)] for name in names]
    rows.append(["fullest in", *(moment.name for _, moment in moments)])
    header = (title, *(f"{w} worker{'s' * (w > 1)}" for w, _ in moments))
    return ["", table(header, rows)]

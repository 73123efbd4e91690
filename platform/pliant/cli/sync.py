"""``pliant sync``: tells MLflow what it lacks of a run or sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from pliant.cli.common import JsonOption, RunArgument, emit, open_any


def sync(
    run: RunArgument,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="tracking.… and run.… settings.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver to MLflow what it lacks of a run or sweep: after an outage, or to another store with tracking.uri=…"""
    import os

    from pliant.errors import PliantError, StorageError
    from pliant.track.background import reason, run_outbox
    from pliant.track.settings import masked, settle_uri
    from pliant.train.recorded import load_recorded, recorded_pipeline
    from pliant.tune.tracking.outbox import SweepOutbox

    given = overrides or []
    record = open_any(run, [text for text in given if not text.startswith("tracking.")]).record
    ref = recorded_pipeline(record)
    config, _ = load_recorded(record, ref, [text for text in given if text.startswith("tracking.")])
    storage = config.run.storage
    uri = masked(settle_uri(config.tracking, storage, os.environ)[0])
    try:
        box = SweepOutbox(record, ref, config) if record.is_sweep else run_outbox(record, ref, config)
        truth = box.deliver(last=True)
    except PliantError:
        raise
    except Exception as error:
        raise StorageError(
            "track.unavailable",
            f"MLflow cannot be told: {reason(error)}",
            hint="nothing is lost: run the command again when it answers",
            location=uri,
        ) from error
    what, figure = ("sweep", "trials") if record.is_sweep else ("run", "step")
    result = {what: record.store.uri, "tracking": uri, "id": box.run_id, "status": truth.status, figure: box.delivered}
    text = f"MLflow at {uri} has the {what} as {box.run_id}: {truth.status}, {box.reached}"
    emit(result, as_json=as_json, text=text)

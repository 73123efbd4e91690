"""``pliant sync``: tells MLflow what it lacks of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from pliant.cli.common import JsonOption, RunArgument, emit, open_run


def sync(
    run: RunArgument,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="tracking.… and run.… settings.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver to MLflow what it lacks of a run: after an outage, or to another store with tracking.uri=…"""
    import os

    from pliant.errors import PliantError, StorageError
    from pliant.track.background import connect, deliver_all, reason
    from pliant.track.settings import masked, settle_uri
    from pliant.train.recorded import load_recorded, recorded_pipeline

    given = overrides or []
    record = open_run(run, [text for text in given if not text.startswith("tracking.")]).record
    ref = recorded_pipeline(record)
    config, _ = load_recorded(record, ref, [text for text in given if text.startswith("tracking.")])
    storage = config.run.storage
    uri = masked(settle_uri(config.tracking, storage, os.environ)[0])
    try:
        delivery = connect(record, config.tracking, storage)
        truth = deliver_all(delivery, record, ref, config, model=config.tracking.model)
    except PliantError:
        raise
    except Exception as error:
        raise StorageError(
            "track.unavailable",
            f"MLflow cannot be told: {reason(error)}",
            hint="nothing is lost: run the command again when it answers",
            location=uri,
        ) from error
    step = delivery.delivered_step()
    result = {"run": record.store.uri, "tracking": uri, "id": delivery.run_id, "status": truth.status, "step": step}
    text = f"MLflow at {uri} has the run as {delivery.run_id}: {truth.status}, metrics up to step {step}"
    emit(result, as_json=as_json, text=text)

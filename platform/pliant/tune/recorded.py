"""What a driver's start records of a sweep's settings and search space, and how that is read again.

attempts/a000001/sweep.yaml     all settings of the sweep, and the search space: itself a file that `pliant sweep` takes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pliant.config.dump import config_to_dict, value_text
from pliant.config.yamlfile import parse_yaml
from pliant.errors import ConfigError
from pliant.storage.attempts import Attempt
from pliant.storage.layout import attempt_key, damaged
from pliant.storage.record import RunRecord
from pliant.storage.snapshot import AttemptInfo
from pliant.tune.settings import SweepSettings

SWEEP_OBJECT = "sweep.yaml"


@dataclass(frozen=True)
class RecordedSearch:
    """What the newest driver of a sweep was settled to.

    Attributes:
        content: of the space's file without its section ``sweep``.
        text: as it stands in the record.
        location: of the text.
    """

    settings: SweepSettings
    content: Mapping[str, Any]
    text: str
    location: str


def record_search(attempt: Attempt, settings: SweepSettings, content: Mapping[str, Any]) -> None:
    """Writes what a driver was settled to into its attempt.

    Args:
        content: of the space's file; its section ``sweep`` is replaced by the settings.
    """
    attempt.write(SWEEP_OBJECT, text_of(settings, content).encode())


def text_of(settings: SweepSettings, content: Mapping[str, Any]) -> str:
    """A space's file with all settings of a sweep."""
    return "\n".join(_lines({**content, "sweep": config_to_dict(settings)}, "")) + "\n"


def recorded_search(record: RunRecord) -> RecordedSearch | None:
    """What the newest driver was settled to; None where none has recorded it.

    Raises:
        DamageError: it cannot be read.
    """
    return _search_of(record, reversed(record.attempts()))


def first_search(record: RunRecord) -> RecordedSearch | None:
    """The same of the first driver: the space before any resume has narrowed it."""
    return _search_of(record, record.attempts())


def _search_of(record: RunRecord, attempts: Iterable[AttemptInfo]) -> RecordedSearch | None:
    for info in attempts:
        if SWEEP_OBJECT in info.objects:
            key = attempt_key(info.number, SWEEP_OBJECT)
            return _parse(record.store.get(key), f"{record.store.uri}/{key}")
    return None


def _parse(data: bytes, location: str) -> RecordedSearch:
    try:
        text = data.decode()
        content = parse_yaml(text, location).value
        settings = SweepSettings.model_validate(content.pop("sweep"))
    except (UnicodeDecodeError, ConfigError, KeyError, AttributeError, ValidationError) as error:
        raise damaged(location, f"it does not hold the sweep's settings ({type(error).__name__})") from error
    return RecordedSearch(settings, content, text, location)


def _lines(content: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Mappings in block style down to the domains, which stand in one line each."""
    for key, value in content.items():
        name = value_text(str(key))
        if isinstance(value, Mapping) and value and len(indent) < 4:
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {value_text(value)}"

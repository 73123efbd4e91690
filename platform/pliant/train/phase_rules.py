"""What a run's phases may change: each phase's configuration is loaded as a run's own would be."""

from __future__ import annotations

from typing import Any

from pliant.config.dump import config_to_yaml
from pliant.config.loader import Loaded, load_settings
from pliant.config.problems import ConfigErrors, raise_all
from pliant.config.resume import compare_for_resume
from pliant.config.schema import leaves
from pliant.config.suggest import closest_key
from pliant.errors import ConfigError
from pliant.rules import RULES
from pliant.settings import RunConfig

_SECTIONS = ("train", "optim", "schedule")
_WHOLE_RUN = {
    "train.steps": "the length is one of the whole run",
    "train.epochs": "the length is one of the whole run",
    "train.micro_batch": "it is a condition of exact results, recorded once for each attempt",
}
_RULES = [rule for rule in RULES if "train.steps" not in vars(rule)["reads"]]
"""Those about the length take all phases together: the plan asks them."""


def changeable(schema: type[RunConfig]) -> list[str]:
    """The settings that a phase may change, by dotted key."""
    known = (leaf for leaf in leaves(schema) if leaf.keys[0] in _SECTIONS and leaf.on_resume == "curve")
    return [leaf.dotted for leaf in known if leaf.dotted not in _WHOLE_RUN]


def check_phases(loaded: Loaded[RunConfig], config: RunConfig) -> None:
    """Checks every phase of a configuration that is valid without them.

    Args:
        loaded: where its values stand.
        config: the same, complete.

    Raises:
        ConfigError: all problems, each with its place.
    """
    problems: list[ConfigError] = []
    laid: dict[str, Any] = {}
    places: dict[str, str] = {}
    before = 0
    text = config_to_yaml(config.model_copy(update={"phases": ()})) if config.phases else ""
    for index, phase in enumerate(config.phases):
        name, own = f"phases[{index}]", ("phases", index)
        if phase.from_samples <= before:
            message = f"{name}.from_samples is {phase.from_samples}, not above {before} of the phase before it"
            location = loaded.place((*own, "from_samples"))
            problems.append(ConfigError("config.phases", message, hint="order them", location=location))
        before = max(before, phase.from_samples)
        places |= {key: loaded.place((*own, "settings", key)) for key in phase.settings}
        refused = [_refused(type(config), name, key, places[key]) for key in phase.settings]
        problems += filter(None, refused)
        if any(refused):
            break  # what comes after would be judged by what is not meant
        laid |= phase.settings
        try:
            load_settings(type(config), text=text, source="", overrides=laid, rules=_RULES)
        except ConfigError as error:
            for problem in error.problems if isinstance(error, ConfigErrors) else (error,):
                override, _, key = problem.location.partition(" ")
                at = places.get(key.partition("=")[0]) if override == "override" else None
                message = f"{name}: {problem.message}"
                location = at or loaded.place(own)
                problems.append(ConfigError(problem.code, message, hint=problem.hint, location=location))
            break
    raise_all(problems)


def phase_between(before: RunConfig, after: RunConfig) -> dict[str, object]:
    """The settings by which a phase turns one configuration into another; what no phase may change is left out."""
    allowed = set(changeable(type(before)))
    return {change.key: change.new for change in compare_for_resume(before, after).curve if change.key in allowed}


def _refused(schema: type[RunConfig], name: str, key: str, location: str) -> ConfigError | None:
    """Why a phase cannot change this, if it cannot."""
    allowed = changeable(schema)
    if key in allowed:
        return None
    if key not in {leaf.dotted for leaf in leaves(schema)}:
        _, words = closest_key(key.split("."), [tuple(known.split(".")) for known in allowed])
        message = f"{name}.settings: {key} is not a setting"
        hint = f"{words}?" if words else f"a phase may change {', '.join(allowed)}"
        return ConfigError("config.unknown-key", message, hint=hint, location=location)
    why = _WHOLE_RUN.get(key, "it holds for the whole run")
    message = f"{name} cannot change {key}: {why}"
    return ConfigError("config.phases", message, hint=f"a phase may change {', '.join(allowed)}", location=location)

"""What a space file says of one dimension, and all that can be wrong with it. Pure.

[16, 32, 64]                                   choices
{choice: [16, 32, 64], when: {…}, lr: sqrt}    the same, with options
{float: [0, 0.5]}   {float: [1e-4, 1e-2], log: true}   {log: [1e-4, 1e-2]}
{int: [16, 128], step: 16}   {int: [16, 128], log: true}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from pliant.config.loader import DEFAULT
from pliant.config.schema import show
from pliant.config.suggest import closest
from pliant.config.yamlfile import Path
from pliant.errors import ConfigError
from pliant.tune.domains import Dimension, Kind, Value
from pliant.tune.point import BATCH, Coupling
from pliant.tune.searchable import Searchable

KINDS = ("float", "log", "int", "choice")
OPTIONS = ("when", "log", "step", "mutate", "lr")
COUPLINGS = get_args(Coupling)
_HOW = "a domain is [a, b, c], {float: [low, high]}, {log: [low, high]}, {int: [low, high]} or {choice: [a, b, c]}"


class Problems:
    """Collects what is wrong with a file, each problem with its place."""

    def __init__(self, source: str, places: Mapping[Path, str]) -> None:
        self.source, self.places = source, places
        self.found: list[ConfigError] = []

    def problem(self, code: str, path: Path, message: str, hint: str = "") -> None:
        """Notes a problem with what stands at ``path``, or with the nearest thing around it."""
        around = (self.places.get(path[:end]) for end in range(len(path), 0, -1))
        self.found.append(ConfigError(code, message, hint=hint, location=next(filter(None, around), self.source)))

    def problem_of(self, code: str, origin: str, message: str, hint: str = "") -> None:
        """Notes a problem with a setting that comes from ``origin``."""
        place = self.source if origin == DEFAULT else origin
        self.found.append(ConfigError(code, message, hint=hint, location=place))


@dataclass(frozen=True)
class Entry:
    """A dimension as the file has it, its conditions unchecked.

    Attributes:
        dimension: without conditions.
        path: where it stands.
        when: by name of another dimension, the values as they stand there.
        coupling: of the learning rate with it.
    """

    dimension: Dimension
    path: Path
    when: Mapping[str, Any] = field(default_factory=dict)
    coupling: Coupling = "none"


def read_entry(target: Searchable, value: Any, path: Path, problems: Problems) -> Entry | None:
    """The dimension that an entry of the file describes; None with at least one problem more.

    Args:
        target: the setting it is about.
        value: what the file says of it.
        path: where.
    """
    before = len(problems.found)
    entry = _Reader(target, path, problems).entry(value)
    return entry if len(problems.found) == before else None


class _Reader:
    """Reads one entry; goes on after a problem, so that all of them are found."""

    def __init__(self, target: Searchable, path: Path, problems: Problems) -> None:
        self.target, self.name, self.path = target, target.name, path
        self._problems = problems
        self._short = False  # choices as a bare list

    def problem(self, message: str, hint: str = "", *below: str | int, code: str = "space.domain") -> None:
        self._problems.problem(code, (*self.path, *below), f"{self.name} {message}", hint)

    def entry(self, value: Any) -> Entry | None:
        if self.target.kind is None:
            self.problem(
                f"takes {self.target.allowed}", "numbers, texts and booleans can be searched", code="space.key"
            )
            return None
        if isinstance(value, list):
            self._short, value = True, {"choice": value}
        if not isinstance(value, Mapping):
            fixed = f"a fixed value goes under settings: {self.name}: {show(value)}"
            self.problem(f"is {show(value)}, which is no domain", _HOW if value is None else fixed)
            return None
        kind = self._kind(value)
        if kind is None:
            return None
        options = self._options(kind, value)
        dimension = self._choice(value[kind]) if kind == "choice" else self._range(kind, value[kind], options)
        if dimension is None:
            return None
        if not options.get("mutate", True):
            dimension = replace(dimension, mutable=False)
        return Entry(dimension, self.path, options.get("when", {}), options.get("lr", "none"))

    def _kind(self, value: Mapping[str, Any]) -> str | None:
        kinds = [key for key in value if key in KINDS]
        if len(kinds) > 1 and not isinstance(value.get("log", []), list):
            kinds.remove("log")  # the option of that name
        if "grid" in value:
            self.problem(
                "asks for a grid, which is a searcher for the whole space",
                "list its choices, and use sweep.searcher.kind=grid for all dimensions",
                "grid",
            )
        elif not kinds:
            near = [name for key in value if key not in OPTIONS for name in closest(key, KINDS, most=1)]
            self.problem("says neither float, log, int nor choice", f"did you mean {near[0]}?" if near else _HOW)
        elif len(kinds) > 1:
            self.problem(
                f"says both {kinds[0]} and {kinds[1]}", "a dimension has one domain; keep one of them", kinds[1]
            )
        else:
            return kinds[0]
        return None

    def _options(self, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """The options that are as they have to be."""
        takes = {"when", "mutate", *{"float": ["log"], "int": ["log", "step"]}.get(kind, [])}
        takes |= {"lr"} if self.name == BATCH else set()
        found: dict[str, Any] = {}
        for key, option in value.items():
            if key == kind:
                continue
            if key not in takes:
                near = closest(key, takes, most=1)
                what = f"did you mean {near[0]}?" if near else f"beside {kind} there may be {', '.join(sorted(takes))}"
                if key == "lr":
                    what = f"how the learning rate follows the batch is said at {BATCH}"
                self.problem(f"has no option {key}", what, key)
            elif key == "when" and not isinstance(option, Mapping):
                self.problem(
                    f"has the condition {show(option)}",
                    "as in when: {model.depth: [2, 3]}",
                    key,
                    code="space.condition",
                )
            elif key in ("log", "mutate") and not isinstance(option, bool):
                self.problem(f"has {key}: {show(option)}; allowed: true or false", "", key)
            elif key == "mutate" and option and not self.target.mutable:
                self.problem("cannot change in the middle of a run", "leave mutate out", key)
            elif key == "step" and (isinstance(option, bool) or not isinstance(option, int) or option < 1):
                self.problem(f"has step: {show(option)}; allowed: a whole number at least 1", "", key)
            elif key == "lr" and option not in COUPLINGS:
                near = closest(str(option), COUPLINGS, most=1)
                hint = f"did you mean {near[0]}?" if near else "sqrt for adamw, linear for sgd"
                self.problem(f"has lr: {show(option)}; allowed: one of {', '.join(COUPLINGS)}", hint, key)
            else:
                found[key] = option
        return found

    def _choice(self, values: Any) -> Dimension | None:
        if not isinstance(values, list):
            self.problem(f"has the choices {show(values)}; needed: a list", "", "choice")
            return None
        if not values:
            self.problem("has no choices", "list at least one", "choice")
            return None
        accepted: list[Value] = []
        for index, value in enumerate(values):
            place: Path = (index,) if self._short else ("choice", index)
            if isinstance(value, (Mapping, list)):
                hint = "make it a dimension of its own that counts when the other has a certain value: when: {…}"
                self.problem(f"has a domain among its choices: {show(value)}", hint, *place)
                continue
            taken = self.target.accept(value)
            if taken is None:
                near = closest(str(value), self.target.allowed.removeprefix("one of ").split(", "), most=1)
                hint = f"did you mean {near[0]}?" if near else ""
                message = f"has the choice {show(value)}; allowed: {self.target.allowed}"
                self.problem(message, hint, *place)
            elif any(taken == other and type(taken) is type(other) for other in accepted):
                self.problem(f"has the choice {show(value)} twice", "keep one of them", *place)
            else:
                accepted.append(taken)
        return Dimension(self.name, "choice", choices=tuple(accepted), mutable=self.target.mutable)

    def _range(self, kind: str, bounds: Any, options: Mapping[str, Any]) -> Dimension | None:
        whole = self.target.kind == "whole"
        if self.target.kind == "choice" or (kind == "int") != whole:
            better = "list its choices"
            if self.target.kind != "choice":
                pair = show(bounds) if isinstance(bounds, list) else "[low, high]"
                better = f"write {{{'int' if whole else 'float'}: {pair}{', log: true' if kind == 'log' else ''}}}"
            self.problem(f"takes {self.target.allowed}, not {kind}", better, kind)
            return None
        if not self._is_pair(kind, bounds):
            return None
        low, high = bounds
        log = kind == "log" or bool(options.get("log"))
        if low > high:
            self.problem(f"goes from {show(low)} down to {show(high)}", f"write [{show(high)}, {show(low)}]", kind)
        elif low == high and not whole:
            self.problem(f"goes from {show(low)} to the same number", f"list the one choice: [{show(low)}]", kind)
        elif log and low <= 0:
            self.problem(
                f"is searched by its logarithm, from {show(low)} on", "start a little above 0, or leave log out", kind
            )
        elif all([self._accepts(kind, bound) for bound in (low, high)]):
            step = options.get("step", 1)
            if (high - low) % step == 0 or not whole:
                own: Kind = "int" if whole else "float"
                return Dimension(self.name, own, float(low), float(high), log, step, mutable=self.target.mutable)
            below = low + (high - low) // step * step
            self.problem(f"does not reach {high} from {low} in steps of {step}", f"write [{low}, {below}]", kind)
        return None

    def _is_pair(self, kind: str, bounds: Any) -> bool:
        numbers: Sequence[Any] = bounds if isinstance(bounds, list) else ()
        whole = self.target.kind == "whole"
        if len(numbers) != 2 or not all(
            isinstance(b, int if whole else (int, float)) and not isinstance(b, bool) for b in numbers
        ):
            what = "whole numbers" if whole else "numbers"
            self.problem(f"has the bounds {show(bounds)}; needed: two {what}, [low, high]", "", kind)
            return False
        if not all(map(math.isfinite, numbers)):
            self.problem(f"has the bounds {show(bounds)}; needed: two finite numbers", "", kind)
            return False
        return True

    def _accepts(self, kind: str, bound: Any) -> bool:
        if self.target.accept(bound) is None:
            self.problem(f"reaches {show(bound)}; allowed: {self.target.allowed}", "", kind)
            return False
        return True

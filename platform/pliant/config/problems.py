"""Several errors as one: everything that is wrong with a configuration is said at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pliant.errors import ConfigError


@dataclass(frozen=True)
class Problem:
    """Settings that do not fit together: the key to look at first, what is wrong, what to do.

    Attributes:
        key: dotted.
        code: of the error, as ``config.no-effect``.
        final: whether nothing more is to be said that depends on the key.
    """

    key: str
    code: str
    message: str
    hint: str = ""
    final: bool = False


class ConfigErrors(ConfigError):
    """Several errors of one configuration.

    Attributes:
        problems: each of them.
    """

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        self.problems = tuple(problems)
        entries = []
        for problem in problems:
            where = f"{problem.location}  " if problem.location else ""
            hint = f"\n    {problem.hint}" if problem.hint else ""
            entries.append(f"  {where}{problem.message}{hint}")
        super().__init__("config.invalid", f"{len(problems)} problems\n" + "\n".join(entries))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConfigErrors, (self.problems,))


def raise_all(problems: Sequence[ConfigError]) -> None:
    """Raises the problem there is, or one error that lists all of them; returns when there is none.

    Raises:
        ConfigError: the only problem itself, or ``ConfigErrors`` with one entry per problem.
    """
    if len(problems) > 1:
        raise ConfigErrors(problems)
    for problem in problems:
        raise problem

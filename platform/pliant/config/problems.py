"""Several errors as one: everything that is wrong with a configuration is said at once."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.errors import ConfigError


def raise_all(problems: Sequence[ConfigError]) -> None:
    """Raises the problem there is, or one error that lists all of them; returns when there is none.

    Raises:
        ConfigError: the only problem itself, or ``config.invalid`` with one entry per problem.
    """
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0]
    entries = []
    for problem in problems:
        where = f"{problem.location}  " if problem.location else ""
        hint = f"\n    {problem.hint}" if problem.hint else ""
        entries.append(f"  {where}{problem.message}{hint}")
    raise ConfigError("config.invalid", f"{len(problems)} problems\n" + "\n".join(entries))

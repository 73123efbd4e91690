"""Quantities as people write them: ``10min``, ``1.5h``, ``64MiB``. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*")


def _parse(value: Any, factors: dict[str, Any], plain: str, kind: str) -> Any:
    if not isinstance(value, str):
        return value
    match = _QUANTITY.fullmatch(value)
    unit = (match.group(2) or plain) if match else ""
    if match is None or unit not in factors:
        raise ValueError(f"{value!r} is not a {kind}; write a number with one of {', '.join(factors)}")
    return float(match.group(1)) * factors[unit]


def parse_seconds(value: Any) -> Any:
    """``"10min"`` → 600.0; numbers pass through as seconds. Raises ValueError on anything else."""
    return _parse(value, _SECONDS, "s", "duration")


def parse_bytes(value: Any) -> Any:
    """``"64MiB"`` → 67108864; numbers pass through as bytes. Raises ValueError on anything else."""
    parsed = _parse(value, _BYTES, "B", "size")
    return int(parsed) if isinstance(parsed, float) else parsed


PATTERNS = {
    parse: rf"^\s*(?:{_NUMBER})\s*(?:{'|'.join(factors)})?\s*$"
    for parse, factors in ((parse_seconds, _SECONDS), (parse_bytes, _BYTES))
}
"""What texts each of them takes, as a regular expression that editors know too."""

Seconds = Annotated[float, BeforeValidator(parse_seconds)]
"""A duration in seconds, written ``30s``, ``10min``, ``2h`` or as a number of seconds."""

Bytes = Annotated[int, BeforeValidator(parse_bytes)]
"""A size in bytes, written ``64MiB``, ``2GB`` or as a number of bytes."""


def format_bytes(n: float) -> str:
    """1536 → ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def format_seconds(s: float) -> str:
    """75.2 → ``1m15s``."""
    if s < 60:
        return f"{s:.1f} s" if s < 10 else f"{s:.0f} s"
    minutes, seconds = divmod(round(s), 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"

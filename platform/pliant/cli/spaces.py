"""What commands say of a search space without loading it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def outline(file: Path) -> dict[str, str]:
    """``pipeline`` and ``scheduler`` as the file has them; empty for what it does not have, or cannot be read."""
    from pliant.config.yamlfile import parse_yaml
    from pliant.errors import ConfigError

    try:
        content = parse_yaml(file.read_text(encoding="utf-8"), str(file), problems=[]).value
    except (ConfigError, OSError, UnicodeDecodeError):
        content = None
    return {"pipeline": _text(content, "pipeline"), "scheduler": _text(content, "sweep", "scheduler", "kind")}


def _text(value: Any, *keys: str) -> str:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""

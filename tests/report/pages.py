"""What is in a report's page, read as a browser reads it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

_LOADING = re.compile(r"url\(|@import|fetch\(|XMLHttpRequest|import\(|https?:|//[a-z]")


class Page(HTMLParser):
    """A page's text, its tags in order, and the data of its figures by name."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.source = file.read_text(encoding="utf-8")
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: dict[str, Any] = {}
        self.scripts: list[str] = []
        self._figure = ""
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text += " "
        if tag == "figure":
            self._figure = str(dict(attrs)["id"]).removeprefix("figure-")

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and self._raw:
            if attributes.get("type") == "application/json":
                self.figures[self._figure] = json.loads(data)
            else:
                self.scripts.append(data)
        elif not self._raw:
            self.text += data

    @property
    def _raw(self) -> bool:
        return self.cdata_elem is not None

    def loaded(self) -> list[str]:
        """All that a browser would fetch from elsewhere."""
        found = [
            str(value)
            for _, attributes in self.tags
            for name, value in attributes.items()
            if name in ("src", "href", "srcset", "data", "action", "poster") and value != "data:,"
        ]
        styles = re.findall(r"<style>(.*?)</style>", self.source, flags=re.DOTALL)
        assert len(styles) == 1
        return found + [m for text in [*styles, *self.scripts] for m in _LOADING.findall(_code(text))]

    def classes(self, tag: str) -> list[str]:
        """The class of every such tag."""
        return [str(attributes.get("class", "")) for name, attributes in self.tags if name == tag]


def _code(text: str) -> str:
    """A script without its comments."""
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)

"""A terminal for tests: what stands on it after all that was written."""

from __future__ import annotations

import io
import re


class Terminal(io.StringIO):
    """A terminal that knows as much as a bar needs: carriage return, newline, clearing a line, colours.

    Attributes:
        lines: what stands on it, the line with the cursor last.
        columns: its width; a longer line wraps.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.lines, self.columns, self._column = [""], columns, 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        assert "\x1b[2K" not in text, "nothing is blank before it is drawn again"
        for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", text):
            if piece == "\r":
                self._column = 0
            elif piece == "\n":
                self.lines.append("")
                self._column = 0
            elif piece == "\x1b[K":
                self.lines[-1] = self.lines[-1][: self._column]
            elif piece[0] != "\x1b":
                if self._column == self.columns:
                    self.lines.append("")
                    self._column = 0
                line = self.lines[-1].ljust(self._column)
                self.lines[-1] = line[: self._column] + piece + line[self._column + 1 :]
                self._column += 1
        return super().write(text)

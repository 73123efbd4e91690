"""A terminal for tests: what stands on it after all that was written."""

from __future__ import annotations

import io
import re


class Terminal(io.StringIO):
    """A terminal that knows as much as a bar or a table needs: carriage return, newline, up, clearing, colours.

    Attributes:
        lines: what stands on it; of a bar the line with the cursor is the last.
        columns: its width; a longer line wraps.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.lines, self.columns, self._column, self._row = [""], columns, 0, 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        assert "\x1b[2K" not in text, "nothing is blank before it is drawn again"
        for piece in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", text):
            if piece == "\r":
                self._column = 0
            elif piece == "\n":
                self._next_line()
            elif piece == "\x1b[K":
                self.lines[self._row] = self.lines[self._row][: self._column]
            elif piece == "\x1b[J":
                self.lines[self._row :] = [self.lines[self._row][: self._column]]
            elif piece.endswith("A"):
                self._row = max(self._row - int(piece[2:-1]), 0)
            elif piece[0] != "\x1b":
                if self._column == self.columns:
                    self._next_line()
                line = self.lines[self._row].ljust(self._column)
                self.lines[self._row] = line[: self._column] + piece + line[self._column + 1 :]
                self._column += 1
        return super().write(text)

    def _next_line(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self.lines):
            self.lines.append("")

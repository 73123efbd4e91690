"""What clouds say of a machine that is about to go away: a source for each thing that a metadata service can be asked.

A source is asked over and over; it answers with the notice that stands now, or with none. Notices come from documents
that stay as they are until the cloud changes its mind, so that a withdrawal is simply the next answer. A service that
does not answer, or answers nonsense, is neither: what stood before stands on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Say = Callable[[str], None]
"""Takes one line for people."""

Kind = Literal["preemption", "maintenance", "rebalance"]


@dataclass(frozen=True)
class Notice:
    """A machine that goes away.

    Args:
        kind: a spot machine taken back, maintenance that ends it, or a risk alone (``rebalance``).
        text: for people, one line.
        deadline: when it goes at the earliest, in seconds of ``time.time()``; None: not known.
        id: the cloud's own name for it, needed to acknowledge it; empty where there is none.
        slack_s: seconds after the deadline that a machine must live to have survived it.
    """

    kind: Kind
    text: str
    deadline: float | None
    id: str = ""
    slack_s: float = 60.0

    def is_over(self, now: float) -> bool:
        """Whether a machine that still runs now has survived this."""
        return self.deadline is not None and now > self.deadline + self.slack_s


class MetadataError(Exception):
    """A metadata service that did not answer, or with what it never says. Its text is the reason, for people."""


class NoticeSource(Protocol):
    """One thing that a metadata service is asked."""

    name: str
    """For people: the cloud, and what is asked where that is needed."""
    pause_s: float
    """Seconds between two questions."""

    def read(self) -> Notice | None:
        """The notice that stands now. May wait for a change, for a minute at most.

        Raises:
            MetadataError: the service did not answer, or with what it never says.
        """
        ...

    def acknowledge(self, notice: Notice) -> None:
        """Tells the cloud that the machine is ready to go; nothing where the cloud does not want to know.

        Raises:
            MetadataError: it could not be told.
        """
        ...


def watch(
    source: NoticeSource,
    changed: Callable[[Notice | None], None],
    say: Say,
    stop: threading.Event,
) -> None:
    """Asks a source until ``stop`` is set, and tells every change of what stands.

    A service that is in trouble is asked on at the same pace, since the notice may come at any moment; trouble is said
    when it begins and when it ends.
    """
    standing: Notice | None = None
    trouble = ""
    while not stop.is_set():
        try:
            found = source.read()
        except Exception as error:  # whatever it sends: the next answer may be the notice
            if not trouble:
                say(f"{source.name}: no usable answer ({error}); it is asked on")
            trouble = str(error) or type(error).__name__
        else:
            if trouble:
                say(f"{source.name}: answers again")
                trouble = ""
            if found != standing:
                standing = found
                changed(found)
        stop.wait(source.pause_s)

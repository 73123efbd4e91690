"""Which machines are gone without a word, where their workers do not answer: nobody else says so before Ray's health
checks do, which is a minute later by default."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor

from pliant.elastic.nodes import Address, silent

_AGAIN_S = 0.5
"""Between two looks at nodes that are lost."""


class Silence:
    """Asks nodes in a thread of its own; a machine that is busy may be late once, so all that are late are asked again.

    Attributes:
        lost: nodes that do not answer, by what was heard last.
    """

    def __init__(self) -> None:
        self.lost: frozenset[str] = frozenset()
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="pliant-probe")
        self._answer: Future[frozenset[str]] | None = None
        self._missed: frozenset[str] = frozenset()

    def begin(self) -> None:
        """A group has been started: what was asked about the one before means nothing."""
        self._answer, self._missed = None, frozenset()

    def ask(self, addresses: Mapping[str, Address]) -> None:
        """Asks all of these nodes, and waits for what they say."""
        missed = silent(addresses)
        self.lost = silent({name: addresses[name] for name in missed})

    def look(self, nodes: Set[str], addresses: Mapping[str, Address]) -> frozenset[str]:
        """Goes on with asking; call it several times a second.

        Args:
            nodes: those of the group whose workers do not answer.
            addresses: of all that Ray believes in.

        Returns:
            Those of the group that are gone: twice in a row they have not answered either.
        """
        if self._answer is not None and self._answer.done():
            missed = self._answer.result()
            gone = missed & self._missed
            self._answer, self._missed = None, missed
            if gone and nodes:
                self.lost |= gone
                return gone
        if self._answer is None:
            self.lost = frozenset(name for name in self.lost if name in addresses) if addresses else self.lost
            suspects = {name: addresses[name] for name in nodes if name in addresses}
            if suspects:
                self._answer = self._asking.submit(silent, suspects)
            elif self.lost and addresses:
                self._answer = self._asking.submit(self._still_lost, {name: addresses[name] for name in self.lost})
        return frozenset()

    def _still_lost(self, addresses: Mapping[str, Address]) -> frozenset[str]:
        """Nodes that were lost may answer again; then they count as new room."""
        self.lost = silent(addresses)
        time.sleep(_AGAIN_S)
        return frozenset()

"""Population based training (Jaderberg et al. 2017).

A generation ends at each milestone before the full length. There the worst quantile of the population clones one of
the best quantile, drawn at random: its checkpoint at its report, and its parameters, perturbed. The others go on as
they are. What has ended has left the population, and is not waited for.

- ``sync``: all pause at the milestone and are decided together, so that it does not matter which is faster.
- otherwise each is compared at its report with what the others have reported last, once half of them have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pliant.tune.draws import unit
from pliant.tune.schedulers.base import Base, Member, Terms, count, full_length, no_value, ordinal, ranked
from pliant.tune.schedulers.rungs import evenly
from pliant.tune.types import Decision, Params, Report, Suggestion

DOWN, UP = 0.8, 1.2
"""What a number is multiplied by when it is perturbed (Jaderberg et al. 2017, appendix A)."""


class Pbt(Base):
    """Truncation selection among trials of the same generation."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms, evenly(terms))
        self._size = terms.settings.scheduler.population
        self._sync = terms.settings.scheduler.sync
        self._begun = 0
        self._generation = 1
        """``sync``: number of the milestone at which the population is compared next."""

    @property
    def population(self) -> int | None:
        return self.terms.settings.scheduler.population

    def wants_more(self) -> bool:
        return self._begun < self._size

    def add(self, suggestion: Suggestion) -> None:
        super().add(suggestion)
        self._begun += 1

    def close(self) -> None:
        self._size = self._begun
        self._settle()

    def judge(self, member: Member, report: Report, crossed: range) -> Decision:
        if report.samples >= self.terms.length:
            return no_value(report) or full_length(report)
        if not crossed:
            return Decision(report.trial, report.samples, "continue", f"{count(report.samples)}: within a generation")
        if self._sync:
            return Decision(report.trial, report.samples, "pause", f"{self._name(member.reached)}: waits")
        return self._alone(member)

    def gone(self, member: Member, failed: bool) -> None:
        """One that never had a value leaves its place to another, as long as that one begins like all others."""
        if self._generation == 1 and not any(math.isfinite(loss) for loss in member.losses.values()):
            self._begun -= 1

    def changed(self, member: Member) -> None:
        self._settle()

    def applying(self, member: Member, decision: Decision) -> None:
        """A clone is compared again at its own next report."""
        if decision.action == "exploit":
            member.last = None

    def changes(
        self, donor: Member, trial: str, generation: int, others: Sequence[Params]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """How a clone's point differs from its donor's: factors and places, see ``Space.perturb``. Each mutable
        dimension is multiplied by 0.8 or 1.2, or drawn anew.

        Args:
            donor: who is cloned, with its point.
            trial, generation: the occasion.
            others: points with which the rest of the population goes on, as far as they are known.
        """

        def draw(what: str, name: str) -> float:
            return unit(self.terms.settings.seed, "explore", what, trial, generation, name)

        share = self.terms.settings.scheduler.resample
        names = [d.name for d in self.terms.space.dimensions if d.mutable]
        anew = [name for name in names if name not in donor.params or draw("whether", name) < share]
        factors = {name: UP if draw("factor", name) < 0.5 else DOWN for name in names}
        return factors, {name: draw("place", name) for name in anew}

    def _alive(self) -> list[Member]:
        return [m for m in self.members.values() if m.state != "over"]

    def _settle(self) -> None:
        """``sync``: decides every generation that all living members have come to."""
        if not self._sync or self._begun < self._size:
            return
        alive = self._alive()
        while self._generation < len(self._milestones) and all(m.reached >= self._generation for m in alive):
            self._decide_generation([m for m in alive if m.reached == self._generation])
            self._generation += 1

    def _decide_generation(self, here: list[Member]) -> None:
        order = self._ranked(here)
        losers, donors = self._selected(order)
        keeps = [m.params for m in here if m.id not in losers]
        for member in sorted(here, key=lambda m: m.number):
            decision = self._decision(member, order, losers, donors, keeps)
            if decision.params is not None:
                keeps.append(decision.params)
            self.due(decision)

    def _alone(self, member: Member) -> Decision:
        """Not ``sync``: one trial at its report."""
        alive = self._alive()
        reported = [m for m in alive if m.last is not None]
        order = self._ranked(reported)
        losers, donors = self._selected(order)
        donors = [d for d in donors if self.members[d].reached < len(self._milestones)]
        expected = len(alive) + max(0, self._size - self._begun)
        if len(order) < expected / 2 and member.losses[member.reached] < math.inf:
            losers = set()  # too few have reported to say who is bad
        return self._decision(member, order, losers, donors, [m.params for m in reported if m is not member])

    def _ranked(self, members: Collection[Member]) -> list[str]:
        return ranked({m.id: m.losses[m.reached] for m in members}, self.members)

    def _selected(self, order: list[str]) -> tuple[set[str], list[str]]:
        """Who clones and who is cloned, of trials from the best to the worst."""
        quantile = max(1, int(len(order) * self.terms.settings.scheduler.quantile)) if len(order) > 1 else 0
        bad = {trial for trial in order if self.members[trial].losses[self.members[trial].reached] == math.inf}
        losers = bad | set(order[len(order) - quantile :])
        return losers, [trial for trial in order[:quantile] if trial not in losers]

    def _decision(
        self, member: Member, order: list[str], losers: set[str], donors: list[str], keeps: list[Params]
    ) -> Decision:
        generation, last = member.reached, member.last
        samples = last.samples if last else 0
        place = f"{self._name(generation)}: {ordinal(order.index(member.id) + 1)} of {len(order)}"
        if member.id not in losers or (not donors and member.losses[generation] < math.inf):
            return Decision(member.id, samples, "resume" if self._sync else "continue", place)
        if not donors:
            return Decision(member.id, samples, "stop", f"no finite value at {count(samples)}, and nobody to clone")
        seed = self.terms.settings.seed
        donor = self.members[donors[int(unit(seed, "donor", member.id, generation) * len(donors))]]
        best = f"clones {donor.id}, {ordinal(order.index(donor.id) + 1)}"
        params = self.terms.space.perturb(donor.params, *self.changes(donor, member.id, generation, keeps))
        at = donor.last.samples if donor.last else 0
        return Decision(member.id, samples, "exploit", f"{place}, {best}", params, donor.id, at)

    def _name(self, generation: int) -> str:
        last = len(self._milestones)
        return f"generation {generation} of {last} ({count(self._milestones[generation - 1])})"

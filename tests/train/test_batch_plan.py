"""Micro-batches: the same pieces of the same lanes at every worker count."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pliant.train.batch_plan import micro_batch_seed, plan_step


@given(data=st.data())
def test_ranks_together_hold_the_batch_in_pieces_that_do_not_depend_on_their_number(data: st.DataObject) -> None:
    lanes = data.draw(st.integers(1, 8))
    batch = lanes * data.draw(st.integers(1, 6))
    rows = data.draw(st.integers(1, 200))
    micro = data.draw(st.integers(1, 7))
    tail = data.draw(st.sampled_from(["carry", "pad"]))
    position = data.draw(st.integers(0, rows - 1))

    def pieces(world_size: int) -> list[object]:
        plans = [
            plan_step(
                rows=rows, lanes=lanes, global_batch=batch, micro_batch=micro, tail=tail,
                epoch=2, position=position, rank=rank, world_size=world_size,
            )
            for rank in range(world_size)
        ]  # fmt: skip
        assert len({len(plan.micro_batches) for plan in plans}) == 1, "ranks must make equally many passes"
        assert len({(plan.epoch, plan.position, plan.rows) for plan in plans}) == 1
        own = [m for plan in plans for m in plan.micro_batches if m.shares]
        assert all(0 < m.rows <= micro for m in own)
        assert sum(m.rows for m in own) == plans[0].rows
        assert all(m.lane == -1 for plan in plans for m in plan.micro_batches if not m.shares)
        return sorted(own, key=lambda m: (m.lane, m.index))

    alone = pieces(1)
    for world_size in range(2, lanes + 1):
        assert pieces(world_size) == alone
    taken = Counter((s.epoch, s.lane, row) for m in alone for s in m.shares for row in range(s.start, s.stop))
    assert set(taken.values()) <= {1}


def test_drop_counts_what_it_leaves_out() -> None:
    plan = plan_step(
        rows=100, lanes=2, global_batch=32, micro_batch=8, tail="drop", epoch=0, position=96, rank=0, world_size=1
    )
    assert (plan.epoch, plan.position, plan.rows, plan.skipped) == (1, 32, 32, 4)


def test_seeds_differ_in_every_argument_and_are_pinned() -> None:
    seeds = {micro_batch_seed(*args) for args in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert micro_batch_seed(7, 1, 2, 3) == 4381879431511913717

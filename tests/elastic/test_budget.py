"""What a run bears: each kind of failure from its own budget, and none of them for ever without a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.elastic.budget import Budget, Cause, Failure, Retry, Stop

KILL = Failure("infrastructure", "worker 1 died", 7)
Charge = tuple[Failure, int | None, bool]

_CAUSES: st.SearchStrategy[Cause] = st.sampled_from(["preemption", "resize", "infrastructure", "user"])
_STEPS = st.none() | st.integers(0, 9)
_FAILURES = st.builds(Failure, _CAUSES, st.just("text"), _STEPS, st.sampled_from(["", "oom", "ValueError: x"]))
_CHARGES = st.lists(st.tuples(_FAILURES, _STEPS, st.booleans()), max_size=40)


def follow(budget: Budget, charges: Iterable[Charge]) -> tuple[Budget, list[Retry | Stop]]:
    """Charges until the first stop."""
    answers: list[Retry | Stop] = []
    for failure, committed_step, progressed in charges:
        budget, answer = budget.charge(failure, committed_step=committed_step, progressed=progressed)
        answers.append(answer)
        if isinstance(answer, Stop):
            break
    return budget, answers


def kinds(answers: list[Retry | Stop]) -> list[type]:
    return [type(answer) for answer in answers]


# ---------------------------------------------------------------- machines


def test_20_kills_with_checkpoints_between_them_are_borne() -> None:
    kills = [(Failure("infrastructure", "raylet died", step), step - 3, True) for step in range(10, 210, 10)]
    budget, answers = follow(Budget(max_failures=20, max_without_checkpoint=5), kills)
    assert kinds(answers) == [Retry] * 20
    assert (budget.failures, budget.fruitless) == (20, ())
    assert answers[-1] == Retry("20 of 20 elastic.max_failures")


def test_5_ends_without_a_checkpoint_stop_the_run_with_their_causes() -> None:
    ends = [
        Failure("infrastructure", "worker 1 died", None),
        Failure("preemption", "node ab12 went away", 41),
        Failure("user", "ValueError: no", 42, "ValueError: no"),
        Failure("resize", "room for 3 workers", 44),
        Failure("infrastructure", "no progress for 60 s", 47),
    ]
    budget = Budget(max_failures=100, max_without_checkpoint=5, committed_step=40)
    _, answers = follow(budget, [(end, 40, True) for end in ends])
    assert kinds(answers) == [Retry] * 4 + [Stop]
    assert answers[-1] == Stop(
        75,
        "5 attempts in a row ended without a new checkpoint:\n"
        "  infrastructure before the first step: worker 1 died\n"
        "  preemption at step 41: node ab12 went away\n"
        "  user at step 42: ValueError: no\n"
        "  resize at step 44: room for 3 workers\n"
        "  infrastructure at step 47: no progress for 60 s",
    )


def test_a_checkpoint_begins_the_count_anew() -> None:
    found = [40, 40, 40, 40, 45, 45, 45, 45, 45, 45]
    budget = Budget(max_failures=100, max_without_checkpoint=5, committed_step=40)
    _, answers = follow(budget, [(KILL, step, True) for step in found])
    assert kinds(answers) == [Retry] * 9 + [Stop]
    first = Budget(max_failures=100, max_without_checkpoint=1)
    assert kinds(follow(first, [(KILL, 3, True), (KILL, 3, True)])[1]) == [Retry, Stop]


def test_after_damage_every_newer_checkpoint_counts() -> None:
    """Step 40 was taken out: the next attempts start from 30, and 35 is more than they found."""
    budget = Budget(max_failures=100, max_without_checkpoint=3, committed_step=40)
    budget, _ = follow(budget, [(KILL, 30, True), (KILL, 35, True)])
    assert budget.fruitless == ()


def test_preemption_and_resize_cost_nothing() -> None:
    ends = [(Failure(cause, "", step), step, True) for step in range(300) for cause in ("preemption", "resize")][::2]
    ends += [(Failure("resize", "", step), step, True) for step in range(300, 600)]
    budget, answers = follow(Budget(max_failures=0, max_without_checkpoint=5), ends)
    assert kinds(answers) == [Retry] * 600
    assert set(answers) == {Retry("")}
    assert budget.failures == 0


def test_losses_without_notice_are_counted() -> None:
    losses = [(Failure("infrastructure", "worker 1 died", step), step, True) for step in range(1, 9)]
    _, answers = follow(Budget(max_failures=2, max_without_checkpoint=5), losses)
    assert answers == [
        Retry("1 of 2 elastic.max_failures"),
        Retry("2 of 2 elastic.max_failures"),
        Stop(4, "workers or machines were lost 3 times, elastic.max_failures is 2; at last at step 3: worker 1 died"),
    ]
    _, answers = follow(Budget(max_failures=0, max_without_checkpoint=5), losses)
    assert answers == [
        Stop(4, "workers or machines were lost once, elastic.max_failures is 0; at last at step 1: worker 1 died")
    ]


# ---------------------------------------------------------------- the user's errors


@pytest.mark.parametrize("signature", ["oom", "ValueError: no"])
def test_an_error_is_tried_again_once(signature: str) -> None:
    error = Failure("user", "ValueError: no", 12, signature)
    _, answers = follow(Budget(max_failures=0, max_without_checkpoint=5), [(error, 10, True), (error, 10, True)])
    assert answers == [Retry("tried again once"), Stop(1, "the same error twice at step 12: ValueError: no")]


def test_an_error_before_any_step_is_the_end() -> None:
    error = Failure("user", "ImportError: no module x", None, "ImportError")
    _, answers = follow(Budget(max_failures=9, max_without_checkpoint=5), [(error, None, False)])
    assert answers == [Stop(1, "ImportError: no module x")]


def test_the_same_error_is_known_again_after_others() -> None:
    error = Failure("user", "boom", 12, "ValueError: boom")
    elsewhere = Failure("user", "boom", 15, "ValueError: boom")
    other = Failure("user", "bang", 12, "ValueError: bang")
    ends = [error, KILL, elsewhere, other, error]
    _, answers = follow(Budget(max_failures=9, max_without_checkpoint=9), [(end, None, True) for end in ends])
    assert kinds(answers) == [Retry] * 4 + [Stop]
    assert answers[-1] == Stop(1, "the same error twice at step 12: boom")


# ---------------------------------------------------------------- what holds always


@given(_CHARGES, st.integers(0, 6), st.integers(1, 6), _STEPS)
def test_whatever_happens(charges: list[Charge], losses: int, fruitless: int, found: int | None) -> None:
    budget = Budget(max_failures=losses, max_without_checkpoint=fruitless, committed_step=found)
    end, answers = follow(budget, charges)
    seen = charges[: len(answers)]
    lost = [failure for failure, _, _ in seen if failure.cause == "infrastructure"]
    errors = [(f.signature, f.step) for f, _, _ in seen if f.cause == "user"]
    steps = [found, *(step for _, step, _ in seen)]
    new = [b is not None and (a is None or b > a) for a, b in pairwise(steps)]
    in_row = len(new) - max((i + 1 for i, committed in enumerate(new) if committed), default=0)
    assert end.failures == len(lost)
    assert len(end.fruitless) == in_row
    if not answers or isinstance(answers[-1], Retry):
        assert len(seen) == len(charges)
        assert len(lost) <= losses
        assert in_row < fruitless
        assert len(errors) == len(set(errors))
        assert all(progressed for failure, _, progressed in seen if failure.cause == "user")
    elif answers[-1].exit_code == 1:
        assert seen[-1][0].cause == "user"
        assert errors[-1] in errors[:-1] or not seen[-1][2]
    elif answers[-1].exit_code == 75:
        assert in_row == fruitless
        assert answers[-1].text.count("\n") == fruitless
    else:
        assert answers[-1].exit_code == 4
        assert len(lost) == losses + 1

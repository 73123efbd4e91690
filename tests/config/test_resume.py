"""What a resume may change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from pliant.config.base import Settings, setting
from pliant.config.loader import load_settings
from pliant.config.resume import Change, compare_for_resume, frozen_rule
from pliant.config.schema import leaves
from pliant.errors import ConfigError
from pliant.settings import RunConfig
from tests.config.models import Optim, Tree

TEXT = "train: {batch: 32, steps: 10}\n"


def tree(*overrides: str) -> Tree:
    return load_settings(Tree, text=TEXT, source="x.yaml", overrides=overrides).settings


def test_nothing_changed() -> None:
    changes = compare_for_resume(tree(), tree())
    assert (changes.frozen, changes.curve, changes.free) == ((), (), ())


def test_the_leaf_decides() -> None:
    changes = compare_for_resume(
        tree(), tree("optim.kind=sgd", "optim.lr=1", "optim.inner.depth=3", "seed=1", "resources.GPU=1")
    )
    assert [c.key for c in changes.frozen] == ["seed", "optim.kind"]
    assert [c.key for c in changes.curve] == ["optim.lr"]
    assert [c.key for c in changes.free] == ["resources", "optim.inner.depth"]
    assert changes.curve[0] == Change("optim.lr", 1e-3, 1.0)
    assert str(changes.free[0]) == "resources: {CPU: 1.0} → {CPU: 1.0, GPU: 1.0}"


def test_a_section_that_appears_is_compared_by_leaf() -> None:
    changes = compare_for_resume(tree(), tree("extra={depth: 3}"))
    assert [(c.key, c.old, c.new) for c in changes.free] == [("extra.depth", None, 3), ("extra.wait", None, 1.0)]


def test_a_changed_alias_goes_by_its_own_name() -> None:
    assert [str(c) for c in compare_for_resume(tree(), tree("from=x")).frozen] == ["from: null → 'x'"]


def refused(*overrides: str) -> ConfigError:
    """What a resume of ``tree()`` with overrides says."""
    frozen = frozen_rule(tree(), "seed", settle=lambda changed: changed)
    with pytest.raises(ConfigError) as caught:
        load_settings(Tree, text=TEXT, source="run.yaml", overrides=overrides, rules=[frozen])
    return caught.value


def test_frozen_changes_are_refused_with_both_values_and_the_reason() -> None:
    error = refused("optim.kind=sgd")
    assert (error.code, error.exit_code) == ("resume.frozen", 2)
    assert error.location == "override optim.kind=sgd"
    assert error.message == "optim.kind is frozen for the life of a run: it was 'adamw', found 'sgd'"
    assert error.hint == "it decides what the optimizer's state means; leave it, or start a new run"


def test_all_frozen_changes_are_listed_with_what_else_is_wrong() -> None:
    assert str(refused("optim.lr=0", "columns=[a]", "seed=1")) == (
        "error[config.invalid] 3 problems\n"
        "  override optim.lr=0  optim.lr is 0; allowed: a number above 0\n"
        "  override columns=[a]  columns is frozen for the life of a run: it was null, found ['a']\n"
        "    the run was started with it; leave it, or start a new run\n"
        "  override seed=1  seed is frozen for the life of a run: it was 0, found 1\n"
        "    it decides initialisation, order and dropout; leave it, or start a new run"
    )


def test_a_value_that_is_wrong_in_itself_is_not_called_a_change() -> None:
    assert refused("train.batch=x", "optim.kind=adam").message.count("frozen") == 0


def test_settings_that_come_or_go_between_versions_are_compared() -> None:
    class Newer(Settings):
        optim: Optim = setting(Optim(), on_resume="curve")
        width: int = setting(3, on_resume="frozen")

    class Older(Settings):
        optim: Optim = setting(Optim(), on_resume="curve")
        depth: int = setting(4, on_resume="free")

    changes = compare_for_resume(Older(), Newer())
    assert changes.frozen == (Change("width", None, 3, "the run was started with it"),)
    assert changes.free == (Change("depth", 4, None),)


def test_a_setting_that_declares_nothing_is_frozen() -> None:
    class Plain(BaseModel):
        x: int = 1

    assert [c.key for c in compare_for_resume(Plain(), Plain(x=2)).frozen] == ["x"]


def run_settings() -> Iterator[tuple[str, str]]:
    yield from ((leaf.dotted, leaf.on_resume) for leaf in leaves(RunConfig))


def test_every_setting_of_a_run_declares_what_a_resume_may_do() -> None:
    declared = dict(run_settings())
    assert len(declared) >= 55
    assert set(declared.values()) == {"free", "curve", "frozen"}
    frozen = {
        "seed",
        "run.storage",
        "data.lanes",
        "data.window",
        "data.tail",
        "train.reduction",
        "train.precision",
    }
    assert frozen <= {key for key, rule in declared.items() if rule == "frozen"}
    assert {"elastic.max_workers", "data.reader", "checkpoint.overhead"} <= {
        k for k, r in declared.items() if r == "free"
    }

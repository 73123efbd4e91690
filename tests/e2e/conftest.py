"""The same datasets and places as for the tests of training."""

from tests.train.conftest import dataset, storage, whole

__all__ = ["dataset", "storage", "whole"]

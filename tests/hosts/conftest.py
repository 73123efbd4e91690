"""The same dataset and uninterrupted run as for the tests of training."""

from tests.train.conftest import dataset, whole

__all__ = ["dataset", "whole"]

"""The same datasets and places as for the tests of training."""

from tests.train.conftest import dataset, own_s3, storage, whole

__all__ = ["dataset", "own_s3", "storage", "whole"]

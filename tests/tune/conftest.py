"""The dataset of the test pipeline, for tests that train."""

from tests.train.conftest import dataset

__all__ = ["dataset"]

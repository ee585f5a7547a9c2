"""The tiny runs of the pipelines."""

from tests.pipelines.conftest import darcy, finished, inverse

__all__ = ["darcy", "finished", "inverse"]

"""Small recipes, and a store of one of them."""

import shutil

import numpy as np
import pytest

collect_ignore_glob = ["toys/*.py"]  # equations of users: to import one registers it


SMALL = {
    "samples": 12,
    "shard": 5,  # the last of the three shards is shorter
    "problem.resolution": 32,
    "problem.initial.modes": 31,
    "problem.solver.resolution": 64,
    "splits.train": 7,  # more than one shard
    "splits.validation": 2,
    "splits.test": 2,
}
FIVE = {"samples": 5, "shard": 2, "splits.train": 3, "splits.validation": 1, "splits.test": 1}
MESHES = {  # recipes whose points differ from sample to sample, reduced
    "pipe-quick": {**FIVE, "problem.resolution": 33},
    "elasticity-quick": {**FIVE, "problem.resolution": 12},
    "elasticity-hyperelastic": {**FIVE, "problem.resolution": 12},
    "plasticity-quick": {**FIVE, "problem.resolution": 21},
    "airfoil-quick": FIVE,
}


@pytest.fixture(scope="session")
def small():
    from pdegen.recipe import load_recipe

    return load_recipe("burgers-quick").with_overrides(SMALL)


@pytest.fixture(scope="session")
def finished(small, tmp_path_factory):
    """A sealed store, to be read only."""
    from pdegen.generation.generate import generate

    return generate(small, str(tmp_path_factory.mktemp("finished") / "small.zarr"), workers=1)


@pytest.fixture
def store(finished, tmp_path):
    """A copy of it, to be changed."""
    from pdegen.store.reading import Store

    return Store(str(shutil.copytree(finished.url, tmp_path / "store.zarr")))


@pytest.fixture(scope="session")
def imported(tmp_path_factory):
    """A store of trajectories from a file of others, to be read only."""
    from pdegen.formats.importing import import_files
    from pdegen.formats.plan import ImportOptions

    folder = tmp_path_factory.mktemp("imported")
    pairs = np.random.default_rng(0).standard_normal((9, 4, 6)).astype(np.float32)
    pairs[0, 0, :3] = [-0.0, 1e-42, np.finfo(np.float32).max]
    np.save(folder / "pairs.npy", pairs)
    splits = {"train": 7, "validation": 1, "test": 1}
    declaration = ImportOptions("pairs", "pairs", grid="cell", splits=splits, times="first")
    return import_files([folder / "pairs.npy"], str(folder / "imported.zarr"), declaration)


@pytest.fixture(scope="module")
def line():
    """A proxy to an S3 server."""
    from tests.s3 import served

    with served() as line:
        yield line


@pytest.fixture
def url(line, request):
    return f"s3://data/{request.node.name}.zarr"


@pytest.fixture(scope="session")
def other(small, tmp_path_factory):
    """A sealed store of another seed, to be read only."""
    from pdegen.generation.generate import generate

    recipe = small.with_overrides({"seed": 1})
    return generate(recipe, str(tmp_path_factory.mktemp("other") / "small.zarr"), workers=1)

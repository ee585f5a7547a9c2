"""One small noise study of Darcy with all that it can have, made once; to be read only."""

from functools import partial

import pytest
import torch

from pdegen.equations.darcy import inversion
from pdegen.equations.darcy.inversion import Tikhonov, TotalVariation
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pipelines.config.experiment import load_experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.studies import inversions
from pipelines.studies.noise import NoiseStudy
from tests.once import once

CPU = torch.device("cpu")
STEPS = 6  # of total variation and Tikhonov, which are too few
EVERY = (0.0, 0.1)  # a range of levels: one training that is told them
DATA = {"samples": 20, "shard": 20, "resolution": 13, "modes": 16, "refinement": 1,
        "train": 12, "validation": 4, "test": 4}  # fmt: skip
MODEL = {
    "data.resolution": 13, "data.target_resolution": 5, "resolutions": [13], "model.width": 8,
    "model.depth": 1, "model.feedforward": 8, "training.batch": 4, "training.epochs": 2,
    "model.heads": 2,
}  # fmt: skip
METHODS = (
    "total variation",
    "Tikhonov",
    "level set",
    "maximum a posteriori",
    "maximum a posteriori, level estimated",
)


@pytest.fixture(scope="package")
def store(tmp_path_factory):
    recipe = load_recipe("darcy-quick").with_overrides(DATA)
    folder = once(
        tmp_path_factory,
        "noise-data",
        lambda folder: generate(recipe, str(folder / "d.zarr"), workers=1),
    )
    return str(folder / "d.zarr")


@pytest.fixture(scope="package")
def experiment():
    overrides = MODEL | {f"data.overrides.{key}": value for key, value in DATA.items()}
    return load_experiment("darcy-inverse-quick").with_overrides(overrides)


@pytest.fixture(scope="package", autouse=True)
def short_inversions():
    """The classical inversions as they are, but few steps, and weights by one sample."""
    with pytest.MonkeyPatch.context() as patch:
        for method in (TotalVariation, Tikhonov):
            patch.setattr(inversion, method.__name__, partial(method, iterations=STEPS))
        patch.setattr(inversions, "TUNED_ON", 1)
        yield


def a_study(experiment, store, folder, train=(0.0, 0.1, EVERY), test=(0.0, 0.1), **words):
    return NoiseStudy(
        experiment, store, folder, train, test,
        **{"seeds": 2, "inversion_samples": 2, "assumed_levels": (1.0, 3.0), "only": (), **words},
    )  # fmt: skip


@pytest.fixture(scope="package")
def finished(experiment, store, tmp_path_factory):
    def make(folder):
        study = a_study(experiment, store, folder / "s")
        study.run(CPU)
        write_noise_report(study, CPU)

    return a_study(experiment, store, once(tmp_path_factory, "noise-study", make) / "s")

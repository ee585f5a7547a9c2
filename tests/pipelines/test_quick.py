"""The quick versions of the shipped benchmarks: each has one, and it suits two cores."""

import math
from statistics import mean

import pytest

from pdegen.domains import Cloud
from pipelines.config.benchmark import Benchmark, load_benchmark, load_quick_profile
from pipelines.config.shipped import names as shipped

MOST_VALUES = 5e6  # steps x points of a training: some minutes of one core
MOST_SOLVED = 3e6  # samples x points that a solver computes: some minutes
LARGE = {"resolution"}  # grids of the published study, whose figures the documentation has


@pytest.mark.parametrize("name", shipped("benchmark"))
def test_every_benchmark_has_a_quick_version_that_is_small(name):
    benchmark = load_benchmark(name, sound=False)
    if not isinstance(benchmark, Benchmark):
        small = load_quick_profile(benchmark)
        assert small.points * small.batch <= 4096
        return
    small = benchmark.quickly().installed()
    small.check()
    for label, dataset in small.datasets.items():
        experiment = dataset.load()
        recipe, training = experiment.data.load_recipe(), experiment.training
        first, last = recipe.splits.ranges(recipe.samples)["train"]
        domain = recipe.problem.domain
        points = math.prod(domain.shape)
        if not isinstance(domain, Cloud):
            points *= mean(
                (n / domain.shape[0]) ** domain.dim for n in experiment.data.training_resolutions
            )
        steps = training.epochs * math.ceil(
            (experiment.data.samples or last - first) / training.batch
        )
        assert steps * points <= MOST_VALUES, label
        if name not in LARGE:
            assert recipe.samples * math.prod(domain.shape) <= MOST_SOLVED, label


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ono-table4", "ono-table6", "pit-figure3", "pit-table2"])
def test_a_quick_version_runs(pdegen, name):
    outcome = pdegen("benchmark", name, "--quick", "--set", "training.epochs=1")
    assert outcome.status == 0, outcome.err
    assert outcome.out[-1] == f"runs/benchmark-{name}-quick/report.html"

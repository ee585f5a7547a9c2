"""Parameters of samples from recipe to prediction, on the command line."""

import json

import numpy as np
import pytest
import torch

from operators import load_model
from operators.data import AtTime, Block, Map, Rollout, open_pairs
from operators.transforms import Normalizer
from pdegen.store.format import ParameterLaw
from pipelines.config.experiment import load_experiment
from tests.pipelines.command import SMALL, quietly

NU = "viscosity={law = 'log-uniform', low = 0.01, high = 0.1}"
TINY = ["--set", "model.modes=4", "--set", "model.width=8", "--set", "epochs=2", "--set", "batch=4"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a viscosity by sample, and an operator that is trained on it."""
    folder = tmp_path_factory.mktemp("laws")
    quietly("generate", "burgers-quick", *SMALL, "--set", NU, "--set", "times=[0.1, 0.2, 0.3]",
            "--out", folder / "store.zarr")  # fmt: skip
    quietly("train", "--model", "fno", "--data", folder / "store.zarr", *TINY,
            "--out", folder / "run")  # fmt: skip
    return folder


def test_training_takes_the_parameters_and_says_so(made, pdegen):
    outcome = pdegen("train", "--model", "fno", "--data", made / "store.zarr", *TINY, "--out", "r")
    assert "inputs a, log viscosity -> u" in outcome.err
    without = pdegen("train", "burgers-quick", "--data", made / "store.zarr",
                     *("--set", "epochs=1", "--set", "batch=4", "--set", "width=8"), "--set",
                     "resolutions=[32]", "--set", "data.resolution=32", "--out", "w")  # fmt: skip
    assert "inputs a -> u (viscosity of the store not used)" in without.err


def test_predictions_take_the_physical_number(made):
    model = load_model(made / "run/best.safetensors")
    pairs = open_pairs(str(made / "store.zarr"), "test")
    assert [bool(law and law.log) for law in pairs.parameter_laws] == [True]
    assert pairs.source["parameters"] == ["viscosity"]
    examples = Map(parameters=True).evaluation(pairs)
    a = examples.first().a
    nu = torch.from_numpy(np.asarray(pairs.first().parameters)).float()
    assert (a[..., 1] == nu).all()
    mean, std = ParameterLaw("log-uniform", 0.01, 0.1).moments
    normalized = model.predictor.input(a, None)[..., 1]
    torch.testing.assert_close(normalized, ((nu.log() - mean) / std).expand_as(normalized))
    assert model.description["task"]["parameters"] is True
    changed = torch.cat([a[..., :1], 2 * a[..., 1:]], dim=-1)
    assert not torch.equal(model.predict(a, pairs.x), model.predict(changed, pairs.x))


@pytest.mark.parametrize(
    ("task", "column"),
    [
        (Map(parameters=True), 1),
        (Rollout(history=1, parameters=True), 1),
        (Rollout(history=1, static=True, parameters=True), 2),
        (AtTime(parameters=True), 1),  # the time is last
        (Block(history=2, parameters=True), 2),
        (Rollout(history=1), None),
    ],
)
def test_tasks_know_the_channel_of_each_parameter(made, task, column):
    pairs = open_pairs(str(made / "store.zarr"), "train")
    training = task.training(pairs)
    assert list(training.input_laws) == ([] if column is None else [column])
    if column is not None:
        a = training.first().a
        known = pairs.first().parameters
        assert known is not None
        assert (a[..., column] == known[:, 0]).all()


def test_a_normaliser_with_laws_is_saved_and_restored():
    laws = {1: ParameterLaw("log-uniform", 1e-3, 0.1), 2: ParameterLaw("uniform", 1.0, 3.0)}
    for first in (Normalizer.identity(3), Normalizer.of(torch.randn(5, 8, 3))):
        normalizer = first.with_laws(laws)
        v = torch.tensor([[[0.3, 1e-2, 2.0]]])
        torch.testing.assert_close(normalizer(v, None)[..., 1:], torch.zeros(1, 1, 2))
        state = {f"input.{name}": value for name, value in normalizer.state_dict().items()}
        restored = Normalizer.from_state(state, "input")
        assert torch.equal(restored(v, None), normalizer(v, None))
    assert Normalizer.identity(3).with_laws({}).state_dict().keys() == {"mean", "std"}


def test_an_evaluation_scales_by_the_law_of_the_training(made, pdegen, tmp_path):
    pdegen(
        "generate",
        "burgers-quick",
        *SMALL,
        "--set",
        NU,
        "--set",
        "times=[0.1, 0.2, 0.3]",
        "--set",
        "viscosity.low=0.019",
        "--set",
        "viscosity.high=0.021",
        "--out",
        "one.zarr",
    )
    outcome = pdegen("evaluate", made / "run/best.safetensors", "--data", "one.zarr", "--out", "e")
    assert outcome.status == 0, outcome.err
    assert json.loads((tmp_path / "e").read_text())


@pytest.mark.parametrize("name", ["burgers-nu", "ns-nu"])
def test_the_quick_experiments_differ_in_the_law_and_the_task(name):
    conditional, single = (load_experiment(f"{name}{kind}-quick") for kind in ("", "-single"))
    assert conditional.task.parameters
    assert single.task is None or not single.task.parameters
    low, high = (
        getattr(single.data.load_recipe().problem.viscosity, end) for end in ("low", "high")
    )
    assert 1 < high / low < 1.03
    assert conditional.model == single.model
    assert conditional.training == single.training


OWN = '''
"""The decay uₜ = -rate u."""
from typing import Literal
import numpy as np
from pdegen.checks.check import Bound, StoreChecks
from pdegen.domains import Box
from pdegen.equations.base import Problem
from pdegen.equations.base import equation
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.sampling.scalars import CoefficientOrLaw, number_of
from pdegen.store.format import Physics
from pdegen.store.layout import function

@equation
class Decay(Problem):
    """u(1) for uₜ = -rate u.

    Args:
        rate: The rate. [1/time]
    """

    equation: Literal["decay"]
    rate: CoefficientOrLaw
    formula = property(lambda self: "u_t = -rate u")
    domain = property(lambda self: Box.periodic(self.resolution))

    def variables(self):
        one = function(self.domain, "a", "input", "a")
        return (one, function(self.domain, "u", "target", "u"), PARAMETERS)

    def physics(self):
        return Physics(LAWS)

    def solve(self, seed, samples, device=None):
        field = PeriodicGaussianField(sigma=50.0, tau=7.0, alpha=2.0, modes=7)
        a = field(self.domain.grids[0], seed, samples)
        u = np.exp(-number_of(self.rate)) * a
        return {"a": a.astype(np.float32), "u": u.astype(np.float32)}

    def checks(self):
        def off(values):
            exact = np.exp(-number_of(self.rate)) * values["a"]
            return abs(values["u"] - exact).max(axis=1), 1e-5
        return StoreChecks((Bound("u", "the distance from the decay", off),))
'''
RECIPE = """
name = "decay"
summary = "Decay on {points} points"
samples = 12
seed = 0
shard = 5
splits = { train = 8, validation = 2, test = 2 }
problem = { equation = "decay", resolution = 16, rate = { law = "uniform", low = 0.5, high = 2 } }
"""


@pytest.mark.parametrize(
    ("parameters", "laws", "lacking"),
    [
        ("*self.parameters()", "parameters=self.parameter_laws", ""),
        ("*()", "parameters=self.parameter_laws", "variables() lacks *self.parameters()"),
        ("*self.parameters()", "", "physics() lacks parameters=self.parameter_laws"),
    ],
)
def test_an_equation_of_ones_own_takes_laws(pdegen, tmp_path, parameters, laws, lacking):
    name = f"decay-{len(lacking)}"  # equations of two files need two names
    own = OWN.replace("PARAMETERS", parameters).replace("LAWS", laws)
    (tmp_path / "decay.py").write_text(own.replace('"decay"', f'"{name}"'))
    (tmp_path / "decay.toml").write_text(RECIPE.replace('"decay"', f'"{name}"'))
    made = pdegen("generate", "decay.toml", "--plugin", "decay.py", "--out", "s.zarr")
    if lacking:
        assert made.status == 2
        assert lacking in made.err[-1]
        return
    assert made.status == 0, made.err
    assert pdegen("verify", "s.zarr", "--plugin", "decay.py", "--deep").status == 0
    keys = pdegen("keys", "decay.toml", "--plugin", "decay.py").out
    assert any("problem.rate.law = " in line for line in keys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("burgers-quick --set viscosity={law='normal',low=1,high=2}", "viscosity.law: unknown"),
        ("burgers-quick --set viscosity={law='uniform',low=2,high=1}", "low must be below"),
        ("burgers-quick --set viscosity={law='log-uniform',low=0,high=1}", "must be greater"),
        ("burgers-quick --set viscosity={law='uniform',low=-1,high=1}", "viscosity.low: must"),
        ("burgers-quick --set viscosity.low=0.1", "belongs to a law, but viscosity is a number"),
        ("burgers-quick --set times=[{law='uniform',low=1,high=2}]", "cannot have a law"),
        ("ns-quick --set amplitude={law='uniform',low=-1,high=1}", "amplitude.low: must be at lea"),
        ("ns-quick --set dt={law='uniform',low=0.01,high=0.1}", "cannot have a law"),
        ("kuramoto-sivashinsky --set linear.diffusion={law='uniform',low=-90.0,high=-1.0}",
         "at linear.diffusion = -90: "),
        ("heat --set linear.diffusion={law='uniform',low=1.0,high=1e30}", "high must be a finite"),
    ],
)  # fmt: skip
def test_wrong_laws_end_in_one_line(refused, words, message):
    name, option, value = words.split(" ", 2)
    assert message in refused("generate", name, option, value, "--out", "s.zarr")

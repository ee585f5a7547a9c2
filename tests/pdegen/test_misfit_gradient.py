"""The gradient that learned schemes take, and who offers none."""

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.inverse.setting import Setting
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.schema import SchemaError

GRID = CellGrid(13)


@pytest.fixture(scope="module")
def setting():
    g = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 16)(GRID, 0, range(30))
    a = np.where(g >= 0, 12.0, 3.0)
    return Setting(GRID.x, a, FiniteVolume(GRID)(a))


def test_the_gradient_is_that_of_the_misfit(setting):
    problem = load_recipe("darcy-quick").with_overrides({"resolution": 13, "modes": 16}).problem
    gradient = problem.misfit_gradient(setting)
    p, direction = np.random.default_rng(0).uniform(0.2, 0.8, (2, 13, 13))
    scale = gradient.spread + 1e-3 * np.sqrt(np.mean(gradient.spread**2))

    def misfit(step):
        u = gradient.level.forward.linearise(p + step * direction).u
        r = gradient.level.observation(u) + gradient.level.error.mean - setting.u[3]
        return 0.5 * np.mean((r / scale) ** 2)

    slope = (misfit(1e-5) - misfit(-1e-5)) / 2e-5
    assert np.sum(gradient(p, setting.u[3]) * direction) == pytest.approx(slope, rel=1e-6)
    truth = gradient.fraction(setting.a[3])
    assert set(np.unique(truth)) == {0.0, 1.0}
    assert np.array_equal(gradient.coefficient(truth), setting.a[3])
    # near the truth hardly anything is left
    assert abs(gradient(truth, setting.u[3])).max() < 0.05 * abs(gradient(p, setting.u[3])).max()


@pytest.mark.parametrize(
    ("recipe", "changed"),
    [("burgers-quick", {}), ("darcy-quick", {"problem.coefficient.kind": "log-normal"})],
)
def test_an_equation_without_one_says_so(setting, recipe, changed):
    overrides = {**changed, "problem.coefficient.scale": 1.0} if changed else changed
    recipe = load_recipe(recipe).with_overrides({k: v for k, v in overrides.items()})
    with pytest.raises(SchemaError, match="offers no adjoint gradient for an unrolled scheme"):
        recipe.problem.misfit_gradient(setting)

"""Problems at the edges of what is legal: refused in one line that says why, before anything is
computed, or solved, and sound by their law."""

import re

import pytest

from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.test_checks import findings

NEVER = {  # a recipe; what replaces keys of its problem, and words of the refusal
    "advection": [({"times": [1e12]}, "rounding turns the fastest wave")],
    "airfoil-quick": [
        ({"mach": 0.95}, r"mach: must be at most 0\.9"),
        ({"mach": 0.05}, r"mach: must be at least 0\.1"),
        ({"angle": 8.0}, "angle: must be at most 5"),
        ({"resolution": 100}, "resolution"),
        ({"resolution": 230}, "resolution.*multiple of 44"),
        ({"design.amplitude": 0.3}, r"amplitude: must be at most 0\.2"),
        ({"solver.tolerance": 1e-2}, "tolerance"),
    ],
    "allen-cahn": [
        ({"linear.diffusion": -0.01}, r"linear\.diffusion of u must be >= 0, or"),
        ({"initial.low": 0.5, "initial.high": 0.5}, "the same"),
        *(({"solver.dt": dt}, r"solver\.dt") for dt in (1e-320, 5e-324, 100.0, 1e308)),
        ({"solver.dt": 1e-7}, r"solver\.dt must be at least .* at most 10,000,000"),
    ],
    "burgers-quick": [
        ({"viscosity": 1e300}, r"viscosity: .* 1e\+20"),
        *(({"initial.sigma": sigma}, "sigma: must be at") for sigma in (1e-300, 1e300)),
        ({"initial.tau": 1e300}, "tau: must be at most"),
    ],
    "burgers-shock": [
        ({"solver.dt": dt}, r"solver\.dt must be at least .* at most 10,000,000")
        for dt in (1e-9, 1e-300)
    ],
    "darcy-quick": [
        ({"coefficient.below": 0.0}, r"problem.coefficient.below: .* greater than 0, got 0.0"),
        ({"coefficient.above": -3}, r"problem.coefficient.above: .* greater than 0"),
        ({"coefficient.kind": "three-phase"}, "problem.coefficient"),
        ({"solver.refinement": 2}, "problem.solver.refinement: a refinement must be odd"),
        ({"solver.rtol": 1e-300}, r"rtol: .* 1e-15"),
        ({"solver.method": "cole-hopf"}, "problem.solver"),
        ({"resolution": 3}, "problem.resolution: must be at least 4, got 3"),
        ({"field.modes": 1}, "problem.field.modes"),
        ({"field.alpha": 1.0}, "problem.field.alpha"),
        ({"field.law": "periodic-gaussian"}, "problem.field.law"),
        ({"viscosity": 0.1}, "problem.viscosity"),
    ],
    "elasticity-quick": [
        ({"void.least": 0.5}, "least must be below 0.5, got 0.5: every void leaves the square"),
        ({"void.sigma": 1e308}, "must be at most 1e"),
        ({"resolution": 30}, "problem.resolution"),
        ({"material.poisson": 0.6}, "must be at most 0.5, got 0.6"),
        ({"material.young": 1e300}, "must be at most 1e"),
        ({"traction": 0.0}, "must be at least 1e-12"),
        ({"traction": 1e300}, "must be at most 1e"),
        ({"refinement": 9}, "must be at most 8"),
    ],
    "heat": [
        ({"linear.hyper_diffusion": 1e300}, r"hyper_diffusion: .* at most 1e\+20"),
        *(({"initial.sigma": sigma}, "sigma: must be at") for sigma in (1e-300, 1e300)),
        ({"initial.tau": 1e300}, "tau: must be at most"),
    ],
    "inviscid-burgers-quick": [
        ({"boundary": "outflw"}, r"boundary: unknown 'outflw': did you mean outflow\?"),
        ({"boundary": "wall"}, "boundary: unknown 'wall': known: periodic, outflow"),
        ({"times": [0.0]}, "times.0: must be greater than 0, got 0.0"),
        ({"times": [0.2, 0.1]}, r"times: must increase, got \[0.2, 0.1\]"),
        ({"times": []}, "times: must have 1 or more values"),
        ({"initial.length": 0.0}, "initial.length: must be greater than 0"),
        ({"initial.length": 1e300}, r"length: .* 1e\+20"),
        *(({"initial.sigma": sigma}, "sigma: must be at") for sigma in (1e-300, 1e300)),
        ({"solver.candidates": 33}, "solver.candidates: "),
        ({"solver.candidates": 64}, "initial.modes = 32 needs solver.candidates >= 264, got 64"),
        ({"solver.method": "godunov"}, "solver.method: must be 'minimum-principle'"),
    ],
    "kdv": [
        ({"length": 1e-300}, "length: must be at least"),
        ({"solver.tolerance": 1e-300}, "tolerance: must be at least"),
    ],
    "kuramoto-sivashinsky": [
        ({"linear.hyper_diffusion": 0.0}, "or hyper_diffusion > 0"),
        ({"linear.hyper_diffusion": -1.0}, "hyper_diffusion of u must"),
    ],
    "ns-quick": [
        ({"resolution": 31}, "resolution must be even and >= 8, got 31"),
        ({"resolution": 128}, "resolution must be at most solver.resolution = 48, got 128"),
        ({"solver.resolution": 47}, "solver.resolution must be even"),
        ({"initial.modes": 16}, "initial.modes = 16 need solver.resolution >= 50, got 48"),
        ({"restriction": "stride"}, "divides solver.resolution = 48, got 32: use fourier"),
        ({"restriction": "strides"}, "'fourier' or 'stride'"),
        ({"times": [1.0, 0.5]}, "times: must increase"),
        ({"times": [0.0, 0.5]}, "greater than 0"),
        ({"solver.dt": 5.0}, r"solver\.dt must be at most 0\."),
        *(({"solver.dt": dt}, r"solver\.dt must be at least .* at most 10,000,000")
          for dt in (1e-9, 5e-324)),
        ({"solver.certified": 0.1}, "solver.certified must be at least the first time"),
        ({"solver.tolerance": 1e-300}, "tolerance: must be at least"),
        ({"viscosity": 0.0}, "viscosity: must be greater than 0"),
        ({"viscosity": 1e300}, r"viscosity: .* 1e\+20"),
        ({"force.phase": 1e7}, "phase: must be at most"),
        ({"force.amplitude": 1e300}, "amplitude: must be at most"),
        *(({"initial.sigma": sigma}, "sigma: must be at") for sigma in (1e-300, 1e300)),
        ({"initial.tau": 1e300}, "tau: must be at most"),
    ],
    "pipe": [
        ({"resolution": 128}, "one more than a multiple of 8"),
        ({"resolution": 25}, "problem.resolution"),
        ({"viscosity": 0.0}, "must be at least 1e-12"),
        ({"viscosity": 1e38}, "must be at most"),
        ({"length": 0.9}, "must be at least 1"),
        ({"length": 1e5}, "must be at most"),
        ({"centre.heights": [1.0, -1.0]}, "two numbers low <= high"),
        ({"centre.slopes": [0.0, float("inf")]}, "slopes"),
        ({"refinement": 9}, "must be at most 8"),
    ],
    "plasticity-quick": [
        ({"die.gap": 5.7}, "die.gap must be below the 5.7 mm that the die comes down in 20 frames"),
        ({"die.gap": -1.0}, "must be at least 0"),
        ({"die.heights": [-1e308, 1e308]}, "must span at most ten heights of the block, 150"),
        ({"die.heights": [3.0, 1.0]}, "two numbers low <= high"),
        ({"die.points": 2}, "must be at least 3"),
        ({"frames": 60}, "comes down 17.7 mm into the block, at most 0.9 of its height of 15"),
        ({"resolution": 42}, "gives 41 and 12.3"),
        ({"resolution": 31}, "gives 30 and 9"),
        ({"speed": 60.0, "interval": 0.005}, "a hundredth of the speed of sound"),
        ({"material.density": 1e-6, "material.young": 1e9, "interval": 0.3, "speed": 1.0,
          "resolution": 2001}, "time steps, at most 10,000,000"),
        ({"material.poisson": 0.5}, "poisson"),
        ({"material.young": 100.0}, "young must be at least 20 times the yield stress"),
        ({"material.young": 1e300}, "young: must be at most"),
        ({"solver.share": 1.5}, "must be at most 0.9"),
        ({"drift": "gone"}, "'kept' or 'removed'"),
    ],
    "pulses-quick": [
        ({"speed": 1e308}, "turns"),
        ({"times": [0.0]}, "times.0: must be greater than 0, got 0.0"),
        ({"times": [0.2, 0.1]}, r"times: must increase, got \[0.2, 0.1\]"),
        ({"initial.width": [0.1, 1.0]}, "width must be below the length 1 of the circle"),
        ({"initial.width": [0.0, 0.1]}, "initial.width.0: must be greater than 0"),
        ({"initial.height": [0.8, 0.2]}, "a range is two numbers low <= high"),
        ({"initial.centre": [0.0]}, "initial.centre.1: is missing"),
        ({"initial.centre": [-1e308, 1e308]}, "turns"),
    ],
    "shock-tube-quick": [
        ({"initial.u_left": [-30.0, 1.0]}, "a vacuum develops where u_right - u_left is 6.70461"),
        ({"initial.u_left": [1e4, 1e4]}, "so that float32 resolves the pressure"),
        ({"initial.u_right": 9.0}, "and the ranges go up to 9: raise initial.u_left"),
        ({"initial.x0": [-6.0, 0.0]}, r"initial.x0 must lie in the interval \[-5.0, 5.0\]"),
        ({"initial.p_left": [4.1, 0.9]}, "a range is two numbers low <= high"),
        ({"initial.rho_right": [0.0, 1.0]}, "initial.rho_right.0: must be greater than 0"),
        ({"initial.roh_right": [0.1, 1.0]}, "did you mean problem.initial.rho_right"),
        ({"times": [0.0]}, "times.0: must be greater than 0, got 0.0"),
        ({"times": [1.0, 1.0]}, r"times: must increase, got \[1.0, 1.0\]"),
        ({"times": [1e300]}, "crosses the interval"),
        ({"gamma": 1.0}, "gamma: must be greater than 1, got 1.0"),
        ({"gamma": 1 + 1e-9}, "gamma must be at least"),
        ({"gamma": 1e4}, "gamma: must be at most"),
        ({"interval": [1.0, 1.0]}, r"interval must end after its start, got \[1.0, 1.0\]"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NEVER)
def test_what_cannot_be_is_refused_in_one_line(name):
    recipe = load_recipe(name)
    for changes, said in NEVER[name]:
        with pytest.raises(SchemaError) as error:
            recipe.with_overrides({f"problem.{key}": value for key, value in changes.items()})
        assert re.search(said, str(error.value)), (changes, str(error.value))
        assert "\n" not in str(error.value)


SOUND = {  # a recipe; how many samples are solved, and what replaces keys of its problem
    "advection": (12, [{"linear.drag": 80.0}]),
    "burgers-quick": (40, [
        {"resolution": 4},
        {"resolution": 32, "times": [0.0, 0.01, 0.5]},
        {"resolution": 16, "initial.alpha": 1.0, "initial.sigma": 1.0, "viscosity": 0.1,
         "times": [0.0, 1e-5, 1e-3]},
        {"resolution": 64, "initial.modes": 1, "initial.tau": 0.0},
        {"resolution": 1024, "initial.alpha": 5.0, "initial.sigma": 3000.0},
        {"resolution": 16, "initial.modes": 7, "times": [0.01, 0.02]},
        {"viscosity": 1e3, "times": [1e-4]},
    ]),
    "darcy-quick": (40, [
        {"resolution": 12, "field.law": "dirichlet-gaussian", "source": -2.0},
        {"resolution": 12, "solver.faces": "arithmetic", "source": 0.0},
        {"resolution": 12, "solver.faces": "arithmetic", "coefficient.above": 1e3,
         "coefficient.below": 1.0},
        {"resolution": 16, "solver.faces": "arithmetic", "solver.refinement": 1},
        {"resolution": 16, "solver.refinement": 1, "solver.rtol": 1e-11},
        {"resolution": 16, "coefficient.above": 1e8, "coefficient.below": 1.0,
         "solver.refinement": 1, "solver.rtol": 1e-6},
        {"resolution": 9, "coefficient.above": 3.0, "coefficient.below": 3.0},
        {"resolution": 8, "field.alpha": 8.0},  # samples are equal by chance
    ]),
    "darcy-lognormal": (40, [
        {"resolution": 15, "field.modes": 40, "field.law": "dirichlet-gaussian",
         "field.sigma": 30.0, "coefficient.scale": 1e-3, "solver.refinement": 3},
    ]),
    "elasticity-quick": (2, [  # displacements from 1e-24 to 1e24 are numbers of float32
        {"resolution": 12, "material.young": modulus, "traction": 1 / modulus}
        for modulus in (1e-12, 1e12)
    ]),
    "inviscid-burgers-quick": (120, [
        {"times": [0.02, 0.1, 0.6]},
        {"times": [0.02, 0.1, 0.6], "boundary": "periodic"},
        {"resolution": 16, "boundary": "periodic"},
        {"resolution": 33},
        {"initial.length": 0.02, "initial.modes": 100, "initial.sigma": 3.0},
    ]),
    "ns-quick": (4, [
        {"resolution": 8},
        {"resolution": 8, "restriction": "stride"},
        {"resolution": 16, "restriction": "stride"},
    ]),
    "pipe-quick": (6, [
        {"resolution": 33, **changes} for changes in (
            {"viscosity": 5e-4, "centre.slopes": [-0.5, 0.5], "centre.heights": [-0.1, 0.1]},
            {"viscosity": 0.5},
            {"viscosity": 1e6, "centre.slopes": [-5.0, 5.0]},
            {"length": 100.0},
            {"length": 1e4},
            {"length": 3.0, "centre.heights": [0.0, 0.0], "centre.slopes": [0.0, 0.0]},
            {"length": 1.0, "centre.heights": [-0.1, 0.1], "centre.slopes": [-0.1, 0.1]},
        )
    ]),
    "plasticity-quick": (12, [  # of few frames: elastic strains are too many to leave out
        {"resolution": 21, "frames": frames} for frames in (3, 5)
    ]),
    "pulses-quick": (200, [
        {"times": [0.1, 0.5, 7.3], "resolution": 1024},
        {"speed": -0.33, "resolution": 3},
        {"initial.width": [0.5, 0.999], "initial.centre": [-3.0, 5.0]},
        {"initial.height": [0.5, 0.5], "initial.centre": [0.0, 0.0]},
    ]),
    "shock-tube-quick": (40, [
        {"resolution": 2048},
        {"times": [0.1, 0.5, 1.5, 4.0]},
        {"resolution": 12},
        {"gamma": 5 / 3, "initial.u_left": [-3.0, 3.0]},
        {"initial.p_right": [0.05, 20.0], "initial.rho_right": [0.1, 20.0]},
        {"initial.p_right": [1e-12, 1e-12]},
        {"initial.u_left": [3e2, 3e2], "times": [1e-3]},
        {"initial.u_left": [-6.7, -6.6], "interval": [-40.0, 40.0]},  # next to a vacuum
        {"initial.u_left": [0.0, 0.0], **{f"initial.{key}": [1.0, 1.0] for key in  # at rest
            ("rho_left", "rho_right", "p_left", "p_right")}},
        # all waves in the cell of the shock, or contact and shock in one
        *({"resolution": n, "times": [t]} for n in (16, 64, 256)
          for t in (1e-12, 1e-3, 0.01, 0.05)),
    ]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"), [(name, changes) for name, (_, rows) in SOUND.items() for changes in rows]
)
def test_what_is_unusual_is_solved_and_sound(name, changes):
    """Of all samples, and of one alone."""
    overrides = {f"problem.{key}": value for key, value in changes.items()}
    problem = load_recipe(name).with_overrides(overrides).problem
    values = problem.compute(0, range(SOUND[name][0]))
    assert findings(problem.checks(), values) == []
    assert findings(problem.checks(), {key: value[:1] for key, value in values.items()}) == []

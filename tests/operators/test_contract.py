"""The contract of every registered operator, in every dimension that it supports.

The claims themselves are in `operators.testing`. On which domains an operator must keep them,
tests/operators/test_contract_domains.py has.
"""

from functools import cache
from typing import get_args

import pytest
import torch

from operators.registry import OPERATORS, build_operator
from operators.testing import checks
from operators.testing.checks import functions, points, settled
from pdegen.schema import SchemaError
from pipelines.config.declared import MODELS, parse_model
from tests.operators.cases import (
    ALL,
    CASES,
    DIMS,
    FIRST,
    PLAIN,
    QUICK,
    arguments,
    built,
    declared,
    made,
    shallow,
)

# all layers of each operator in its lowest dimension, and in those from 2 on
LOWEST = {(label, min(dims)) for label, dims in DIMS.items()}
HIGHEST = {(label, dim) for label, dim in ALL if dim > 1 or DIMS[label] == [1]}
# the families that learn in `make test`, with learning rates and steps that are enough on a line;
# the others learn in `make validate`
FAMILIES = {
    "galerkin-transformer": (5e-3, 250), "fno": (1e-2, 150), "deeponet": (3e-3, 250),
    "ono": (5e-3, 500), "pit": (3e-3, 200), "transolver": (5e-3, 250), "mwt": (5e-3, 150),
    "unet": (5e-3, 200),
}  # fmt: skip
LEARN = {place for place in FIRST if CASES[place[0]].name in FAMILIES}


def those(applies=lambda case: True, quick=QUICK, highest=3):
    """The cases that a test is for, in each dimension; slow are those that are not quick."""
    chosen = [
        pytest.param(label, dim, marks=() if (label, dim) in quick else pytest.mark.slow)
        for label, dim in ALL
        if applies(CASES[label]) and dim <= highest
    ]
    return pytest.mark.parametrize(("label", "dim"), chosen, ids=lambda value: str(value))


every = those()


@cache
def evaluated(label, dim):
    """(the operator after some batches, a, x) of a case, which no test may change."""
    a, x = functions(dim), points(dim)
    model = settled(made(label, dim), a, x).requires_grad_(False)
    return model, a, x


def test_every_attention_of_every_operator_is_here():
    words = {
        (name, word)
        for name, model in MODELS.items()
        if "attention" in model.model_fields
        for word in get_args(model.model_fields["attention"].annotation)
    }
    assert words
    found = {(CASES[label].name, arguments(label).get("attention")) for label in CASES}
    assert {(name, word) for name, word in found if word} == words


@every
@pytest.mark.usefixtures("shapes")
def test_the_gradient_reaches_every_parameter(label, dim):
    checks.gradient_reaches_every_parameter(made(label, dim), functions(dim), points(dim))


@every
def test_evaluation_is_deterministic(label, dim):
    """That a batch equals its samples, test_contract_domains.py shows on each kind of domain."""
    checks.evaluation_is_deterministic(*evaluated(label, dim))


@those(quick=HIGHEST & QUICK)
def test_a_copy_and_a_checkpoint_are_bit_equal(label, dim, tmp_path):
    a, x = functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32)
    model = settled(made(label, dim, torch.float32, **shallow(label)), a, x)
    settings = {"name": CASES[label].name, **CASES[label].settings, **shallow(label)}
    described = {"model": settings, "in_channels": 1, "out_channels": 1, "dim": dim}
    checks.saves_and_loads(model, a, x, described, build_operator, tmp_path)


@those(lambda case: not case.foreign)  # that keeps coordinates of the precision it saw first
def test_single_precision_agrees_with_double(label, dim):
    checks.single_precision_agrees_with_double(*evaluated(label, dim))


@those(lambda case: not case.foreign, FIRST)  # whose own code breaks the graph
def test_it_compiles(label, dim):
    a, x = functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32)
    few = {"cno": {"levels": 1}, "mwt": {"coarsest": 2}}.get(CASES[label].name, {})
    model = settled(made(label, dim, torch.float32, **shallow(label), **few), a, x)
    # a step of Galerkin transformers is compiled in test_step.py
    gradients = CASES[label].name in ("fno", "deeponet", "ono", "transolver")
    checks.compiles(model, a, x, "aot_eager" if gradients else "eager")


@those(quick=HIGHEST & QUICK)
def test_a_step_never_waits_for_values(label, dim):
    """On a line, a value that is asked for breaks the graph of `test_it_compiles` too, for the one
    variant of each operator that it compiles."""
    device = "cpu" if CASES[label].foreign else "meta"
    a, x = functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32)
    checks.step_never_waits(made(label, dim, torch.float32, **shallow(label)), a, x, device)


@those(lambda case: not case.no_limit, LOWEST, highest=2)  # 64^3 points are too many
def test_values_converge_as_the_grid_is_refined(label, dim):
    """Or the table says why not."""
    smooth = "coordinates" in arguments(label)
    model = made(label, dim, **({"coordinates": "periodic"} if smooth else {})).eval()
    checks.converges(model)


@those(lambda case: case.shifts is not None)
def test_it_commutes_with_shifts_where_the_mathematics_does(label, dim):
    a, x = functions(dim), points(dim)
    model = settled(made(label, dim, **CASES[label].shifts), a, x)
    moved = model(a.roll(5, dims=1), x)
    torch.testing.assert_close(moved, model(a, x).roll(5, dims=1), rtol=1e-7, atol=1e-7)


@those(quick=FIRST)
def test_input_of_another_shape_is_refused(label, dim):
    checks.other_shapes_are_refused(made(label, dim))


@every
def test_points_of_the_output_are_met_or_refused(label, dim):
    model = made(label, dim).eval()
    assert model.other_points == CASES[label].elsewhere
    checks.output_points_are_met_or_refused(model, functions(dim), points(dim))


@pytest.mark.parametrize("label", PLAIN.values())
def test_impossible_settings_are_refused(label):
    model = declared(label)
    for key in [k for k, v in model.arguments.items() if type(v) is int and v > 0]:
        with pytest.raises(SchemaError, match=key):
            parse_model({**model.model_dump(), key: -1})
    with pytest.raises(SchemaError, match="unknown preset 'absent'"):
        parse_model({"name": model.name, "preset": "absent"})
    with pytest.raises(
        ValueError, match=r"supports domains of dimension .*, the data have dimension 4"
    ):
        model.build(1, 1, 4)
    assert set(model.dims()) <= set(model.operator.dims) <= {1, 2, 3}


@those(quick=LEARN)
def test_it_overfits_eight_samples(label, dim):
    case = CASES[label]
    torch.manual_seed(0)
    model = built(label, dim, **case.learns)
    steps = case.steps if dim == 1 else case.longer * case.steps
    lr, steps = FAMILIES[case.name] if (label, dim) in LEARN else (case.lr, steps)
    # Transolver needs 1000 steps for its own bound, which its slow cases reach
    reaches = 5e-2 if case.name == "transolver" and steps < case.steps else case.reaches
    checks.overfits(model, lr, steps, reaches, case.evaluates)


@pytest.mark.parametrize(
    ("name", "preset"),
    [(name, preset) for name, model in MODELS.items() for preset in model.operator.presets],
)
def test_presets_have_the_published_number_of_parameters(name, preset):
    """Built from the settings themselves; test_settings.py reads the files of presets."""
    published = MODELS[name].operator.presets[preset]
    with torch.device("meta"):
        model = OPERATORS[name].build(published.settings, *published.channels, published.dim)
    assert model.parameter_count == published.parameters

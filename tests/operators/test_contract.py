"""The contract of every registered operator, in every dimension that it supports.

On which domains it must do it, tests/operators/test_contract_domains.py has.
"""

import copy
from functools import cache
from typing import get_args

import pytest
import torch

from operators.base import check_input
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint, saving_checkpoint
from operators.training.recording import Watch
from operators.transforms import Normalizer, Predictor
from pdegen.schema import SchemaError
from pipelines.config.models import MODELS, parse_model
from tests.operators.cases import (
    ALL,
    CASES,
    DIMS,
    FIRST,
    PLAIN,
    QUICK,
    declared,
    functions,
    made,
    points,
)

# all layers of each operator in its lowest dimension
LOWEST = {(label, min(dims)) for label, dims in DIMS.items()}
# the families that learn in `make test`; the others do in `make validate`
FAMILIES = ("galerkin-transformer", "fno", "deeponet", "ono", "pit", "transolver", "mwt", "unet")
LEARN = {place for place in FIRST if CASES[place[0]].name in FAMILIES}


def those(applies=lambda case: True, quick=QUICK):
    """The cases that a test is for, in each dimension; slow are those that are not quick."""
    chosen = [
        pytest.param(label, dim, marks=() if (label, dim) in quick else pytest.mark.slow)
        for label, dim in ALL
        if applies(CASES[label])
    ]
    return pytest.mark.parametrize(("label", "dim"), chosen, ids=lambda value: str(value))


every = those()


def settled(model, a, x):
    """The model in evaluation mode, after three batches for its running averages."""
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(a, x)
    return model.eval()


@cache
def evaluated(label, dim):
    """(the operator after some batches, a, x, u) of a case, which no test may change."""
    a, x = functions(dim), points(dim)
    model = settled(made(label, dim), a, x).requires_grad_(False)
    return model, a, x, model(a, x)


def test_every_registered_operator_is_here():
    assert {case.name for case in CASES.values()} == MODELS.keys()


def test_every_attention_of_every_operator_is_here():
    words = {
        (name, word)
        for name, model in MODELS.items()
        if "attention" in model.model_fields
        for word in get_args(model.model_fields["attention"].annotation)
    }
    assert words
    found = {(CASES[label].name, declared(label).arguments.get("attention")) for label in CASES}
    assert {(name, word) for name, word in found if word} == words


@every
@pytest.mark.usefixtures("shapes")
def test_the_gradient_reaches_every_parameter(label, dim):
    model = made(label, dim).eval()  # in training a batch norm makes the bias before it void
    model(functions(dim), points(dim)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@every
def test_evaluation_is_deterministic_and_a_batch_equals_its_samples(label, dim):
    """It changes neither its state nor random numbers: a training that is evaluated is the same."""
    model, a, x, u = evaluated(label, dim)
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert torch.equal(model(a, x), u)
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    singles = torch.cat([model(one[None], x) for one in a])
    torch.testing.assert_close(singles, u, rtol=1e-9, atol=1e-9)


@every
def test_a_copy_and_a_checkpoint_are_bit_equal(label, dim, tmp_path):
    a, x = functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32)
    model = settled(made(label, dim, torch.float32), a, x)
    u = model(a, x)
    assert torch.equal(copy.deepcopy(model)(a, x), u)
    described = {"model": declared(label).model_dump(mode="json"), "in_channels": 1,
                 "out_channels": 1, "dim": dim}  # fmt: skip
    predictor = Predictor(model, Normalizer.identity(1), Normalizer.identity(1))
    saving_checkpoint(tmp_path / "m.safetensors", predictor, {"operator": described})()
    loaded, _ = load_checkpoint(tmp_path / "m.safetensors", build_operator)
    assert torch.equal(loaded.operator(a, x), u)


@those(lambda case: not case.foreign)  # that keeps coordinates of the precision it saw first
def test_single_precision_agrees_with_double(label, dim):
    model, a, x, u = evaluated(label, dim)
    v = copy.deepcopy(model).float()(a.float(), x.float())
    assert v.dtype == torch.float32
    # rounding, amplified by the Cholesky factor of ONO
    assert (v - u).norm() / u.norm() < 2e-3


@those(lambda case: not case.foreign, FIRST)  # whose own code breaks the graph
def test_it_compiles(label, dim):
    a, x = functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32)
    model = settled(made(label, dim, torch.float32), a, x)
    torch.compiler.reset()
    # gradients are traced too in those that learn
    backend = "aot_eager" if (label, dim) in LEARN else "eager"
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    expected = model(a, x).detach()
    size = float(expected.abs().max())  # random features lose digits everywhere
    torch.testing.assert_close(compiled(a, x), expected, rtol=1e-4, atol=1e-4 * size)


@every
def test_a_step_never_waits_for_values(label, dim):
    """So that a GPU runs it as one recorded graph. In place of one: tensors without values, of
    which any that is asked for is an error, and any copy from the processor is seen."""
    device = "cpu" if CASES[label].foreign else "meta"
    a, x = (
        v.to(device)
        for v in (functions(dim, dtype=torch.float32), points(dim, dtype=torch.float32))
    )
    model = made(label, dim, torch.float32).train().to(device)
    model(a, x)  # what is made once and kept
    with Watch() as watch:
        model(a, x).square().mean().backward()
    assert watch.waits == set()


@those(lambda case: not case.no_limit, LOWEST)
def test_values_converge_as_the_grid_is_refined(label, dim):
    """Halving the spacing of a smooth function changes little; or the table says why not."""
    smooth = "coordinates" in declared(label).arguments
    model = made(label, dim, **({"coordinates": "periodic"} if smooth else {})).eval()

    def values(n):
        x = points(dim, n)
        wave = torch.sin(2 * torch.pi * x).prod(-1, keepdim=True)[None] + 0.3
        with torch.no_grad():
            return model(wave, x)[(0, *[slice(None, None, n // first)] * dim)]

    first = 32 if dim == 1 else 16
    coarse, fine, finest = values(first), values(2 * first), values(4 * first)
    change = (finest - fine).norm() / finest.norm()
    assert change < 0.05
    assert change < 0.8 * (fine - coarse).norm() / finest.norm() + 1e-6


@those(lambda case: case.shifts is not None)
def test_it_commutes_with_shifts_where_the_mathematics_does(label, dim):
    a, x = functions(dim), points(dim)
    model = settled(made(label, dim, **CASES[label].shifts), a, x)
    moved = model(a.roll(5, dims=1), x)
    torch.testing.assert_close(moved, model(a, x).roll(5, dims=1), rtol=1e-7, atol=1e-7)


@those(quick=FIRST)
def test_input_of_another_shape_is_refused(label, dim):
    model, x = made(label, dim), points(dim)
    clouds = "cloud" in model.domains and dim == 2
    for a, message in (
        (torch.zeros(2, *[16] * dim, 2, dtype=torch.float64), "expected input of shape"),
        (
            torch.zeros(2, *[16] * (3 - dim), 1, dtype=torch.float64),
            "expected coordinates of shape" if clouds else "expected input of shape",
        ),
        (torch.zeros(2, *[15] * dim, 1, dtype=torch.float64), "expected coordinates of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            check_input(model, a, x)


@every
def test_points_of_the_output_are_met_or_refused(label, dim):
    model, a, x = made(label, dim).eval(), functions(dim), points(dim)
    y = x[tuple(slice(None, None, 2) for _ in range(dim))] + 0.01
    if CASES[label].elsewhere:
        assert model(a, x, y).shape == (3, *y.shape[:-1], 1)
    else:
        with pytest.raises(ValueError, match="y must be None"):
            model(a, x, y)


@pytest.mark.parametrize("label", PLAIN.values())
def test_impossible_settings_are_refused(label):
    model = declared(label)
    for key in [k for k, v in model.arguments.items() if type(v) is int and v > 0]:
        with pytest.raises(SchemaError, match=key):
            parse_model({**model.model_dump(), key: -1})
    with pytest.raises(SchemaError, match="unknown preset 'absent'"):
        parse_model({"name": model.name, "preset": "absent"})
    with pytest.raises(
        ValueError, match=r"supports domains of dimension .*, the data have dimension 3"
    ):
        model.build(1, 1, 3)
    assert set(model.dims()) <= set(model.operator.dims) <= {1, 2}


@those(quick=LEARN)
def test_it_overfits_eight_samples(label, dim):
    """A map that is local and not: u = a² - ½ ∫ a²."""
    case, n = CASES[label], 32 if dim == 1 else 16
    torch.manual_seed(0)
    model = declared(label, **case.learns).build(1, 1, dim)
    x = points(dim, n, torch.float32)
    phase = torch.arange(8.0)[:, None] / 8
    wave = torch.sin(2 * torch.pi * (x.sum(-1)[None] + phase.reshape(8, *[1] * dim)))
    a = (wave * (1 + phase.reshape(8, *[1] * dim)))[..., None]
    u = a.square()
    u = u - 0.5 * u.flatten(1).mean(1).reshape(8, *[1] * (dim + 1))
    model.adapt([u], x)
    optimizer = torch.optim.Adam(model.parameters(), lr=case.lr)
    steps = case.steps if dim == 1 else case.longer * case.steps
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def error(found):
        return ((found - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)).mean()

    for _ in range(steps):
        learned = error(model(a, x))
        optimizer.zero_grad()
        learned.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        evaluated, constant = error(model.eval()(a, x)), error(u.mean(0))
        learned = learned.detach()
    assert float(learned) < case.reaches
    assert float(evaluated) < (case.evaluates or case.reaches)
    assert float(evaluated) < 0.5 * float(constant)  # what the mean of the targets gets


@pytest.mark.parametrize(
    ("name", "preset"),
    [(name, preset) for name, model in MODELS.items() for preset in model.operator.presets],
)
def test_presets_have_the_published_number_of_parameters(name, preset):
    published = MODELS[name].operator.presets[preset]
    with torch.device("meta"):
        model = parse_model({"name": name, "preset": preset}).build(
            *published.channels, published.dim
        )
    assert model.parameter_count == published.parameters

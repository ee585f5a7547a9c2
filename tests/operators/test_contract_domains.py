"""Every operator on every domain that it declares; what it does not declare, it refuses."""

import copy
from functools import cache

import pytest
import torch

from operators.base import check_domain, check_input
from operators.models.deeponet import DeepONet
from operators.models.pit import PiT
from pdegen.domains import Box, Cloud, Curvilinear, NodalGrid, PeriodicGrid
from pipelines.config.models import parse_model
from tests.operators.cases import ALL, CASES, QUICK

# no axis is as long as another; sensors of DeepONet, 16 or 12 along each, are among the points
BOXES = {"periodic": (32, 16), "cell": (36, 12), "nodal": (23, 12)}
COUNTS = (40, 33, 17)  # points of the samples of a padded cloud
SHARED = [*BOXES, "curvilinear", "cloud"]
WAYS = [*SHARED, "curvilinear by sample", "cloud by sample", "cloud padded"]


DOMAINS = {
    **{kind: getattr(Box, kind)(4, 4) for kind in BOXES},
    "curvilinear": Curvilinear.of(Box.cell(4, 4).points),
    "cloud": Cloud.of(Box.cell(4, 4).points.reshape(16, 2)),
}


def kind_of(way):
    return way.split()[0]


@cache
def shared(label, dim, kind):
    """The operator of a case on a kind of domain, which no test may change."""
    torch.manual_seed(1)
    return parse_model(
        {"name": CASES[label].name, **CASES[label].settings, **CASES[label].on.get(kind, {})}
    ).build(1, 1, dim)


def built(label, dim, kind):
    return copy.deepcopy(shared(label, dim, kind))


def made(label, dim, kind):
    """The same with its weights shaken, in float64."""
    model = built(label, dim, kind).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    if not model.points_by_sample:  # else no operator takes anything
        x = points(kind, dim)
        model.adapt([torch.randn(20, *x.shape[:-1], 1).double()], x)
    return model


def points(way, dim):
    """Positions: (*grid, dim), or by sample (3, *grid, dim)."""
    torch.manual_seed(2)
    kind, samples = kind_of(way), () if way in SHARED else (3,)
    if kind == "cloud":
        return torch.rand(*samples, 40, dim, dtype=torch.float64)
    if kind in BOXES:
        return torch.from_numpy(getattr(Box, kind)(*BOXES[kind][:dim]).points)
    x = torch.from_numpy(Box.cell(*(18, 12)[:dim]).points)
    bend = 0.1 * torch.rand(*samples, *[1] * dim, dim, dtype=torch.float64)
    return x + bend * torch.sin(torch.pi * x).prod(-1, keepdim=True)


def settled(model, *inputs):
    """The model in evaluation mode, after two batches for its running averages."""
    model.train()
    with torch.no_grad():
        for _ in range(2):
            model(*inputs)
    return model.eval()


def param(label, dim, *way):
    slow = () if (label, dim) in QUICK else pytest.mark.slow
    return pytest.param(label, dim, *way, id="-".join(map(str, (label, dim, *way))), marks=slow)


def takes(label, dim, way):
    """Whether the operator of a case declares that it takes such points."""
    model = shared(label, dim, kind_of(way) if kind_of(way) in CASES[label].on else "periodic")
    return (
        kind_of(way) in model.domains
        and (model.points_by_sample or way in SHARED)
        and (model.masks or way != "cloud padded")
    )


DECLARED = [param(*place, way) for place in ALL for way in WAYS if takes(*place, way)]


@pytest.mark.parametrize(("label", "dim", "way"), DECLARED)
def test_a_batch_equals_its_samples_and_padding_changes_nothing(label, dim, way):
    """Values and gradients; a sample alone has points that a batch shares, and no padding."""
    x, padded = points(way, dim), way == "cloud padded"
    by_sample = way not in SHARED
    batch = 3 if by_sample else 2
    a = torch.randn(batch, *x.shape[int(by_sample) : -1], 1, dtype=torch.float64)
    counts = COUNTS if padded else (a.shape[1],) * batch
    mask = torch.arange(a.shape[1]) < torch.tensor(counts)[:, None] if padded else None
    model = settled(made(label, dim, kind_of(way)), a, x, None, mask)

    def gradients(loss):
        parameters = list(model.parameters())
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
        ]

    def part(values):  # of a batch, what is no padding
        return [one[:n] for one, n in zip(values, counts, strict=True)]

    with torch.set_grad_enabled(by_sample):
        found = model(a, x, None, mask)
        assert found.shape == a.shape
        alone = [
            model(one[None], x[i][:n] if by_sample else x)[0]
            for i, (one, n) in enumerate(zip(part(a), counts, strict=True))
        ]
    for one, batched in zip(alone, part(found), strict=True):
        torch.testing.assert_close(batched, one, rtol=1e-8, atol=1e-9)
    if by_sample:
        losses = [sum(one.square().sum() for one in values) for values in (part(found), alone)]
        torch.testing.assert_close(*map(gradients, losses), rtol=1e-6, atol=1e-7)
    if padded:
        noise = torch.randn(*mask.shape, 1 + dim, dtype=torch.float64)
        other = torch.where(mask[..., None], torch.cat([a, x], -1), noise)
        again = model(other[..., :1], other[..., 1:], None, mask)
        for one, batched in zip(part(again), part(found), strict=True):
            torch.testing.assert_close(one, batched, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("label", "dim"), [param(*place) for place in ALL])
def test_other_domains_are_refused_in_one_line(label, dim):
    """Where the data are matched with the operator, and where it is called."""
    model, x = made(label, dim, "periodic"), points("curvilinear by sample", dim)
    a = torch.zeros(3, *x.shape[1:-1], 1, dtype=torch.float64)
    for kind, domain in DOMAINS.items():
        if kind in model.domains:
            check_domain(model, domain)
        else:
            with pytest.raises(ValueError, match=f"takes .* domains, not {kind} ones"):
                check_domain(model, domain)
    if not model.points_by_sample:
        with pytest.raises(ValueError, match="needs points that all samples share"):
            check_input(model, a, x)
    if not model.masks:
        with pytest.raises(ValueError, match="needs the same number of points"):
            check_input(model, a, x[0], None, torch.ones(a.shape[:-1], dtype=torch.bool))


def test_data_and_operator_are_matched_by_domain_points_and_padding():
    model, cloud = DeepONet(dim=2, sensors=40), Cloud((40,), 2)
    with pytest.raises(ValueError, match="takes cell, nodal, periodic domains, not cloud ones"):
        check_domain(model, cloud)
    model.domains = {"cloud"}  # and nothing else
    with pytest.raises(ValueError, match="DeepONet with these settings needs points that all"):
        check_domain(model, cloud)
    model = DeepONet(dim=2, sensors=40, sensor_grid="points")
    check_domain(model, cloud)
    with pytest.raises(ValueError, match="needs the same number of points in all samples"):
        check_domain(model, cloud, padded=True)
    model.domains = {"periodic"}
    with pytest.raises(ValueError, match="not nodal ones"):
        check_domain(model, Box((PeriodicGrid(4), NodalGrid(5))))


def test_shapes_of_clouds_masks_and_output_points_are_checked():
    model = PiT(dim=2, latent=4)
    a, x = torch.zeros(3, 40, 1), torch.zeros(40, 2)
    with pytest.raises(
        ValueError, match=r"\(batch, n1, n2, 1\) or \(batch, n, 1\), got \(3, 40, 2"
    ):
        check_input(model, torch.zeros(3, 40, 2), x)
    with pytest.raises(ValueError, match=r"a mask of shape \(3, 40\), got \(40,\)"):
        check_input(model, a, x, None, torch.ones(40, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(m1, m2, 2\) or \(m, 2\), got \(3, 40, 1\)"):
        check_input(model, a, x, torch.zeros(3, 40, 1))
    with pytest.raises(ValueError, match=r"\(3, m1, m2, 2\) or \(3, m, 2\), got \(40, 2\)"):
        check_input(model, a, x.expand(3, -1, -1), x)


# those that take other points than those that they were adapted to
CLOUDS = [place for place in ALL if takes(*place, "cloud by sample")]


@pytest.mark.parametrize(("label", "dim"), [param(*place) for place in CLOUDS])
def test_a_permutation_of_the_points_permutes_the_values(label, dim):
    """Or the table says why not."""
    model, x, a = made(label, dim, "cloud"), points("cloud", dim), torch.randn(2, 40, 1).double()
    model, order = settled(model, a, x), torch.randperm(40)
    found, expected = model(a[:, order], x[order]), model(a, x)[:, order]
    same = torch.allclose(found, expected, rtol=1e-8, atol=1e-9)
    assert same == (not CASES[label].ordered)


@pytest.mark.usefixtures("shapes")
@pytest.mark.parametrize(
    ("label", "dim"), [param(*place) for place in CLOUDS if shared(*place, "cloud").other_points]
)
def test_each_sample_can_be_asked_at_points_of_its_own(label, dim):
    """Padding of its input has no influence on that, either."""
    model, x = made(label, dim, "cloud"), points("cloud by sample", dim)
    a, y = torch.randn(3, 40, 1).double(), torch.rand(3, 7, dim).double()
    counts = COUNTS if model.masks else (40,) * 3
    mask = torch.arange(40) < torch.tensor(counts)[:, None] if model.masks else None
    model = settled(model, a, x, y, mask)
    found = model(a, x, y, mask)
    alone = [model(a[i : i + 1, :n], x[i, :n], y[i])[0] for i, n in enumerate(counts)]
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-8, atol=1e-9)
    assert model(a, x[0], y[0]).shape == (3, 7, 1)

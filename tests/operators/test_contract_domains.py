"""Every operator on every domain that it declares; what it does not declare, it refuses."""

import copy
from functools import cache

import pytest
import torch

from operators.base import check_domain, check_input
from operators.models.deeponet import DeepONet
from operators.models.pit import PiT
from operators.testing import ContractError, domains
from operators.testing.checks import shaken
from operators.testing.domains import kind_of, points_of
from pdegen.domains import Box, Cloud, NodalGrid, PeriodicGrid
from tests.operators import cases
from tests.operators.cases import ALL, CASES, PLAIN, QUICK, shallow


@cache
def shared(label, dim, kind):
    """The operator of a case on a kind of domain, which no test may change."""
    torch.manual_seed(1)
    return cases.built(label, dim, **shallow(label), **CASES[label].on.get(kind, {}))


def built(label, dim, kind):
    return copy.deepcopy(shared(label, dim, kind))


def made(label, dim, kind):
    """The same with its weights shaken, in float64."""
    model = built(label, dim, kind).double()
    torch.manual_seed(1)
    shaken(model)
    if not model.points_by_sample:  # else no operator takes anything
        x = points_of(kind, dim)
        model.adapt([torch.randn(20, *x.shape[:-1], 1).double()], x)
    return model


# domains on which other layers behave differently; the rest is slow
OTHERS = ("nodal", "curvilinear by sample", "cloud padded")


def param(label, dim, *way):
    quick = (label, dim) in QUICK and (label in PLAIN.values() or set(way) <= {*OTHERS})
    slow = () if quick else pytest.mark.slow
    return pytest.param(label, dim, *way, id="-".join(map(str, (label, dim, *way))), marks=slow)


def takes(label, dim, way):
    """Whether the operator of a case declares that it takes such points."""
    kind = kind_of(way) if kind_of(way) in CASES[label].on else "periodic"
    return domains.takes(shared(label, dim, kind), way)


DECLARED = [param(*place, way) for place in ALL for way in domains.WAYS if takes(*place, way)]


@pytest.mark.parametrize(("label", "dim", "way"), DECLARED)
def test_a_batch_equals_its_samples_and_padding_changes_nothing(label, dim, way):
    """Values and gradients; a sample alone has points that a batch shares, and no padding."""
    model = made(label, dim, kind_of(way))
    domains.batch_equals_its_samples_and_padding_changes_nothing(model, way)


@pytest.mark.parametrize(("label", "dim"), [param(*place) for place in ALL])
def test_other_domains_are_refused_in_one_line(label, dim):
    """Where the data are matched with the operator, and where it is called."""
    domains.other_domains_are_refused(made(label, dim, "periodic"))


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
    if CASES[label].ordered:
        with pytest.raises(ContractError, match="depend on the order of its points"):
            domains.permutes_with_the_points(made(label, dim, "cloud"))
    else:
        domains.permutes_with_the_points(made(label, dim, "cloud"))


@pytest.mark.usefixtures("shapes")
@pytest.mark.parametrize(
    ("label", "dim"), [param(*place) for place in CLOUDS if shared(*place, "cloud").other_points]
)
def test_each_sample_can_be_asked_at_points_of_its_own(label, dim):
    """Padding of its input has no influence on that, either."""
    domains.samples_have_points_of_their_own(made(label, dim, "cloud"))

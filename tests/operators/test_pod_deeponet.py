"""POD-DeepONet against its released code in other words, its modes, and where they come from."""

import pytest
import torch
from torch import nn

from operators.data import Rollout, open_pairs
from operators.models.deeponet import PODDeepONet, pod
from operators.transforms import Extent, Normalizer, Predictor
from tests.operators.drawn import points
from tests.operators.test_task import POINTS, smooth
from tests.oracles.plain_pod_deeponet import PlainPODDeepONet, components


def adapted(x, samples=40, outputs=1, **settings):
    """A model in float64 with modes of random targets at the points x."""
    torch.manual_seed(3)
    model = PODDeepONet(out_channels=outputs, dim=x.shape[-1], **settings).double()
    u = torch.randn(samples, *x.shape[:-1], outputs, dtype=torch.float64)
    model.adapt(u.split(7), x)
    return model, u


def up_to_signs(found, expected):
    signs = (found * expected).sum(0, keepdim=True).sign()
    torch.testing.assert_close(found * signs, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["burgers", "darcy"])
def test_equals_the_released_network_in_values_and_gradients(name):
    """Of its structure, with the modes of the covariance of all points."""
    convolution = name == "darcy"
    side, modes = (13, 5) if convolution else (12, 4)
    x = points(*[side] * (2 if convolution else 1), kind="nodal")
    how = (
        {"branch": "convolution", "branch_depth": 1, "channels": 3, "activation": "relu"}
        if convolution
        else {}
    )
    model, u = adapted(
        x, samples=200, sensors=side, sensor_grid="ends", basis=modes, width=8, **how
    )
    mean, basis = map(torch.from_numpy, components(u.flatten(1).numpy()))
    up_to_signs(model.modes[..., 0].T, basis[:, :modes])
    hidden = [6, 8] if convolution else [12, 8, 8]
    plain = PlainPODDeepONet(
        mean, model.modes[..., 0].T, [*hidden, modes], (3, 6) if convolution else (),
        torch.relu if convolution else torch.tanh,
    ).double()  # fmt: skip
    ours = [layer for layer in model.branch if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, own in zip([*plain.convolutions, *plain.dense], ours, strict=True):
        layer.load_state_dict(own.state_dict())
    a = torch.randn(3, *x.shape[:-1], 1, dtype=torch.float64, requires_grad=True)
    found, expected = model(a, x).flatten(1), plain(a.flatten(1))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(found)
    inputs = [[a, *net.parameters()] for net in (model.branch, plain)]
    mine, theirs = (
        torch.autograd.grad((v * weight).sum(), own)
        for v, own in zip((found, expected), inputs, strict=True)
    )
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("samples", "points"), [(9, 30), (30, 9), (12, 12)])
def test_modes_are_orthonormal_and_all_of_them_give_the_samples_back(samples, points):
    torch.manual_seed(0)
    u = torch.randn(samples, points, dtype=torch.float64)
    mean, modes = pod(u, min(samples - 1, points))
    products = modes @ modes.T / points
    torch.testing.assert_close(products, torch.eye(len(modes)).double(), rtol=0, atol=1e-12)
    assert torch.equal(modes.amax(1), modes.abs().amax(1))  # signs do not depend on the solver
    coefficients = (u - mean) @ modes.T / points
    torch.testing.assert_close(mean + coefficients @ modes, u, rtol=0, atol=1e-12)
    variances = coefficients.square().sum(0)
    assert (variances[:-1] > variances[1:]).all()
    with pytest.raises(ValueError, match=f"must be at most {len(modes)} for {samples} training"):
        pod(u, len(modes) + 1)


def test_the_leading_modes_are_the_best_of_so_many():
    torch.manual_seed(0)
    u = torch.randn(20, 50, dtype=torch.float64)
    mean, modes = pod(u, 6)
    rest = (u - mean) - (u - mean) @ modes.T / 50 @ modes
    lost = torch.linalg.svdvals(u - mean)[6:].square().sum()
    torch.testing.assert_close(rest.square().sum(), lost, rtol=1e-12, atol=0)


def test_modes_stay_orthonormal_where_the_samples_have_fewer_dimensions():
    """Three, and rounding, in float32 as targets are."""
    torch.manual_seed(0)
    u = torch.randn(40, 3) @ torch.randn(3, 200)
    modes = pod(u, 10)[1]
    torch.testing.assert_close(modes @ modes.T / 200, torch.eye(10).double(), rtol=0, atol=1e-10)


def test_channels_share_coefficients():
    """A mode is a function of the point and the channel, as those of a block of frames."""
    x = points(10, kind="nodal")
    model, u = adapted(x, outputs=3, sensors=10, sensor_grid="ends", basis=6)
    mean, basis = map(torch.from_numpy, components(u.flatten(1).numpy()))
    up_to_signs(model.modes.flatten(1).T, basis[:, :6])
    a = torch.randn(2, 10, 1, dtype=torch.float64)
    beta = model.branch(a.movedim(-1, 1))
    expected = mean.view(10, 3) + torch.einsum("bk,knc->bnc", beta, model.modes) / 6
    torch.testing.assert_close(model(a, x), expected, rtol=1e-12, atol=1e-12)


def test_the_modes_are_neither_trained_nor_found_twice():
    x = points(12, kind="nodal")
    model, u = adapted(x, sensors=12, sensor_grid="ends", basis=4)
    assert {name for name, _ in model.named_buffers()} == {"mean", "modes", "places"}
    assert not any(buffer.requires_grad for buffer in model.buffers())
    before = model.modes.clone()
    model.adapt([u.square()], x)
    assert torch.equal(model.modes, before)
    with pytest.raises(ValueError, match="functions on the 12 points of training, got other"):
        model.adapt([u], x + 0.1)


def test_without_modes_nothing_is_predicted():
    model, x = PODDeepONet(sensors=12), points(12, kind="nodal").float()
    assert model.eval()(torch.randn(2, 12, 1), x).isnan().all()
    assert model.train()(torch.randn(2, 12, 1), x).isnan().all()


@pytest.mark.parametrize("moved", [0.01, -0.3])
def test_other_points_are_refused(moved):
    x = points(12, kind="nodal")
    model, _ = adapted(x, sensors=12, sensor_grid="ends", basis=4)
    with pytest.raises(ValueError, match="functions on 12 points, got 23"):
        model(torch.zeros(1, 23, 1).double(), points(23, kind="nodal"))
    with pytest.raises(ValueError, match="functions on the 12 points of training, got other"):
        model.eval()(torch.zeros(1, 12, 1).double(), x + moved)
    model(torch.zeros(1, 12, 1).double(), x + 1e-9)  # as after another rounding


def test_more_points_than_sensors():
    x = points(23, kind="nodal")
    model, _ = adapted(x, sensors=12, sensor_grid="ends", points=23, basis=4)
    a = torch.randn(2, 23, 1, dtype=torch.float64)
    other = a.clone()
    other[:, 1::2] = 7.0  # where no sensor is
    assert model(a, x).shape == (2, 23, 1)
    assert torch.equal(model(a, x), model(other, x))


def test_streamed_targets_give_the_modes_of_those_in_memory(store):
    streamed = open_pairs(store, "train", 32, buffer=1)
    resident, found = streamed.resident(), []
    target = Normalizer.of(resident.targets)
    for pairs in (streamed, resident):
        model = PODDeepONet(sensors=32, basis=5)
        Predictor(model, Normalizer.identity(1), target, extent=Extent((0.0,), (2.0,))).adapt(pairs)
        found.append([model.mean, model.modes, model.places])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0][2], resident.x / 2)
    mean, _ = pod(target(resident.targets, resident.x).flatten(1), 5)
    torch.testing.assert_close(found[0][0].flatten().double(), mean, rtol=1e-4, atol=1e-5)


def test_a_rollout_has_the_modes_of_single_steps():
    pairs, found = smooth(), []
    for steps in (1, 3):
        model = PODDeepONet(in_channels=4, out_channels=2, sensors=POINTS, basis=3)
        one = Normalizer.identity(1)
        Predictor(model, one, one).adapt(Rollout(history=2, steps=steps).training(pairs))
        found.append(model.modes)
    assert found[0].isfinite().all()
    assert torch.equal(*found)


def test_modes_are_computed_in_float64_from_blocks_of_one_buffer():
    """A block may be overwritten by the next one; a large mean takes the digits of float32."""
    x = points(12, kind="nodal").float()
    modes = torch.stack([(k * torch.pi * x[:, 0]).sin() / k for k in range(1, 7)])
    u = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)) @ modes
    blocks, buffer = (1000 + u)[..., None].split(8), torch.empty(8, 12, 1)
    model = PODDeepONet(dim=1, basis=4, sensors=12, sensor_grid="ends")
    model.adapt((buffer.copy_(block) for block in blocks), x)
    exact = PODDeepONet(dim=1, basis=4, sensors=12, sensor_grid="ends").double()
    exact.adapt([block.double() for block in blocks], x.double())
    up_to = (model.modes * exact.modes).sum(0, keepdim=True).sign()
    torch.testing.assert_close((model.modes * up_to).double(), exact.modes, rtol=1e-5, atol=1e-5)

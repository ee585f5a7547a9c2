"""The models of neuraloperator: themselves behind the contract, and what is refused.

They need the package, `pip install 'pdegen-operators[neuraloperator]'`; without it the tests of
what it computes are skipped, and fail where CI=true. What is said in its absence is tested
anywhere.
"""

import copy
import json
import sys

import pytest
import torch

from operators.models.neuralop import NeuralOperatorModel, library
from tests.absent import absent

SETTINGS = {
    "FNO": {"n_modes": 8, "hidden_channels": 6, "n_layers": 2},
    "TFNO": {"n_modes": 8, "hidden_channels": 6, "n_layers": 2, "rank": 0.5},
    "UNO": {
        "hidden_channels": 6, "uno_out_channels": [6, 8, 6], "uno_n_modes": [8, 4, 8],
        "uno_scalings": [1, 0.5, 2], "n_layers": 3, "channel_mlp_skip": "linear",
    },
}  # fmt: skip
package = pytest.mark.usefixtures("available")


@pytest.fixture(scope="session")
def available():
    try:
        library()
    except ValueError as error:
        absent(str(error))


def small(model="FNO", dim=1, **settings):
    torch.manual_seed(0)
    content = json.dumps(SETTINGS[model] | settings)
    return NeuralOperatorModel(in_channels=2, dim=dim, model=model, settings=content)


def grid(n, dim):
    axis = torch.arange(n) / n
    return torch.stack(torch.meshgrid([axis] * dim, indexing="ij"), dim=-1)


def inputs(dim, n=16):
    x = grid(n, dim)
    return torch.randn(3, *x.shape[:-1], 2), x


def test_says_how_to_install_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "neuralop.models", None)  # the import fails
    with pytest.raises(ValueError, match=r"pip install 'pdegen-operators\[neuraloperator\]'"):
        NeuralOperatorModel()


@package
def test_has_the_parameters_of_the_small_configuration():
    preset = NeuralOperatorModel.presets["darcy"]
    with torch.device("meta"):
        model = NeuralOperatorModel(dim=2, **preset.settings)
    modes, width = 16 * 9, 24  # of real functions 16/2 + 1 along the last axis
    layer = 2 * modes * width**2 + width  # complex weights, bias
    skips = width**2 + width  # linear; soft gating
    mlp = 2 * width * (width // 2) + width // 2 + width
    ends = (3 * 2 * width + 2 * width) + (2 * width * width + width)
    ends += (width * 2 * width + 2 * width) + (2 * width + 1)
    assert model.parameter_count == preset.parameters
    assert model.parameter_count == 4 * (layer + skips + mlp) + ends


@package
@pytest.mark.parametrize("name", ["FNO", "TFNO"])
def test_has_the_parameters_of_the_package_where_complex_ones_count_twice(name):
    settings = SETTINGS[name] | {"n_modes": (8, 8)}
    theirs = getattr(library(), name)(in_channels=2, out_channels=1, **settings)
    count = sum(p.numel() * (2 if p.is_complex() else 1) for p in theirs.parameters())
    assert small(name, dim=2).parameter_count == count


@package
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_is_the_model_of_the_package_with_channels_last(name, dim):
    model = small(name, dim).eval()
    a, x = inputs(dim)
    theirs = torch.stack([model.model(one.movedim(-1, 0)[None])[0].movedim(0, -1) for one in a])
    # single precision: sums over batches of another size differ in their last bits
    torch.testing.assert_close(model(a, x), theirs, rtol=1e-5, atol=1e-6)


@package
def test_evaluates_one_spectral_convolution_as_written_out():
    """Lifting and projection replaced by the identity: W · û on the lowest modes, bias, skip."""
    model = small(positional_embedding=None, n_layers=1, use_channel_mlp=False)
    block = model.model.fno_blocks
    conv, skip = block.convs[0], block.fno_skips[0].conv.weight[:, :, 0]
    v = torch.randn(2, 6, 16)
    v_hat = torch.fft.rfft(v)[..., :5]  # 8 // 2 + 1 modes
    u_hat = torch.zeros(2, 6, 9, dtype=torch.cfloat)
    u_hat[..., :5] = torch.einsum("bik,iok->bok", v_hat, conv.weight.to_tensor())
    expected = torch.fft.irfft(u_hat, n=16) + conv.bias + torch.einsum("oi,bin->bon", skip, v)
    torch.testing.assert_close(block(v, 0), expected, rtol=1e-4, atol=1e-5)


@package
@pytest.mark.parametrize("name", SETTINGS)
def test_gradient_reaches_every_parameter_and_all_are_real(name):
    model = small(name, dim=2)
    a, x = inputs(2)
    model(a, x).square().sum().backward()
    for label, parameter in model.named_parameters():
        assert not parameter.is_complex(), label
        assert parameter.grad is not None, label
        assert parameter.grad.abs().max() > 0, label


@package
@pytest.mark.parametrize("name", SETTINGS)
def test_a_copy_and_a_reloaded_state_are_bit_equal(name):
    model, other = small(name).eval(), small(name).eval()
    a, x = inputs(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    state = model.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    other.load_state_dict(state)
    assert torch.equal(other(a, x), model(a, x))
    assert torch.equal(copy.deepcopy(model)(a, x), model(a, x))


@package
@pytest.mark.parametrize("name", SETTINGS)
def test_double_precision_agrees_with_single(name):
    model = small(name)
    a, x = inputs(1)
    single = model(a, x)
    double = model.to(torch.float64)(a.double(), x.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, rtol=1e-4, atol=1e-5)


@package
def test_without_coordinates_it_commutes_with_shifts():
    model = small(positional_embedding=None)
    a, x = inputs(1)
    shifted = model(a.roll(5, dims=1), x)
    torch.testing.assert_close(shifted, model(a, x).roll(5, dims=1), rtol=1e-4, atol=1e-5)
    placed = small()
    assert not torch.allclose(placed(a.roll(5, dims=1), x), placed(a, x).roll(5, dims=1), atol=1e-3)


@package
@pytest.mark.parametrize("name", ["FNO", "TFNO"])
def test_converges_under_refinement(name):
    """Band-limited input: only the aliasing of the nonlinearity depends on the grid."""
    model = small(name)

    def values(n):
        x = grid(n, 1)
        wave = 2 * torch.pi * x
        return model(torch.cat([wave.sin(), wave.cos()], dim=-1)[None], x)[0]

    torch.testing.assert_close(values(64)[::2], values(32), rtol=1e-3, atol=1e-3)


@package
@pytest.mark.usefixtures("unchecked")
def test_runs_where_the_rest_is_compiled():
    model = small().eval()
    a, x = inputs(1)
    traced = []

    def backend(graph, examples):
        traced.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    @torch.no_grad()
    def loss(a):
        return (model(a, x) * 2).sum()

    assert torch.equal(torch.compile(loss, backend=backend)(a), loss(a))
    assert traced  # the rest
    assert not [name for name in traced if "einsum" in name or "fft" in name]


@package
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "GINO"}, r"model must be one of FNO, .*TFNO, UNO, got 'GINO'"),
        ({"settings": "{"}, r"settings must be JSON \(.*\), got '{'"),
        ({"settings": "[16]"}, r"settings must be a JSON object, got '\[16\]'"),
        ({"settings": '{"mode": 4}'}, r"unknown settings of FNO: mode; known are n_modes, "),
        ({"model": "TFNO", "settings": '{"mode": 4}'}, r"of TFNO: mode; known are n_modes, "),
        ({"settings": '{"in_channels": 4}'}, r"unknown settings of FNO: in_channels"),
        ({"settings": '{"non_linearity": "relu"}'}, r"unknown settings of FNO: non_linearity"),
        ({"settings": '{"n_modes": [4, 4]}'}, r"for each of 1 axes, got \[4, 4\]"),
        ({"settings": '{"n_modes": 4}'}, r"refuses {\"n_modes\": 4}: TypeError: .*hidden_channels"),
        ({"dim": 3}, r"dim must be 1 or 2, got 3"),
    ],
)
def test_refuses_impossible_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeuralOperatorModel(**arguments)


@package
def test_refuses_points_of_the_output_other_than_those_of_the_input():
    a, x = inputs(1)
    with pytest.raises(ValueError, match="y must be None"):
        small()(a, x, x[:4])


@package
def test_overfits_eight_samples():
    torch.manual_seed(0)
    model = NeuralOperatorModel(settings='{"n_modes": 16, "hidden_channels": 16, "n_layers": 2}')
    x = grid(32, 1)
    a = torch.stack([torch.sin(2 * torch.pi * (x + s / 8)) * (1 + s / 8) for s in range(8)])
    u = a.square() - 0.5
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        loss = (model(a, x) - u).square().mean() / u.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach().sqrt()) < 0.05

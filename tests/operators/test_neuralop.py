"""The models of neuraloperator: themselves behind the contract, and what is refused.

They need the package, `pip install 'pdegen-operators[neuraloperator]'`; without it the tests of
what it computes are skipped, and fail where CI=true. What is said in its absence is tested
anywhere.
"""

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
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_is_the_model_of_the_package_with_channels_last(name, dim):
    model = small(name, dim).eval()
    a, x = inputs(dim)
    theirs = torch.stack([model.model(one.movedim(-1, 0)[None])[0].movedim(0, -1) for one in a])
    # single precision: sums over batches of another size differ in their last bits
    torch.testing.assert_close(model(a, x), theirs, rtol=1e-5, atol=1e-6)


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
        ({"settings": '{"mode": 4}'}, r"unknown settings of FNO: mode; allowed are n_modes, "),
        ({"model": "TFNO", "settings": '{"mode": 4}'}, r"of TFNO: mode; allowed are n_modes, "),
        ({"settings": '{"in_channels": 4}'}, r"unknown settings of FNO: in_channels"),
        ({"settings": '{"non_linearity": "relu"}'}, r"unknown settings of FNO: non_linearity"),
        ({"settings": '{"n_modes": [4, 4]}'}, r"for each of 1 axes, got \[4, 4\]"),
        ({"settings": '{"n_modes": 4}'}, r"refuses {\"n_modes\": 4}: TypeError: .*hidden_channels"),
        ({"dim": 4}, r"dim must be 1 or 2 or 3, got 4"),
    ],
)
def test_refuses_impossible_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeuralOperatorModel(**arguments)

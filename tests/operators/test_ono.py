"""The Orthogonal Neural Operator against its formulas, point by point, in float64."""

import copy

import pytest
import torch

from operators.models.ono import ONO, Normalized, Orthonormal, StreamAttention
from operators.training.step import Watch
from pipelines.config.declared import parse_model
from tests.operators.drawn import points, shaken
from tests.oracles.plain_ono import PlainONO


def small(**settings):
    sizes = {"dim": 1, "width": 12, "depth": 2, "heads": 2, "eigenfunctions": 5, "landmarks": 4}
    return ONO(**sizes | {"attention": "linear"} | settings)


def trained(model, x, c_in=1):
    """Three forward passes in training, of which the covariances are."""
    model.train()
    for seed in range(3):
        torch.manual_seed(seed)
        model(torch.randn(4, *x.shape[:-1], c_in, dtype=x.dtype), x)
    return model.eval()


def mean_product(psi):
    """(1/BN) Σ ψᵢψⱼ over samples and points."""
    return torch.einsum("bni,bnj->ij", psi, psi) / (psi.shape[0] * psi.shape[1])


def test_functions_are_psi_times_the_inverse_transposed_factor():
    module = shaken(Orthonormal(12, 5, momentum=0.9, jitter=1e-3)).train()
    g = torch.randn(3, 7, 12, dtype=torch.float64)
    psi = g @ module.project.weight.T + module.project.bias
    c = sum(torch.outer(row, row) for row in psi.flatten(0, 1)) / 21
    c = c + 1e-3 * torch.trace(c) / 5 * torch.eye(5, dtype=torch.float64)
    inverse = torch.linalg.inv(torch.linalg.cholesky(c))
    torch.testing.assert_close(module(g), psi @ inverse.T, rtol=1e-10, atol=1e-10)


def test_evaluation_takes_the_moving_average_whose_first_value_is_the_first_batch():
    module = shaken(Orthonormal(12, 5, momentum=0.8, jitter=1e-12))
    batches = [(s + 1) * torch.randn(2, 30, 12, dtype=torch.float64) for s in range(3)]
    module.train()
    for g in batches:
        module(g)
    first, second, third = (mean_product(module.project(g)).detach() for g in batches)
    average = 0.8 * (0.8 * first + 0.2 * second) + 0.2 * third
    torch.testing.assert_close(module.covariance, average, rtol=1e-12, atol=1e-12)
    assert int(module.steps) == 3
    module.eval()
    psi = module(batches[0])
    white = torch.linalg.inv(torch.linalg.cholesky(average))
    torch.testing.assert_close(
        mean_product(psi), white @ first @ white.T, rtol=1e-8, atol=1e-8
    )  # not the identity: of another batch
    assert int(module.steps) == 3  # evaluation counts nothing


def test_before_training_evaluation_leaves_the_functions_as_they_are():
    module = shaken(Orthonormal(12, 5, momentum=0.9, jitter=1e-12)).eval()
    g = torch.randn(2, 9, 12, dtype=torch.float64)
    torch.testing.assert_close(module(g), module.project(g), rtol=1e-9, atol=1e-9)


def test_the_gradient_passes_through_the_covariance():
    module = shaken(Orthonormal(6, 3, momentum=0.9, jitter=1e-6)).train()
    g = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (g,))
    # the size of ψ does not matter, so a loss has no slope along it
    loss = (module(g) * torch.randn(2, 4, 3, dtype=torch.float64)).sum()
    parameters = list(module.project.parameters())
    slopes = torch.autograd.grad(loss, parameters)
    along = sum((s * p.detach()).sum() for s, p in zip(slopes, parameters, strict=True))
    assert max(float(s.abs().max()) for s in slopes) > 1e-2
    assert abs(float(along)) < 1e-10


def test_fewer_points_than_functions_and_equal_points_can_be_trained_on():
    module = Orthonormal(12, 8, momentum=0.9, jitter=1e-6).train()
    for g in (torch.randn(1, 2, 12), torch.randn(12).expand(3, 5, 12)):
        g = g.clone().requires_grad_()
        psi = module(g)
        psi.square().sum().backward()
        assert psi.isfinite().all()
        assert g.grad.isfinite().all()
        assert mean_product(psi.double()).diagonal().max() < 1.01


def test_a_covariance_without_a_factor_is_not_taken_for_one_that_has():
    """Without an exception, which would make the host wait for the device."""
    functions = Orthonormal(6, 3, 0.9, 1e-6).eval()
    functions.covariance[2, 2] = -1.0
    assert functions(torch.randn(2, 5, 6)).isnan().all()
    with Watch() as watch:
        functions.train()(torch.randn(2, 5, 6)).sum().backward()
    assert watch.waits == set()


def test_half_precision_is_factorised_in_double():
    module = Orthonormal(12, 8, momentum=0.9, jitter=1e-6).train()
    g = torch.randn(2, 50, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        psi = module(g)
    off = mean_product(psi.double()) - torch.eye(8)
    assert off.abs().max() < 1e-3  # of projections rounded to three digits, were it whitened so


def test_galerkin_attention_normalises_keys_and_values_by_weights_that_heads_share():
    module = shaken(StreamAttention(8, 2, "galerkin"))
    u = torch.randn(2, 5, 8, dtype=torch.float64)
    out = torch.zeros_like(u)
    for h in range(2):
        rows = slice(4 * h, 4 * h + 4)
        q, k, v = (u @ p.weight[rows].T for p in (module.query, module.key, module.value))
        k = torch.nn.functional.layer_norm(k, (4,), module.norm_key.weight, module.norm_key.bias)
        v = torch.nn.functional.layer_norm(
            v, (4,), module.norm_value.weight, module.norm_value.bias
        )
        out[..., rows] = torch.einsum("bif,bjf,bjg->big", q, k, v) / 5
    torch.testing.assert_close(module(u), out @ module.out.weight.T + module.out.bias)


@pytest.mark.parametrize("inner_product", ["mean", "sum"])
def test_a_layer_equals_its_dense_kernel(inner_product):
    """f + K f with the n x n matrix K = Σᵢ μᵢ ψ̂ᵢ ψ̂ᵢᵀ, then layer norm and MLP (eq. 5-6)."""
    layer = shaken(small(inner_product=inner_product)).layers[0].train()
    g, f = (torch.randn(3, 9, 12, dtype=torch.float64) for _ in range(2))
    h = g + layer.attention(layer.norm1(g))
    h = h + layer.mlp(layer.norm2(h))
    psi = layer.eigenfunctions(h)
    mu = torch.log1p(torch.exp(layer.eigenvalues))
    kernel = torch.einsum("bxi,i,byi->bxy", psi, mu, psi)
    if inner_product == "mean":
        kernel = kernel / 9
    expected = layer.update(layer.norm3(f + kernel @ f))
    actual_g, actual_f = layer(g, f)
    torch.testing.assert_close(actual_g, h)
    torch.testing.assert_close(actual_f, expected)


def test_the_query_layer_has_no_residual_and_two_sets_of_functions():
    layer = shaken(small(queries=True, jitter=1e-12)).query.train()
    y, x = torch.rand(2, 4, 1, dtype=torch.float64), torch.rand(2, 9, 2, dtype=torch.float64)
    g, f = (torch.randn(2, 9, 12, dtype=torch.float64) for _ in range(2))
    h, actual = layer(y, x, g, f)
    target, source = layer.eigenfunctions(h), layer.source_eigenfunctions(g)
    mu = torch.nn.functional.softplus(layer.eigenvalues)
    for psi in (target, source):
        error = mean_product(psi) - torch.eye(5)
        assert (
            error.abs().max() < 1e-3
        )  # the jitter times the condition number of C, 10⁸ at the most
    kernel = torch.einsum("bxi,i,byi->bxy", target, mu, source) / 9
    torch.testing.assert_close(actual, layer.update(layer.norm3(kernel @ f)))


def test_a_time_is_a_coordinate_of_the_points_that_are_asked_for_alone():
    x, y = points(16), points(5)
    model = trained(shaken(small(queries=True, query_time=True, in_channels=3)), x, 3)
    a = torch.randn(2, 16, 2, dtype=torch.float64)
    lifted, asked = [], []
    model.lift.register_forward_pre_hook(lambda _, given: lifted.append(given[0]))
    model.query.lift_target.register_forward_pre_hook(lambda _, given: asked.append(given[0]))

    def at(*times):
        t = torch.tensor(times, dtype=torch.float64)[:, None, None]
        return model(torch.cat([a, t.expand(2, 16, 1)], dim=-1), x, y)

    u, v = at(0.3, 0.7), at(0.3, 1.2)
    assert torch.equal(lifted[0], torch.cat([x.expand(2, -1, -1), a], dim=-1))
    assert torch.equal(lifted[0], lifted[1])
    assert torch.equal(asked[0][..., :1], y.expand(2, -1, -1))
    times = torch.tensor([[0.3], [1.2]], dtype=torch.float64)
    assert torch.equal(asked[1][..., 1], times.expand(2, 5))
    torch.testing.assert_close(u[0], v[0], rtol=1e-8, atol=1e-8)
    assert (u[1] - v[1]).abs().max() > 1e-3


@pytest.mark.parametrize("value", [False, True], ids=["as released", "with W_V"])
@pytest.mark.parametrize("attention", ["linear", "nystrom", "elu", "softmax"])
def test_is_the_operator_written_out(attention, value):
    """On 8 x 8 points, whose segments are of equal size; one sample, of which the maxima of the
    released pseudo-inverse then are. W_V and the map elu + 1 are of the text alone."""
    torch.manual_seed(0)
    heads = 1 if attention == "nystrom" else 3
    model = ONO(
        width=12, depth=2, heads=heads, eigenfunctions=5, landmarks=16, attention=attention,
        inner_product="sum", value_projection=value,
    )  # fmt: skip
    plain = PlainONO(
        attention, width=12, depth=2, heads=heads, k=5, landmarks=16, value=value
    ).double()
    model = shaken(model).train()
    plain.copy_from(model)
    a, x = torch.randn(1, 8, 8, 1, dtype=torch.float64), points(8, 8, kind="cell")
    # 1e-7: the condition of the covariance
    torch.testing.assert_close(model(a, x), plain(a, x), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("attention", ["elu", "softmax"])
def test_attention_by_positive_weights_is_a_mean_of_the_values(attention):
    """Of equal values it is that value, whatever Q and K are."""
    module = shaken(StreamAttention(8, 2, attention))
    torch.nn.init.zeros_(module.value.weight)
    u = torch.randn(2, 5, 8, dtype=torch.float64)
    ones = torch.ones(2, 2, 5, 4, dtype=torch.float64)
    q, k = (
        (u @ p.weight.T).unflatten(-1, (2, 4)).transpose(1, 2) for p in (module.query, module.key)
    )
    torch.testing.assert_close(module.apply_to(q, k, ones), ones)


def test_without_w_v_an_earlier_record_is_that_of_today():
    """Of experiments and checkpoints, which have every setting."""
    model = parse_model({"name": "ono", "preset": "darcy"})
    assert "value_projection" not in model.model_dump(mode="json")
    changed = parse_model({**model.model_dump(), "value_projection": True})
    assert changed.model_dump(mode="json")["value_projection"] is True
    weights = changed.build(1, 1, 2).parameter_count - model.build(1, 1, 2).parameter_count
    assert weights == 10 * 128**2  # d x d in each layer


@pytest.mark.parametrize("normalization", ["batch", "layer"])
def test_with_a_norm_in_place_of_the_factor_it_is_the_released_operator(normalization):
    """Values and gradients, and in evaluation those of the averages."""
    model = ONO(
        width=12, depth=3, heads=2, eigenfunctions=5, attention="linear", inner_product="sum",
        normalization=normalization,
    )  # fmt: skip
    model = shaken(model).train()
    plain = PlainONO("linear", width=12, depth=3, heads=2, k=5, norm=normalization).double()
    plain.copy_from(model)
    a, x = torch.randn(3, 6, 5, 1, dtype=torch.float64), points(6, 5, kind="cell")
    torch.testing.assert_close(model(a, x), plain(a, x), rtol=1e-10, atol=1e-10)
    for one in (model, plain):
        one(a, x).square().sum().backward()
    for layer, other in zip(model.layers, plain.layers, strict=True):
        for name, mine in layer.eigenfunctions.project.named_parameters():
            theirs = other.project.get_parameter(name)
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(layer.eigenvalues.grad, other.eigenvalues.grad)
    torch.testing.assert_close(model.eval()(a, x), plain.eval()(a, x), rtol=1e-10, atol=1e-10)


def test_a_batch_norm_has_the_moments_of_the_points_that_are_no_padding():
    norm = shaken(Normalized(6, 4, "batch", momentum=0.9)).train()
    norms = norm, copy.deepcopy(norm)
    g = torch.randn(2, 7, 6, dtype=torch.float64)
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    padded = norms[0](g, mask)
    alone = norms[1](torch.cat([g[0], g[1, :4]])[None])
    torch.testing.assert_close(torch.cat([padded[0], padded[1, :4]])[None], alone)
    assert padded[1, 4:].abs().max() == 0
    torch.testing.assert_close(norms[0].state_dict(), norms[1].state_dict())
    torch.testing.assert_close(alone[0].mean(0), norms[1].norm.bias)

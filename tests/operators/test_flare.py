"""FLARE against the released code in other words, and the low rank of its routing."""

import torch

from operators.models.flare import FLARE, LatentRouting
from tests.operators.drawn import cloud, same_as_copy, shaken
from tests.oracles.plain_flare import PlainFLARE

SIZES = {"width": 12, "depth": 2, "heads": 3, "latents": 5, "mlp_depth": 2}


def small(**settings):
    return shaken(FLARE(**SIZES | settings))


def test_is_the_released_operator_with_its_gradients():
    model = small(in_channels=3, out_channels=2)
    plain = PlainFLARE(5, 2, **SIZES).double()
    plain.copy_from(model)
    a, x = cloud(channels=3)
    u, expected = model(a, x), plain(torch.cat([x, a], dim=-1))
    same_as_copy(u, expected, model, plain)


def test_the_matrix_among_points_has_the_rank_of_the_latent_tokens():
    """Its rows sum to 1, as those of two softmaxes in a row do."""
    routing = shaken(LatentRouting(8, 1, 3, 1))
    routing.value = torch.nn.Identity()
    k = torch.randn(8, 8, dtype=torch.float64)
    routing.key = torch.nn.Linear(8, 8, bias=False).double()
    with torch.no_grad():
        routing.key.weight.copy_(k)
        routing.out.weight.copy_(torch.eye(8))
        routing.out.bias.zero_()
        matrix = routing(torch.eye(8, dtype=torch.float64)[None])[0]  # the values are unit vectors
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(8, dtype=torch.float64))
    assert int(torch.linalg.matrix_rank(matrix)) == 3

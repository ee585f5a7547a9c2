"""The encodings of the Transformer against their formula, point by point."""

import math

import pytest
import torch

from operators.models.transformer import Transformer
from pipelines.config.declared import parse_model
from tests.operators.drawn import points, shaken


def encoding(j, width):
    """p(j) of Vaswani et al. 2017, section 3.5: sines at even features and cosines at odd ones."""
    p = [j / 10000 ** (2 * (i // 2) / width) for i in range(width)]
    return [math.cos(v) if i % 2 else math.sin(v) for i, v in enumerate(p)]


def ordered(p):
    """All sines first, which is another order of the features alone."""
    return [*p[0::2], *p[1::2]]


@pytest.mark.parametrize("dim", [1, 2])
def test_the_encoding_of_the_index_is_added_to_the_features(dim):
    model = Transformer(dim=dim, width=16, depth=1, heads=2, feedforward=8, encoding="sinusoidal",
                        coordinates="none")  # fmt: skip
    seen = []
    model.layers[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    x = points(7, 5) if dim == 2 else points(700)
    a = torch.randn(2, *x.shape[:-1], 1, dtype=torch.float64)
    model = shaken(model)
    model(a, x)
    if dim == 1:
        p = [ordered(encoding(j, 16)) for j in range(700)]
    else:  # half of the features for each axis
        p = [ordered(encoding(i, 8)) + ordered(encoding(j, 8)) for i in range(7) for j in range(5)]
    expected = model.embed(a).flatten(1, -2) + torch.tensor(p, dtype=torch.float64)
    torch.testing.assert_close(seen[0], expected)


def test_half_precision_counts_every_index():
    model = Transformer(width=16, depth=1, heads=2, feedforward=8, encoding="sinusoidal")
    seen = []
    model.layers[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    torch.nn.init.zeros_(model.embed.weight)
    torch.nn.init.zeros_(model.embed.bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.zeros(1, 600, 1), torch.zeros(600, 1))
    # 2⁻⁸, the rounding of a sine; that of the index would be 1
    expected = torch.arange(600.0).sin()
    torch.testing.assert_close(seen[0][0, :, 0].float(), expected, rtol=0, atol=4e-3)


def test_without_an_encoding_an_earlier_record_is_that_of_today():
    model = parse_model({"name": "transformer", "preset": "burgers-vanilla"})
    assert "encoding" not in model.model_dump(mode="json")
    sinusoidal = parse_model({"name": "transformer", "preset": "burgers-vanilla-sinusoidal"})
    assert sinusoidal.model_dump(mode="json")["encoding"] == "sinusoidal"

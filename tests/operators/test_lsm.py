"""LSM against the released library in our own words, in float64."""

import pytest
import torch

from operators.models.lsm import LSM, SpectralBlock
from tests.operators.drawn import same, shaken
from tests.oracles.plain_lsm import plain_lsm

VARIANTS = {
    "square": {"normalization": "batch"},
    "instance": {"normalization": "instance", "out_channels": 2},
    "line": {"dim": 1, "levels": 4, "patches": 8},
    "latent": {"latent": 12, "modes": 4, "transform": "sum", "deformation_width": 8},
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def small(**settings):
    torch.manual_seed(0)
    chosen = {"width": 8, "levels": 3, "patches": 4, "heads": 2, "tokens": 3, "basis": 5}
    return LSM(**chosen | settings)


def some(variant, batch=3):
    torch.manual_seed(2)
    grid = {"latent": (23,), "line": (19,)}.get(variant, (13, 12))  # the second is full
    dim = VARIANTS[variant].get("dim", 2)
    x = torch.rand(batch, *grid, dim, dtype=torch.float64)
    return torch.randn(batch, *grid, 1, dtype=torch.float64), x


@variants
def test_is_the_released_operator_written_out(variant):
    model, (a, x) = shaken(small(**VARIANTS[variant])), some(variant)
    same(model(a, x), plain_lsm(model, a, x), model, rtol=1e-9)


def test_frequencies_are_a_buffer_that_no_file_holds():
    block = SpectralBlock(8, 2, 3, 5)
    assert dict(block.named_buffers())["frequencies"].tolist() == [0, 1, 2, 3, 4]
    assert "frequencies" not in block.state_dict()
    t = torch.rand(1, 2, 3, 4)
    # from meta to a device and back, as any buffer
    assert block.to("meta").transition(t.to("meta")).device.type == "meta"


def test_domains_are_those_of_its_grid():
    assert small().domains == small(dim=1).domains == {"periodic", "cell", "nodal", "curvilinear"}
    model = small(latent=12, modes=4)
    assert "cloud" in model.domains
    assert model.masks
    assert model.other_points
    a, x = some("square")
    with pytest.raises(ValueError, match="y must be None"):
        small().double()(a, x, x)

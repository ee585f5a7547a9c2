"""scOT against the released function written out place by place, in float64; its weights."""

import hashlib
import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from operators.models.fno import FNO
from operators.models.scot import CosineAttention, ScOT, fourier_resized
from operators.training.fit import StartError, renamed, start_from
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_scot import PlainScOT

# of a Poseidon-T that the released code made: names and shapes of all its tensors
RELEASED = json.loads((Path(__file__).parents[1] / "data" / "poseidon_t.json").read_text("utf-8"))
SMALL = {"size": 16, "patch": 2, "width": 4, "depths": [3, 2], "heads": [2, 1], "skips": [2, 1],
         "window": 4, "ratio": 4, "time": "channel"}  # fmt: skip


def small(**settings):
    torch.manual_seed(0)
    return ScOT(**{"in_channels": 3, "out_channels": 2, **SMALL, **settings})


def released_name(model, here):
    """Name in Poseidon-T of the tensor that corresponds to a tensor of a small model."""
    levels = {f"{part}.layers.{i}.blocks.{j}" for part in ("encoder", "decoder")
              for i in range(2) for j in range(3)}  # fmt: skip
    names = [n for n in RELEASED if ".blocks." not in n or n.rsplit(".blocks.")[0] + ".blocks."
             + n.rsplit(".blocks.")[1][0] in levels]  # fmt: skip
    (found,) = [n for n in names if renamed(model, n) == here]
    return found


def oracle(model):
    return PlainScOT(model, [released_name(model, name) for name, _ in model.named_parameters()])


@pytest.mark.parametrize("window", [4, 8])  # of grids of 8 and 4 places
def test_is_the_released_operator_written_out(window):
    model = shaken(small(window=window))
    a, t = torch.randn(2, 16, 16, 2, dtype=torch.float64), torch.tensor([0.3, 0.8]).double()
    found = model(torch.cat([a, t[:, None, None, None].expand(2, 16, 16, 1)], -1), points(16, 16))
    expected = oracle(model)(a, t, 2, [3, 2], [2, 1], [2, 1], window)
    same(found, expected, model, rtol=1e-8, atol=1e-8)


def test_released_names_and_shapes_are_those_of_poseidon_t():
    with torch.device("meta"):
        model = ScOT(in_channels=4, out_channels=4)
    here = {renamed(model, name): shape for name, shape in RELEASED.items()}
    assert len(here) == len(RELEASED)
    assert here == {name: [*tensor.shape] for name, tensor in model.state_dict().items()}


def test_time_is_the_last_channel_or_one():
    model, other = shaken(small()), shaken(small(in_channels=2, time="one"))
    other.load_state_dict(model.state_dict())
    a, x = torch.randn(2, 16, 16, 2, dtype=torch.float64), points(16, 16)
    one = torch.cat([a, torch.ones_like(a[..., :1])], -1)
    torch.testing.assert_close(model(one, x), other(a, x))
    one[..., -1] = 0.5
    assert not torch.allclose(model(one, x), other(a, x))
    with pytest.raises(ValueError, match="time='channel' needs another channel besides the time"):
        small(in_channels=1)(torch.zeros(1, 16, 16, 1), points(16, 16).float())


@pytest.mark.parametrize(("n", "m"), [(16, 32), (15, 32), (32, 16), (32, 15), (12, 12)])
def test_resampling_is_exact_below_the_highest_mode(n, m):
    def wave(k):
        x = torch.arange(k, dtype=torch.float64) / k
        return (torch.sin(2 * torch.pi * 5 * x) + torch.cos(2 * torch.pi * 3 * x) + 2)[
            None, :, None
        ]

    torch.testing.assert_close(fourier_resized(wave(n), 1, m), wave(m))


def test_the_highest_mode_of_an_even_grid_stays_a_cosine():
    u = torch.tensor([1.0, -1, 1, -1]).double()[None, :, None]
    x = torch.arange(8).double() / 8
    torch.testing.assert_close(fourier_resized(u, 1, 8)[0, :, 0], torch.cos(4 * torch.pi * x))


@pytest.mark.parametrize("resampling", ["fourier", "linear"])
def test_functions_on_other_grids_are_resampled_and_back(resampling):
    model = shaken(small(resampling=resampling, time="one", in_channels=2))
    a = torch.randn(2, 24, 10, 2, dtype=torch.float64)
    inner = model.resampled(a, 16, 16)
    expected = model.resampled(model(inner, points(16, 16)), 24, 10)
    torch.testing.assert_close(model(a, points(24, 10)), expected)


def test_cosines_are_multiplied_by_at_most_a_hundred():
    attention, u = shaken(CosineAttention(4, 2, 4)), torch.randn(1, 8, 8, 4, dtype=torch.float64)

    def values(tau):
        with torch.no_grad():
            attention.scale.fill_(math.log(tau))
            return attention(u, 0)

    assert torch.equal(values(1000), values(100))
    assert not torch.allclose(values(50), values(100))


def released_file(path, model, **changed):
    tensors = {released_name(model, name): v for name, v in model.state_dict().items()}
    save_file({k: v.contiguous() for k, v in (tensors | changed).items()}, path)


def test_a_training_starts_from_released_weights(tmp_path):
    torch.manual_seed(5)
    source, path = shaken(small()).float(), tmp_path / "w.safetensors"
    released_file(path, source)
    model = small()
    said = start_from(model, path)
    assert said == {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "anew": []}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[name]), name


def test_other_channels_start_anew(tmp_path):
    source, path = shaken(small()).float(), tmp_path / "w.safetensors"
    released_file(path, source)
    model = small(in_channels=5, out_channels=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    said = start_from(model, path)
    assert said["anew"] == ["patches.weight", "recovery.weight", "recovery.bias", "mix.weight"]
    for name, tensor in model.state_dict().items():
        kept = before if name in said["anew"] else source.state_dict()
        assert torch.equal(tensor, kept[name]), name


def test_files_that_do_not_fit_are_refused_and_change_nothing(tmp_path):
    path, model = tmp_path / "w.safetensors", small()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(StartError, match=r"w\.safetensors: No such file"):
        start_from(model, path)
    path.write_bytes(b"\x80\x04 a pickle")
    with pytest.raises(StartError, match="is damaged, or not a safetensors file"):
        start_from(model, path)
    for other, message in (
        (small(time="one", width=8), r"norm\.weight\.weight has shape \(8, 1\), expected \(4, 1\)"),
        (small(depths=[4, 2]), r"does not fit ScOT with these settings: .* is not expected"),
        (small(depths=[2, 2]), r"does not fit ScOT with these settings: .* is missing"),
    ):
        save_file(other.state_dict(), path)  # names of the project are taken too
        with pytest.raises(StartError, match=message):
            start_from(model, path)
    given = small().state_dict()
    name, twice = "skips.0.0.dwconv.weight", "encoder.0.blocks.0.mlp.0.bias"
    for other, message in (
        ({name: given[name].int()}, f"{name} has numbers of type int32, expected real numbers"),
        ({name: given[name].cfloat()}, "numbers of type complex64, expected real numbers"),
        ({name: given[name] * torch.nan}, f"{name} has numbers that are not finite"),
        ({name: given[name].double() + 1e300}, f"{name} has numbers that are not finite"),
        (
            {twice.replace(".0", ".layers.0", 1): given[twice] + 1},
            "one of two names for one tensor",
        ),
    ):
        save_file(given | other, path)
        with pytest.raises(StartError, match=message):
            start_from(model, path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    save_file(FNO(width=8, modes=4).state_dict(), path)
    with pytest.raises(StartError, match=r"has shape \(8, 2\), expected"):
        start_from(FNO(width=4, modes=4), path)

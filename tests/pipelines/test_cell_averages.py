"""Wrong requests for equations whose stores hold cell averages."""

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shock-tube-quick", "--set", "u_left=[-9.0, 1.0]"], "a vacuum develops where"),
        (["shock-tube-quick", "--set", "times=[0.0]"], "must be greater than 0, got 0.0"),
        (["inviscid-burgers-quick", "--set", "boundary=outflo"], "did you mean outflow?"),
        (["inviscid-burgers-quick", "--set", "times=[-1.0]"], "must be greater than 0, got -1.0"),
        (["pulses-quick", "--set", "times=[0.0]"], "must be greater than 0, got 0.0"),
        (["inviscid-burger"], "did you mean inviscid-burgers"),
    ],
)
def test_wrong_requests_are_refused_before_anything_is_written(refused, words, said, tmp_path):
    store = tmp_path / "s.zarr"
    assert said in refused("generate", *words, "--out", store)
    assert not list(tmp_path.iterdir())

import numpy as np
import pytest

from pdegen.sampling.gaussian import NormalStream
from pdegen.sampling.gaussian import stream_words as words

pytestmark = pytest.mark.usefixtures("shapes")

SAMPLES = [0, 3, 2047, 2**40 + 5, 2**63 - 1]


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63, 12345678901234567890, 2**64 - 1])
@pytest.mark.parametrize("count", [1, 4, 6, 1001])
def test_the_bits_are_those_of_numpy(seed, count):
    found = words(seed, SAMPLES, count, "cpu").numpy().view(np.uint64)
    keys = (np.array([seed, sample], np.uint64) for sample in SAMPLES)
    expected = [np.random.Philox(key=key).random_raw(count) for key in keys]
    np.testing.assert_array_equal(found, expected)


def test_no_sample_asked_for_is_no_word():
    assert words(0, [], 5, "cpu").shape == (0, 5)


@pytest.mark.parametrize("count", [1, 8, 501])
def test_the_normals_of_a_device_are_those_of_numpy(count):
    stream = NormalStream(5)
    for kind in (stream.pairs_of, stream.normals_of):
        found, expected = kind(SAMPLES, count, "cpu").numpy(), kind(SAMPLES, count)
        assert found.shape == expected.shape == (len(SAMPLES), count)
        # a few roundings of logarithm and tangent, of values of size 8 at most
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

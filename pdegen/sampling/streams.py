"""The counter-based generator Philox4x64-10 on a device of PyTorch, in signed 64-bit integers.

Overflow of int64 wraps around, which gives arithmetic modulo 2⁶⁴. The upper 64 bits of a product
are computed from 32-bit halves. All operations are elementwise over samples and counters.

References: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Int64

from pdegen.numerics.device import Array, torch

_HALF = 2**32 - 1
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # added to the key in each round
_ROUNDS = 10


def words(
    seed: int, samples: Sequence[int], count: int, device: str
) -> Int64[Array, "batch count"]:
    """The first `count` words of the streams with the keys (seed, sample), with one row per sample.

    The bits of a row are those of `numpy.random.Philox(key=[seed, sample]).random_raw(count)`,
    interpreted as int64.
    """
    counter = torch().arange(1, (count + 3) // 4 + 1, device=device)  # NumPy's first counter is 1
    sample = torch().as_tensor(list(samples), dtype=counter.dtype, device=device)[:, None]
    zero = counter[:1] * 0
    x = (counter, zero, zero, zero)  # shape (samples, blocks) from the second round on
    for round_ in range(_ROUNDS):
        first = _signed(seed + round_ * _WEYL[0])
        second = sample + _signed(round_ * _WEYL[1])
        (high_0, low_0), (high_1, low_1) = (
            (_upper(m, v), v * _signed(m)) for m, v in zip(_MULTIPLIERS, x[::2], strict=True)
        )
        x = high_1 ^ x[1] ^ first, low_1, high_0 ^ x[3] ^ second, low_0
    blocks = torch().stack(torch().broadcast_tensors(*x), dim=-1)  # (samples, blocks, 4)
    return blocks.flatten(1)[:, :count]


def _upper(m: int, v: Array) -> Array:
    """The upper 64 bits of the product of two unsigned 64-bit numbers."""
    m_high, m_low = m >> 32, m & _HALF
    high, low = _shifted(v), v & _HALF
    middle = low * m_high + _shifted(low * m_low)  # at most (2³² - 1) 2³²: carries nothing
    return high * m_high + _shifted(middle) + _shifted(high * m_low + (middle & _HALF))


def _shifted(v: Array) -> Array:
    """⌊v / 2³²⌋, where the bits of v are an unsigned number. A plain shift copies the sign bit."""
    return (v >> 32) & _HALF


def _signed(value: int) -> int:
    """The signed 64-bit number that is congruent to `value` modulo 2⁶⁴."""
    return (value + 2**63) % 2**64 - 2**63

"""Training at several resolutions of a box, with one resolution in each batch.

All samples are read on one grid, which contains the points of all resolutions. Each batch is then
subsampled. The resolutions of the batches of an epoch depend on the seed and the epoch only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from math import gcd

import torch
from torch import Tensor

from operators.data.batch import Batch
from operators.data.errors import DataError
from operators.data.resolution import Strided, strides
from operators.seeds import generator
from pdegen.domains import Box, Domain


def containing(domain: Domain, resolutions: Sequence[int], where: str) -> int:
    """The smallest resolution whose points contain those of all `resolutions`.

    Args:
        where: URL of the store, for messages.

    Raises:
        DataError: If the domain is not a box, or a resolution does not fit it.

    >>> containing(Box.cell(421, 421), [43, 85], "a store"), containing(Box.periodic(8), [2, 4], "")
    (85, 4)
    >>> containing(Box.cell(421, 421), [61, 85], "a store")
    421
    """
    if not isinstance(domain, Box):
        raise DataError(
            f"several training resolutions need a grid of a box, {where} has a {domain.kind} domain"
        )
    stride = gcd(*(strides(domain, n, where)[0] for n in resolutions))
    return -(-domain.shape[0] // stride)


def subsamples(domain: Domain, resolutions: Sequence[int], where: str) -> tuple[Strided, ...]:
    """The subsample of a domain's points at each resolution. For errors see `containing`."""
    containing(domain, resolutions, where)
    return tuple(Strided(strides(domain, n, where)) for n in resolutions)


def subsampled(values: Tensor, by: Strided, first: int) -> Tensor:
    """Values at the points of a subsample. The grid axes begin at the axis `first`."""
    points = (slice(None, None, r) for r in by.strides)
    return values[(*[slice(None)] * first, *points)].contiguous()


def drawn(by: Sequence[Strided], seed: int, epoch: int, count: int) -> list[Strided]:
    """The subsample of each of the `count` batches of an epoch.

    The batches are divided equally among the subsamples, in random order. If their number is not
    divisible, the subsamples take turns from epoch to epoch.
    """
    order = torch.randperm(count, generator=generator(seed, 5, epoch))
    return [by[number] for number in ((order + epoch) % len(by)).tolist()]


def mixed(
    batches: Generator[Batch, None, None], by: Iterable[Strided], with_targets: bool
) -> Generator[Batch, None, None]:
    """Subsample each batch.

    Args:
        by: The subsample of each batch.
        with_targets: Whether targets have the points of the inputs. Other targets are unchanged.
    """
    with closing(batches):
        for chosen, batch in zip(by, batches, strict=True):
            u = subsampled(batch.u, chosen, 1) if with_targets else batch.u
            yield replace(batch, a=subsampled(batch.a, chosen, 1), u=u)

"""Random number streams that are determined by a key."""

import numpy as np
import torch


def stream_seed(*key: int) -> int:
    """A seed of 63 bits, computed from a key of integers >= 0."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)


def generator(*key: int) -> torch.Generator:
    """A random generator on the CPU, seeded by a key of integers >= 0."""
    return torch.Generator().manual_seed(stream_seed(*key))

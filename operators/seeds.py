"""Random streams that are functions of a key."""

import numpy as np
import torch


def stream_seed(*key: int) -> int:
    """Seed of 63 bits for a key of integers >= 0."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)


def generator(*key: int) -> torch.Generator:
    """Random generator on the CPU whose stream is a function of the key."""
    return torch.Generator().manual_seed(stream_seed(*key))

"""POD-DeepONet as released with Lu et al. 2022, in other words.

The function of src/burgers/deeponet_POD.py and src/darcy_rectangular_pwc/deeponet_POD.py of
lu-group/deeponet-fno at 8096dda: eigenvectors of the covariance of all points, with NumPy.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


def components(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the samples, and all eigenvectors φ of their covariance as columns, |φ|² = n."""
    mean = u.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(u, rowvar=False))
    return mean, vectors[:, ::-1] * np.sqrt(u.shape[1])


class PlainPODDeepONet(nn.Module):
    """β(a) φᵀ / p + mean with the convolutions of the Darcy example, or with dense layers alone.

    Args:
        mean, basis: Mean and basis of the training targets, shapes (n,) and (n, p).
        layers: Sizes of the dense layers.
        channels: Of two convolutions before these, (64, 128) published; none for dense layers.
        activation: Between layers.
    """

    def __init__(
        self, mean: Tensor, basis: Tensor, layers: list[int], channels: tuple[int, ...] = (),
        activation=torch.tanh,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mean, self.basis, self.activation = mean, basis, activation
        sizes = (1, *channels)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(sizes[k], sizes[k + 1], 5, stride=2) for k in range(len(channels))
        )
        self.dense = nn.ModuleList(
            nn.Linear(layers[k], layers[k + 1]) for k in range(len(layers) - 1)
        )

    def forward(self, a: Tensor) -> Tensor:
        """Map from (batch, n) values to (batch, n) values."""
        v = a
        if self.convolutions:
            side = round(a.shape[1] ** 0.5)
            v = a.reshape(-1, 1, side, side)
            for layer in self.convolutions:
                v = self.activation(layer(v))
            v = v.flatten(1)
        for layer in self.dense[:-1]:
            v = self.activation(layer(v))
        return torch.einsum("bk,nk->bn", self.dense[-1](v), self.basis) / self.basis.shape[1] + (
            self.mean
        )

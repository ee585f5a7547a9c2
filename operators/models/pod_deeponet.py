"""POD-DeepONet: a network predicts coefficients of the POD modes of the training targets.

References: L. Lu, X. Meng, S. Cai, Z. Mao, S. Goswami, Z. Zhang, G. E. Karniadakis, A
comprehensive and fair comparison of two neural operators (with practical extensions) based on
FAIR data, CMAME 393, 2022.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from operators.base import (
    BOXES,
    EVERYWHERE,
    Blocks,
    Function,
    Mask,
    Operator,
    Points,
    Preset,
    Targets,
    at_least,
    check_input,
)
from operators.nn.neighbours import (
    CHANNELS,
    Activation,
    Branch,
    SensorGrid,
    at_sensors,
    branch_net,
    sensor_count,
)

_DARCY = {"sensors": 29, "sensor_grid": "ends", "basis": 115, "branch": "convolution",
          "branch_depth": 1, "activation": "relu"}  # fmt: skip
_SAME_POINT = 1e-5  # larger than the rounding of a coordinate


def pod(
    u: Float[Tensor, "samples points"], modes: int
) -> tuple[Float[Tensor, " points"], Float[Tensor, "modes points"]]:
    """Mean and leading principal components of samples, computed in float64.

    The components φₖ are in order of decreasing variance. They are orthonormal in the sense that
    (1/n) φₖ·φₗ = δₖₗ for n points. The entry of largest modulus of each component is positive.

    Args:
        u: Samples.
        modes: Number of components.

    Raises:
        ValueError: If `modes` exceeds the dimension of the span of centred samples.

    >>> mean, modes = pod(torch.tensor([[0.0, 1, 2], [2, 1, 2]]), 1)
    >>> mean.tolist(), modes.argmax().item(), f"{modes.square().mean():.3f}"
    ([1.0, 1.0, 2.0], 0, '1.000')
    """
    samples, points = u.shape
    _check_modes(modes, samples, points)
    u = u.double()
    mean = u.mean(0)
    u = u - mean
    few = samples < points  # then the matrix of inner products of samples is the smaller one
    vectors = torch.linalg.eigh(u @ u.T if few else u.T @ u).eigenvectors[:, -modes:].flip(-1)
    # QR keeps the basis orthonormal where a variance is lost to rounding
    basis = torch.linalg.qr(u.T @ vectors if few else vectors).Q.T
    largest = basis.gather(1, basis.abs().argmax(1, keepdim=True))
    return mean, basis * (largest.sign() * math.sqrt(points))


def _check_modes(modes: int, samples: int, points: int) -> None:
    if modes > (largest := min(samples - 1, points)):
        raise ValueError(
            f"basis must be at most {largest} for {samples} training samples of {points} values, "
            f"got {modes}"
        )


class PODDeepONet(Operator):
    """u(yᵢ) = ū(yᵢ) + (1/p) Σₖ βₖ(a) φₖ(yᵢ), with mean ū and POD modes φₖ of training targets.

    The branch β reads a at sensors, as in `DeepONet`. The basis is fixed: `adapt` computes it
    before training by proper orthogonal decomposition of the normalised targets of the training
    split, which must all fit in memory. The basis is saved with the weights. Training that starts
    from saved weights uses the basis saved with them. The modes are known at the training points
    only, so all samples must have these points. Before `adapt` all outputs are nan.

    Each mode has values for all output channels, which share one coefficient. If the channels are a
    block of frames, the modes are thus functions of space and time, as published for advection.
    Modes are orthonormal in the mean over points and channels, without quadrature weights.

    Differences from the released code (lu-group/deeponet-fno, 8096dda): that code computes the
    basis of the Burgers example from the test samples. That code can also add a trunk network to
    the modes. This option is omitted here, because no published result uses it.

    Args:
        sensors: Number m of sensors along each axis.
        sensor_grid: Which points of a finer grid are the sensors: "periodic", "cells", "ends" or
            "points", see `DeepONet`.
        points: Number of points of the domain; by default the number of sensors.
        basis: Number p of modes, smaller than the number of training samples.
        branch: "mlp", or "convolution": two convolutions before the MLP, as in `DeepONet`.
        width: Features of the hidden layers.
        branch_depth: Number of hidden layers.
        channels: Channels of the first convolution; the second has twice as many.
        activation: "tanh", "relu", "gelu" or "silu".

    References: Lu et al. 2022. The factor 1/p is that of the released code.
    """

    domains = EVERYWHERE
    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset({}, 37_152, "Lu et al. 2022, src/burgers/deeponet_POD.py of the code"),
        "darcy": Preset(
            _DARCY,
            631_155,
            "Lu et al. 2022, src/darcy_rectangular_pwc/deeponet_POD.py of the code",
            dim=2,
        ),
    }
    mean: Tensor
    modes: Tensor
    places: Tensor

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        sensors: int = 128,
        sensor_grid: SensorGrid = "periodic",
        points: int | None = None,
        basis: int = 32,
        branch: Branch = "mlp",
        width: int = 128,
        branch_depth: int = 2,
        channels: int = CHANNELS,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        at_least(2, sensors=sensors)
        if sensor_grid != "points":
            self.domains = BOXES
        self.sensors, self.basis = sensors, basis
        self.sensor_grid: SensorGrid = sensor_grid
        self.branch = branch_net(
            branch, in_channels, sensors, sensor_grid, dim, channels,
            [width] * branch_depth, basis, activation,
        )  # fmt: skip
        n = sensor_count(sensors, sensor_grid, dim) if points is None else points
        self.register_buffer("mean", torch.full((n, out_channels), math.nan))
        self.register_buffer("modes", torch.full((basis, n, out_channels), math.nan))
        self.register_buffer("places", torch.full((n, dim), math.nan))

    def check_samples(self, count: int) -> None:
        _check_modes(self.basis, count, self.mean.numel())

    @torch.no_grad()
    def adapt(self, u: Blocks, y: Points) -> None:
        self._check_points(y, values=True)
        if self.places.isfinite().all():  # the basis came with given weights
            return
        # float64 copies, because a block may be overwritten by the next one
        mean, modes = pod(torch.cat([block.flatten(1).double() for block in u]), self.basis)
        self.mean.copy_(mean.view_as(self.mean))
        self.modes.copy_(modes.view_as(self.modes))
        self.places.copy_(y.flatten(0, -2))

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        # not in training: comparing values waits for the device
        self._check_points(x, values=not (self.training or torch.compiler.is_compiling()))
        values = at_sensors(a, x, self.sensors, self.sensor_grid).movedim(-1, 1)
        u = self.mean.flatten() + self.branch(values) @ self.modes.flatten(1) / self.basis
        return u.view(*a.shape[:-1], self.out_channels)

    def _check_points(self, x: Points, values: bool) -> None:
        """Raise ValueError unless x are the training points; before `adapt`, only count them."""
        points, training_points = x.flatten(0, -2), self.places
        count = len(training_points)
        if points.shape != training_points.shape:
            raise ValueError(f"the modes are functions on {count} points, got {len(points)}")
        # before `adapt` differences are nan, and not larger
        if values and ((points - training_points).abs() > _SAME_POINT).any():
            raise ValueError(
                f"the modes are functions on the {count} points of training, got other points"
            )

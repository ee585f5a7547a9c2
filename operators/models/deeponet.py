r"""DeepONet and shift-DeepONet: sums of basis functions, with coefficients from values at sensors.

References: L. Lu, P. Jin, G. Pang, Z. Zhang, G. E. Karniadakis, Learning nonlinear operators via
DeepONet, Nature Machine Intelligence 3, 2021. L. Lu et al., A comprehensive and fair comparison
of two neural operators, CMAME 393, 2022. S. Lanthaler, R. Molinaro, P. Hadorn, S. Mishra,
Nonlinear reconstruction for operator learning of PDEs with discontinuities, ICLR 2023.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from operators.base import (
    BOXES,
    EVERYWHERE,
    MESHES,
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
    ACTIVATIONS,
    CHANNELS,
    Activation,
    Branch,
    SensorGrid,
    at_sensors,
    branch_net,
    linear,
    mlp,
    sensor_count,
)
from operators.nn.tokens import TokenPoints, flattened, mesh
from pdegen.domains import Box, Domain

# POD-DeepONet: a network predicts coefficients of the POD modes of the training targets.


_DARCY_POD = {"sensors": 29, "sensor_grid": "ends", "basis": 115, "branch": "convolution",
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


def _suited(settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
    """Sensors at all points, if the sensors of a circle of length 1 are no points of the domain."""
    sensors, n = settings["sensors"], math.prod(domain.shape)
    assert isinstance(sensors, int)
    circles = isinstance(domain, Box) and all(
        (grid.kind, grid.start, grid.length) == ("periodic", 0, 1) and grid.n % sensors == 0
        for grid in domain.grids
    )
    if settings["sensor_grid"] != "periodic" or circles:
        changed: dict[str, object] = {}
    else:
        changed = {"sensors": n, "sensor_grid": "points"}
    if "points" in settings and settings["points"] is None and n != sensors**domain.dim:
        changed["points"] = n
    return changed


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
            _DARCY_POD,
            631_155,
            "Lu et al. 2022, src/darcy_rectangular_pwc/deeponet_POD.py of the code",
            dim=2,
        ),
    }
    mean: Tensor
    modes: Tensor
    places: Tensor

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        return _suited(settings, domain)

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


Coordinates = Literal["raw", "periodic", "fourier"]

_BRANCH = {"sensors": 29, "sensor_grid": "ends", "branch": "convolution", "branch_depth": 1}
_DARCY = _BRANCH | {"trunk_depth": 3, "activation": "relu", "coordinates": "raw"}
_POINTS = {"sensor_grid": "points", "activation": "gelu", "coordinates": "fourier", "harmonics": 4}
_MESH = _POINTS | {"indices": True}
_OURS = "not published: the widths of the Burgers example, chosen here"
AT_ONCE = 2**27  # hidden values of a trunk in memory: half a gigabyte in float32


def feature_count(coordinates: Coordinates, harmonics: int, dim: int) -> int:
    """Number of features that `features` computes for each point."""
    return dim * {"raw": 1, "periodic": 2 * harmonics, "fourier": 1 + 2 * harmonics}[coordinates]


def features(
    y: Float[Tensor, "*points dim"], coordinates: Coordinates, harmonics: int
) -> Float[Tensor, "*points f"]:
    """Input features of a trunk at the points y: coordinates, sines and cosines of them, or both.

    Args:
        y: Coordinates of the points.
        coordinates, harmonics: Choice of the features and number of frequencies, see `DeepONet`.

    >>> features(torch.tensor([[0.25]]), "fourier", 1)
    tensor([[0.2500, 0.7071, 0.7071]])
    """
    if coordinates == "raw":
        return y
    wave = 2 * math.pi if coordinates == "periodic" else math.pi
    k = torch.arange(1, harmonics + 1, dtype=y.dtype, device=y.device)
    angle = (wave * y[..., None] * k).flatten(-2)  # (*points, dim harmonics)
    waves = [angle.cos(), angle.sin()]
    return torch.cat(waves if coordinates == "periodic" else [y, *waves], dim=-1)


class SensorOperator(Operator):
    """Base class of operators that read a function at fixed sensors. Arguments: see `DeepONet`."""

    domains = EVERYWHERE
    points_by_sample = True
    other_points = True
    indices = False

    @classmethod
    def suited(cls, settings: Mapping[str, object], domain: Domain) -> dict[str, object]:
        return _suited(settings, domain)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dim: int,
        sensors: int,
        sensor_grid: SensorGrid,
        basis: int,
        coordinates: Coordinates,
        harmonics: int,
    ) -> None:
        super().__init__(in_channels, out_channels, dim)
        at_least(2, sensors=sensors)
        if sensor_grid != "points":
            self.domains, self.points_by_sample = BOXES, False
        self.sensors, self.basis, self.harmonics = sensors, basis, harmonics
        self.sensor_grid: SensorGrid = sensor_grid
        self.coordinates: Coordinates = coordinates
        self.values = in_channels * sensor_count(sensors, sensor_grid, dim)
        self.seen = feature_count(coordinates, harmonics, dim)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def features(self, y: Float[Tensor, "*points dim"]) -> Float[Tensor, "*points f"]:
        return features(y, self.coordinates, self.harmonics)

    @abstractmethod
    def decoded(
        self, values: Float[Tensor, "batch c_in *sensors"], y: TokenPoints
    ) -> Float[Tensor, "batch _ c_out"]:
        """u(y) - b at the points y, with bias b, computed from the `values` of a at the sensors."""

    def forward(
        self, a: Function, x: Points, y: Targets | None = None, mask: Mask | None = None
    ) -> Float[Tensor, "batch ... c_out"]:
        check_input(self, a, x, y, mask)
        values = at_sensors(a, x, self.sensors, self.sensor_grid).movedim(-1, 1)
        target, by_sample = x if y is None else y, x.ndim == a.ndim
        if self.indices:
            target, by_sample = mesh(a.shape[1:-1], x), False
        u = self.decoded(values, flattened(target, by_sample)) + self.bias
        return u.reshape(len(u), *target.shape[int(by_sample) : -1], -1)


class DeepONet(SensorOperator):
    """u_c(y) = b_c + Σₖ β_ck(a) τₖ(y): the branch β reads a at sensors, and the trunk τ reads y.

    All output channels and all inputs share the basis functions τₖ, so u is linear in the
    coefficients β(a). The branch reads a at fixed sensors only. The grid of a must therefore
    contain the sensors: it has `sensors` points along each axis, or it is a refinement of such a
    grid (see `sensor_grid`). u can be evaluated at any points y. On meshes and point clouds all
    points are sensors. All samples must then have the same number of points, without padding, and
    the branch does not see the positions of the points.

    The defaults are the published settings of the Burgers example (99,713 parameters). That example
    also normalises the output by its mean and standard deviation at each point, which this class
    does not do. The trunk ends with an activation, as published.

    Args:
        sensors: Number m of sensors along each axis.
        sensor_grid: Which of the n points along an axis are the m sensors. If n = m, all points are
            sensors, wherever they lie. "periodic": every r-th point, where n = r m, at positions
            j/m. "cells": the middle point of each group of r, where n = r m and r is odd, at
            positions (j + 1/2)/m. "ends": every r-th point from the first to the last, where
            n = r (m - 1) + 1. "points": all points of a mesh or cloud in their order; m is then the
            number of all points.
        basis: Number p of basis functions.
        branch: "mlp", or "convolution": two convolutions, followed by the MLP. The convolutions
            have kernels of 5 points along each axis, stride 2 and no padding.
        width: Features of the hidden layers of branch and trunk.
        branch_depth, trunk_depth: Numbers of hidden layers.
        channels: Channels of the first convolution of the branch; the second has twice as many.
        activation: Activation function: "tanh", "relu", "gelu" or "silu".
        coordinates: Features of each coordinate y in the trunk. "raw": y itself. "periodic":
            cos 2πky and sin 2πky. "fourier", for functions that are not periodic: y, cos πky and
            sin πky.
        harmonics: Number of frequencies k = 1, 2, ... in these features.
        indices: Whether the trunk reads the indices of the points of a mesh, j/n along each axis,
            instead of their positions y. The basis functions then do not depend on the shape of the
            mesh. Needs sensor_grid "points"; u is then given at the points of a only.

    References: Lu et al. 2021, unstacked DeepONet with bias. The settings are those of the code
    released with Lu et al. 2022. For several output channels we split the output of the branch and
    share the trunk; this is our choice.

    >>> model = DeepONet()
    >>> model.parameter_count
    99713
    >>> x, y = torch.arange(256)[:, None] / 256, torch.rand(7, 1)
    >>> model(torch.randn(2, 256, 1), x, y).shape
    torch.Size([2, 7, 1])
    """

    presets: ClassVar[Mapping[str, Preset]] = {
        "burgers": Preset({}, 99_713, "Lu et al. 2022, src/burgers/deeponet.py of the code"),
        "darcy": Preset(
            _DARCY,
            682_753,
            "Lu et al. 2022, src/darcy_rectangular_pwc/deeponet.py of the code",
            dim=2,
        ),
        "elasticity": Preset(_POINTS | {"sensors": 972}, 333_953, _OURS, (2, 1), dim=2),
        "airfoil": Preset(_MESH | {"sensors": 221 * 51}, 2_970_497, _OURS, (2, 1), dim=2),
        "pipe": Preset(_MESH | {"sensors": 129 * 129}, 4_345_217, _OURS, (2, 1), dim=2),
        "plasticity": Preset(_POINTS | {"sensors": 101 * 31}, 903_170, _OURS, (2, 2), dim=2),
    }

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        sensors: int = 128,
        sensor_grid: SensorGrid = "periodic",
        basis: int = 128,
        branch: Branch = "mlp",
        width: int = 128,
        branch_depth: int = 3,
        trunk_depth: int = 2,
        channels: int = CHANNELS,
        activation: Activation = "tanh",
        coordinates: Coordinates = "periodic",
        harmonics: int = 2,
        indices: bool = False,
    ) -> None:
        super().__init__(
            in_channels, out_channels, dim, sensors, sensor_grid, basis, coordinates, harmonics
        )
        if indices:
            if sensor_grid != "points":
                raise ValueError(f'indices=true needs sensor_grid "points", got {sensor_grid!r}')
            self.indices, self.domains, self.other_points = True, MESHES, False
        self.branch = branch_net(
            branch, in_channels, sensors, sensor_grid, dim, channels,
            [width] * branch_depth, basis * out_channels, activation,
        )  # fmt: skip
        self.trunk = nn.Sequential(
            *mlp([self.seen, *[width] * trunk_depth, basis], activation), ACTIVATIONS[activation]()
        )

    def decoded(
        self, values: Float[Tensor, "batch c_in *sensors"], y: TokenPoints
    ) -> Float[Tensor, "batch _ c_out"]:
        beta = self.branch(values).unflatten(1, (-1, self.basis))
        return torch.matmul(beta, self.trunk(self.features(y)).mT).mT


class ShiftDeepONet(SensorOperator):
    """u_c(y) = b_c + Σₖ β_ck(a) τₖ(Aₖ(a) y + γₖ(a)): each basis function moves with the input.

    Three networks compute the scales A (diagonal matrices), the shifts γ and the coefficients β
    from the values of a at the sensors. A basis that moves with a can follow shocks; a fixed basis
    cannot. The trunk is one network with p outputs. Output k is needed only at the points moved by
    Aₖ and γₖ, so the trunk is evaluated at batch x points x p moved points. If these are too many,
    they are processed in chunks, whose hidden values are recomputed in the backward pass.

    The authors found their widths by random search for each problem; the default widths here are
    our choice. The paper allows full matrices A; we chose diagonal ones. The initial values, close
    to 1 for A and close to 0 for γ, are our choice too.

    Args:
        sensors: Number m of sensors along each axis.
        sensor_grid: Which points are the sensors: "periodic", "cells", "ends" or "points", see
            `DeepONet`.
        basis: Number p of basis functions.
        width: Features of the hidden layers of the networks for A, γ and β.
        branch_depth: Number of hidden layers of each of these networks.
        trunk_width, trunk_depth: Features and number of the hidden layers of the trunk.
        coordinates: Features of the moved points Aₖ y + γₖ in the trunk: "raw" (published),
            "periodic" or "fourier", see `DeepONet`. With "periodic", u is periodic in y only if the
            scales are integers.
        harmonics: Number of frequencies k = 1 ... harmonics in the features of the trunk.

    Raises:
        ValueError: If a size is too small, or if the grid of a does not contain the sensors.

    References: Lanthaler et al. 2023.

    >>> model = ShiftDeepONet(sensors=32)
    >>> model(torch.randn(2, 32, 1), torch.arange(32)[:, None] / 32).shape
    torch.Size([2, 32, 1])
    """

    def __init__(
        self,
        *,
        in_channels: int = 1,
        out_channels: int = 1,
        dim: int = 1,
        sensors: int = 128,
        sensor_grid: SensorGrid = "periodic",
        basis: int = 64,
        width: int = 128,
        branch_depth: int = 3,
        trunk_width: int = 64,
        trunk_depth: int = 3,
        activation: Activation = "gelu",
        coordinates: Coordinates = "raw",
        harmonics: int = 2,
    ) -> None:
        super().__init__(
            in_channels, out_channels, dim, sensors, sensor_grid, basis, coordinates, harmonics
        )
        layers = [self.values, *[width] * branch_depth]
        self.branch = mlp([*layers, basis * out_channels], activation)
        # small last weights: the moved points start close to y
        self.scale = mlp([*layers, basis * dim], activation, gain=0.1, offset=1.0)
        self.shift = mlp([*layers, basis * dim], activation, gain=0.1)
        # row k of the last weight acts on the features of basis function k: see `_part`
        self.hidden = nn.Sequential(
            *mlp([self.seen, *[trunk_width] * trunk_depth], activation), ACTIVATIONS[activation]()
        )
        self.last = linear(trunk_width, basis)
        self.trunk_width = trunk_width

    def _part(
        self,
        y: TokenPoints,
        scale: Float[Tensor, "batch p dim"],
        shift: Float[Tensor, "batch p dim"],
        weights: Float[Tensor, "batch p_times_width c_out"],
    ) -> Float[Tensor, "batch _ c_out"]:
        """Σₖ β_ck Wₖ · h(Aₖ y + γₖ), where W is the last weight of the trunk and h the rest."""
        moved = torch.addcmul(shift[:, None], scale[:, None], y[..., None, :])  # (batch, n, p, dim)
        h = self.hidden(self.features(moved))
        return torch.bmm(h.flatten(2), weights)

    def decoded(
        self, values: Float[Tensor, "batch c_in *sensors"], y: TokenPoints
    ) -> Float[Tensor, "batch _ c_out"]:
        values = values.flatten(1)
        beta = self.branch(values).unflatten(1, (-1, self.basis))  # (batch, c_out, p)
        scale, shift = (f(values).unflatten(1, (-1, self.dim)) for f in (self.scale, self.shift))
        weights = (beta[..., None] * self.last.weight).flatten(2).mT  # (batch, p w, c_out)
        count = max(1, AT_ONCE // (len(values) * self.basis * self.trunk_width))
        parts = y.split(count, dim=-2)
        if len(parts) == 1 or not torch.is_grad_enabled():
            sums = [self._part(part, scale, shift, weights) for part in parts]
        else:
            sums = [
                checkpoint(
                    self._part, part, scale, shift, weights,
                    use_reentrant=False, preserve_rng_state=False,
                )
                for part in parts
            ]  # fmt: skip
        return torch.cat(sums, dim=1) + (beta @ self.last.bias)[:, None]

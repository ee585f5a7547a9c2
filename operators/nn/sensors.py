"""Values of functions at fixed sensors, and branch networks with these values as input."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Function, Points

Activation = Literal["tanh", "relu", "gelu", "silu"]
Branch = Literal["mlp", "convolution"]
SensorGrid = Literal["periodic", "cells", "ends", "points"]

CHANNELS = 64  # default of the first convolution of a branch
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


def linear(c_in: int, c_out: int, gain: float = 1.0, offset: float = 0.0) -> nn.Linear:
    """A linear layer with Glorot-normal initial weights and initial biases `offset`."""
    layer = nn.Linear(c_in, c_out)
    nn.init.xavier_normal_(layer.weight, gain)
    nn.init.constant_(layer.bias, offset)
    return layer


def mlp(
    sizes: Sequence[int], activation: Activation, gain: float = 1.0, offset: float = 0.0
) -> nn.Sequential:
    """Linear layers with activations between them; `gain` and `offset` are for the last layer."""
    *hidden, last = pairwise(sizes)
    layers: list[nn.Module] = []
    for pair in hidden:
        layers += [linear(*pair), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, linear(*last, gain, offset))


def at_sensors(
    a: Function, x: Points, sensors: int, sensor_grid: SensorGrid
) -> Float[Tensor, "batch ... c_in"]:
    """Values of a at the sensors, which form a grid with `sensors` points along each axis.

    With sensor_grid "points" the sensors are all points of a, and `sensors` is their total number.

    Raises:
        ValueError: If the sensors are not points of the grid x.
    """
    if sensor_grid == "points":
        a = a.flatten(1, -2)
        if a.shape[1] != sensors:
            raise ValueError(
                f"the branch reads a at all points: there must be {sensors}, got {a.shape[1]}"
            )
        return a
    refined = False
    for axis, n in enumerate(x.shape[:-1]):
        if n == sensors:
            continue
        refined = True
        if sensor_grid == "ends":
            stride, rest = divmod(n - 1, sensors - 1)
            start, rule = 0, f"r * {sensors - 1} + 1 points"
        else:
            stride, rest = divmod(n, sensors)
            start, rule = 0, f"r * {sensors} points"
            if sensor_grid == "cells":
                # the centre of a coarse cell is that of a fine cell if the ratio is odd
                start, rule = stride // 2, f"{rule}, r odd"
                rest = rest or stride % 2 == 0
        if rest or not stride:
            raise ValueError(
                f"{sensors} sensors on a grid of kind {sensor_grid!r} lie on grids of {rule} "
                f"along each axis, got {n}"
            )
        chosen = torch.arange(start, n, stride, device=a.device)
        a, x = a.index_select(axis + 1, chosen), x.index_select(axis, chosen)
    if refined and sensor_grid != "ends":
        offset = 0.5 if sensor_grid == "cells" else 0.0
        line = (torch.arange(sensors, dtype=x.dtype, device=x.device) + offset) / sensors
        lines = torch.meshgrid([line] * x.shape[-1], indexing="ij")
        # reads values of x, which waits for the device and breaks the graph of torch.compile once
        if not torch.allclose(x, torch.stack(lines, dim=-1), rtol=0, atol=0.01 / sensors):
            raise ValueError(
                f"sensors on a grid of kind {sensor_grid!r} lie at (j + {offset}) / {sensors}, "
                "but the grid x of the input has no points there"
            )
    return a


def convolutions(
    in_channels: int, channels: int, sensors: int, dim: int, activation: Activation
) -> tuple[list[nn.Module], int]:
    """Two convolutions with stride 2 and 5 kernel points per axis, and their number of outputs."""
    size = ((sensors - 3) // 2 - 3) // 2
    if size < 1:
        raise ValueError(f"the convolution branch needs at least 13 sensors, got {sensors}")
    convolution = nn.Conv1d if dim == 1 else nn.Conv2d
    layers: list[nn.Module] = []
    for c_in, c_out in pairwise((in_channels, channels, 2 * channels)):
        layer = convolution(c_in, c_out, 5, stride=2)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)  # pyright: ignore[reportArgumentType] - not None
        layers += [layer, ACTIVATIONS[activation]()]
    return [*layers, nn.Flatten()], 2 * channels * size**dim


def sensor_count(sensors: int, sensor_grid: SensorGrid, dim: int) -> int:
    """Total number of sensors, equal to `sensors` if the sensor grid is "points"."""
    return sensors if sensor_grid == "points" else sensors**dim


def branch_net(
    branch: Branch,
    in_channels: int,
    sensors: int,
    sensor_grid: SensorGrid,
    dim: int,
    channels: int,
    hidden: Sequence[int],
    outputs: int,
    activation: Activation,
) -> nn.Sequential:
    """Network that maps values at sensors, shape (batch, c_in, *sensors), to coefficients."""
    if channels != CHANNELS and branch != "convolution":
        raise ValueError(f'channels={channels} needs branch "convolution", got {branch!r}')
    layers = list[nn.Module]([nn.Flatten()])
    values = in_channels * sensor_count(sensors, sensor_grid, dim)
    if branch == "convolution":
        if sensor_grid == "points":
            raise ValueError('the convolution branch needs sensors on a grid, got "points"')
        layers, values = convolutions(in_channels, channels, sensors, dim, activation)
    return nn.Sequential(*layers, *mlp([values, *hidden, outputs], activation))

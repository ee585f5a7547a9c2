"""Claims about an operator on a periodic grid, each a function that raises ContractError.

Functions have values of shape (batch, *grid, channels) on a grid x of shape (*grid, dim).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from operators.base import Operator, check_input
from operators.training.checkpoint import load_checkpoint, saving_checkpoint
from operators.training.step import Watch
from operators.transforms import Normalizer, Predictor


class ContractError(AssertionError):
    """An operator does not keep the contract. The message is one sentence."""


def close(values: Tensor, expected: Tensor, rtol: float, atol: float, claim: str) -> None:
    """Raise ContractError with the claim and the largest difference unless values agree."""
    if values.shape != expected.shape:
        shapes = f"{tuple(values.shape)} and {tuple(expected.shape)}"
        raise ContractError(f"{claim}: the shapes are {shapes}")
    values, expected = values.detach(), expected.detach()
    if not torch.allclose(values, expected, rtol=rtol, atol=atol):
        largest = float((values - expected).abs().max())
        size = float(expected.abs().max())
        raise ContractError(f"{claim}: values up to {size:.3g} differ by up to {largest:.3g}")


_POINTS = {1: 16, 2: 16, 3: 12}  # along each axis, by the number of dimensions


def points(dim: int, n: int | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
    """A periodic grid with n points along each axis, shape (*grid, dim)."""
    n = n or _POINTS[dim]
    axis = torch.arange(n, dtype=dtype) / n
    return torch.stack(torch.meshgrid(*[axis] * dim, indexing="ij"), dim=-1)


def functions(
    dim: int,
    n: int | None = None,
    batch: int = 3,
    dtype: torch.dtype = torch.float64,
    channels: int = 1,
) -> Tensor:
    """Random values on a grid, shape (batch, *grid, channels)."""
    torch.manual_seed(2)
    return torch.randn(batch, *[n or _POINTS[dim]] * dim, channels, dtype=dtype)


def shaken(model: Operator) -> Operator:
    """The operator after adding random numbers to its weights, so that every term counts."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def settled(model: Operator, *inputs: Any, batches: int = 3) -> Operator:
    """The operator in evaluation mode, after some batches for its running averages."""
    model.train()
    with torch.no_grad():
        for _ in range(batches):
            model(*inputs)
    return model.eval()


def gradient_reaches_every_parameter(model: Operator, a: Tensor, x: Tensor) -> None:
    """The gradient of a loss reaches every parameter."""
    # in training, a batch norm makes the bias before it void
    model.eval()(a, x).square().sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            raise ContractError(f"the parameter {name} has no gradient: it does not act on u")
        if parameter.grad is not None and not parameter.grad.abs().max() > 0:
            raise ContractError(f"the gradient of the parameter {name} is 0")


def evaluation_is_deterministic(model: Operator, a: Tensor, x: Tensor) -> None:
    """Evaluation gives the same values again. It changes neither the state of the operator nor
    random numbers, so a training that is evaluated is the same."""
    u = model(a, x)
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    if not torch.equal(model(a, x), u):
        raise ContractError("two evaluations of one input differ: is eval() ignored by dropout?")
    if not torch.equal(torch.get_rng_state(), random):
        raise ContractError("an evaluation draws random numbers, which changes a training")
    for name, value in model.state_dict().items():
        if not torch.equal(value, state[name]):
            raise ContractError(f"an evaluation changes the buffer {name}")


def batch_equals_its_samples(model: Operator, a: Tensor, x: Tensor) -> None:
    """The values for a batch are those for each of its samples."""
    singles = torch.cat([model(one[None], x) for one in a])
    close(singles, model(a, x), 1e-9, 1e-9, "a sample has other values in a batch than alone")


def saves_and_loads(
    model: Operator,
    a: Tensor,
    x: Tensor,
    described: Mapping[str, Any],
    build: Callable[[dict[str, Any]], Operator],
    folder: Path,
) -> None:
    """A copy, and the operator that is loaded from a checkpoint, give the same bits.

    Args:
        described: Description of the operator in the checkpoint.
        build: Function that builds the operator from this description.
        folder: Folder of the checkpoint.
    """
    u, path = model(a, x), folder / "m.safetensors"
    if not torch.equal(copy.deepcopy(model)(a, x), u):
        raise ContractError("a copy of the operator gives other values")
    input, target = (Normalizer.identity(n) for n in (model.in_channels, model.out_channels))
    saving_checkpoint(path, Predictor(model, input, target), {"operator": dict(described)})()
    loaded, _ = load_checkpoint(path, build)
    if not torch.equal(loaded.operator(a, x), u):
        raise ContractError(
            "the operator of a checkpoint gives other values: keep what is not a parameter in "
            "buffers (register_buffer)"
        )


def single_precision_agrees_with_double(model: Operator, a: Tensor, x: Tensor) -> None:
    """Values in float32 agree with those in float64, and are float32."""
    u, v = model(a, x), copy.deepcopy(model).float()(a.float(), x.float())
    if v.dtype != torch.float32:
        raise ContractError(f"an operator and inputs in float32 give {v.dtype}")
    # rounding, amplified by the Cholesky factor of ONO
    difference = float(((v - u).norm() / u.norm()).detach())
    if not difference < 2e-3:
        raise ContractError(f"float32 differs from float64 by {difference:.3g} of the values")


def compiles(model: Operator, a: Tensor, x: Tensor, backend: str = "eager") -> None:
    """`torch.compile` makes one graph of the operator, which gives the same values.

    Args:
        backend: "eager" traces values; "aot_eager" traces gradients as well.
    """
    torch.compiler.reset()
    expected = model(a, x).detach()
    try:
        compiled = torch.compile(model, backend=backend, fullgraph=True)(a, x)
    except Exception as error:  # torch raises many kinds
        first = str(error).strip().partition("\n")[0]
        raise ContractError(f"the operator does not compile to one graph: {first}") from error
    size = float(expected.abs().max())  # random features lose digits everywhere
    close(compiled, expected, 1e-4, 1e-4 * size, "the compiled operator gives other values")


def step_never_waits(model: Operator, a: Tensor, x: Tensor, device: str = "meta") -> None:
    """A training step asks for no value, so that a GPU runs it as one recorded graph.

    In place of a GPU there are tensors without values. Any value that is asked for is an error, and
    copies from the processor are counted.
    """
    model, a, x = model.train().to(device), a.to(device), x.to(device)
    model(a, x)  # what is made once and kept
    with Watch() as watch:
        model(a, x).square().mean().backward()
    if watch.waits:
        raise ContractError(f"a step waits for values of the device in {', '.join(watch.waits)}")


def converges(model: Operator) -> None:
    """Values converge as the grid is refined: for a smooth function, halving the spacing changes
    them by less than 5 %, and less than the halving before."""
    dim = model.dim

    def values(n: int) -> Tensor:
        x = points(dim, n)
        wave = torch.sin(2 * torch.pi * x).prod(-1, keepdim=True)[None] + 0.3
        with torch.no_grad():
            return model(wave, x)[(0, *[slice(None, None, n // first)] * dim)]

    first = 32 if dim == 1 else 16
    coarse, fine, finest = values(first), values(2 * first), values(4 * first)
    change = float((finest - fine).norm() / finest.norm())
    before = float((fine - coarse).norm() / finest.norm())
    if not (change < 0.05 and change < 0.8 * before + 1e-6):
        raise ContractError(
            f"values on {first}, {2 * first} and {4 * first} points along each axis differ by "
            f"{before:.3g}, then by {change:.3g}: they do not converge as the grid is refined"
        )


def other_shapes_are_refused(model: Operator) -> None:
    """Inputs of other shapes raise ValueError in `check_input`."""
    dim, x, channels = model.dim, points(model.dim), model.in_channels
    clouds, n = "cloud" in model.domains and dim == 2, len(x)
    other_dim = "expected coordinates of shape" if clouds else "expected input of shape"
    for shape, message in (
        ((*[n] * dim, channels + 1), "expected input of shape"),
        ((*[n] * (1 if dim == 2 else 2), channels), other_dim),
        ((*[n - 1] * dim, channels), "expected coordinates of shape"),
    ):
        a = torch.zeros(2, *shape, dtype=torch.float64)
        refused(message, f"an input of shape {tuple(a.shape)}", check_input, model, a, x)


def output_points_are_met_or_refused(model: Operator, a: Tensor, x: Tensor) -> None:
    """Values at other points y have the shape of y; without `other_points`, y is refused."""
    y = x[tuple(slice(None, None, 2) for _ in range(model.dim))] + 0.01
    if not model.other_points:
        refused("y must be None", "points y, which the class does not declare", model, a, x, y)
        return
    shape, expected = tuple(model(a, x, y).shape), (len(a), *y.shape[:-1], model.out_channels)
    if shape != expected:
        raise ContractError(f"values at points y have the shape {shape}, expected {expected}")


def equal_weights_are_none(model: Operator, a: Tensor, x: Tensor) -> None:
    """Equal quadrature weights give the values without weights."""
    call: Any = model
    weighted = call(a, x, weight=torch.full(x.shape[:-1], 0.5, dtype=x.dtype))
    close(weighted, model(a, x), 1e-7, 1e-9, "equal weights give other values than none")


def refused(message: str, what: str, function: Callable[..., object], *arguments: object) -> None:
    """Raise ContractError unless a call raises a ValueError that contains the message."""
    try:
        function(*arguments)
    except ValueError as error:
        if message in str(error):
            return
        raise ContractError(f"{what} should be refused by {message!r}, not {error}") from error
    raise ContractError(
        f"{what} is not refused: call check_input(self, a, x, y, mask) at the beginning of forward"
    )


def overfits(
    model: Operator,
    lr: float = 5e-3,
    steps: int = 300,
    reaches: float = 1e-2,
    evaluates: float | None = None,
) -> None:
    """Training on eight samples learns a map with a local and a global part: u = a² - ½ ∫ a².

    Args:
        model: An operator from one to one channel, in float32.
        lr: Learning rate of Adam; a cosine to 0.
        steps: Number of steps.
        reaches: Bound of the relative L² error in training.
        evaluates: Bound of the error in evaluation; by default `reaches`.
    """
    dim, n = model.dim, {1: 32, 2: 16, 3: 12}[model.dim]
    x = points(dim, n, torch.float32)
    phase = torch.arange(8.0)[:, None] / 8
    wave = torch.sin(2 * torch.pi * (x.sum(-1)[None] + phase.reshape(8, *[1] * dim)))
    a = (wave * (1 + phase.reshape(8, *[1] * dim)))[..., None]
    u = a.square()
    u = u - 0.5 * u.flatten(1).mean(1).reshape(8, *[1] * (dim + 1))
    model.adapt([u], x)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def error(v: Tensor) -> Tensor:
        return ((v - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)).mean()

    learned = torch.zeros(())
    for _ in range(steps):
        learned = error(model(a, x))
        optimizer.zero_grad()
        learned.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        evaluated, constant = float(error(model.eval()(a, x))), float(error(u.mean(0)))
    for mode, measured, bound in (
        ("training", float(learned.detach()), reaches),
        ("evaluation", evaluated, evaluates or reaches),
        ("evaluation", evaluated, 0.5 * constant),  # half the error of the mean of the targets
    ):
        if not measured < bound:
            raise ContractError(
                f"after {steps} steps on eight samples the error in {mode} is {measured:.3g}, not "
                f"below {bound:.3g}"
            )

"""The contract of an operator: all claims, in all dimensions and on all domains it declares."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from operators.base import Operator
from operators.testing import checks, domains
from operators.testing.checks import ContractError, functions, points, settled, shaken

Claim = tuple[str, Callable[[], None]]


@dataclass(frozen=True)
class Expected:
    """Properties to check that the class of an operator does not declare.

    Args:
        lr: Learning rate of a short training on eight samples.
        steps: Number of steps of this training. 0 omits the training.
        reaches: Largest relative L² error on the eight samples after the training.
        converges: Whether the output must converge as the grid is refined. Set it to False for
            convolutions over a fixed number of points.
        ordered: Whether the output may depend on the order of the points of a cloud.
        compiles: Whether `torch.compile` must translate the operator to a single graph.
        records: Whether a training step must not read values back from the device. CUDA graphs
            need such steps.
    """

    lr: float = 5e-3
    steps: int = 300
    reaches: float = 0.1
    converges: bool = True
    ordered: bool = False
    compiles: bool = False
    records: bool = False


def check_operator(
    operator: type[Operator],
    expected: Expected | None = None,
    /,
    *,
    dims: Sequence[int] | None = None,
    **settings: object,
) -> list[str]:
    """Check an operator against the contract, which the trainer relies on.

    The contract is a list of claims, such as "a batch equals its samples". Each claim is checked on
    every number of dimensions and every domain that the class declares. The operator need not be
    registered. A test calls, for example, `check_operator(MyOperator, width=16)`.

    Args:
        operator: Class of the operator.
        expected: Properties that the class does not declare; by default those of `Expected()`.
        dims: Numbers of space dimensions; by default those that the class supports.
        settings: Arguments of the constructor. An operator with a small width and few layers is
            checked in seconds.

    Returns:
        The claims that were checked, one sentence each.

    Raises:
        ContractError: If a claim does not hold. The message names the claim.
        ValueError, TypeError: If the operator cannot be constructed with these settings.
    """
    expected = expected or Expected()
    checked = list[str]()
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        for dim in dims if dims is not None else operator.dims_with(settings):
            build = _Build(operator, settings, dim)
            build.new()  # impossible settings are no fault of the operator
            claims = (_on_a_grid(build, expected, Path(folder)), _on_domains(build, expected))
            for claim, check in (pair for part in claims for pair in part):
                checked.append(f"in {dim}-D: {claim}")
                try:
                    check()
                except ContractError as error:
                    raise ContractError(f"{checked[-1]}: not kept: {error}") from error
                except Exception as error:  # raised by the operator
                    kind, first = type(error).__name__, str(error).partition("\n")[0]
                    raise ContractError(f"{checked[-1]}: {kind}: {first}") from error
    return checked


@dataclass(frozen=True)
class _Build:
    """Builds an operator with the settings of a test, in one dimension."""

    operator: Callable[..., Operator]
    settings: dict[str, object]
    dim: int

    def new(self, *channels: int) -> Operator:
        """The operator as it is constructed, by default from one to one channel."""
        torch.manual_seed(1)
        inner, outer = channels or (1, 1)
        return self.operator(in_channels=inner, out_channels=outer, dim=self.dim, **self.settings)

    def __call__(self, dtype: torch.dtype = torch.float64, *channels: int) -> Operator:
        """The operator with shaken weights, so that every term counts."""
        model = shaken(self.new(*channels))
        x = points(self.dim, dtype=torch.float32)
        model.adapt([torch.randn(20, *x.shape[:-1], model.out_channels)], x)
        return model.to(dtype)


def _on_a_grid(build: _Build, expected: Expected, folder: Path) -> Iterator[Claim]:
    """The claims on a periodic grid."""
    dim, single = build.dim, torch.float32
    a, x = functions(dim), points(dim)
    coarse = functions(dim, dtype=single), points(dim, dtype=single)

    def ready() -> Operator:
        return settled(build(), a, x)

    def saves_and_loads() -> None:
        model = settled(build(single), *coarse)
        checks.saves_and_loads(model, *coarse, {}, lambda _: build.new(), folder)

    def channels() -> None:
        of_two = functions(dim, channels=2)
        shape = settled(build(torch.float64, 2, 3), of_two, x)(of_two, x).shape
        if shape != (*of_two.shape[:-1], 3):
            raise ContractError(f"u has the shape {tuple(shape)} for a of {tuple(of_two.shape)}")

    yield (
        "the gradient reaches every parameter",
        lambda: checks.gradient_reaches_every_parameter(build(), a, x),
    )
    yield "evaluation is deterministic", lambda: checks.evaluation_is_deterministic(ready(), a, x)
    yield "a batch equals its samples", lambda: checks.batch_equals_its_samples(ready(), a, x)
    yield "it maps 2 channels to 3", channels
    yield "a checkpoint gives the same bits", saves_and_loads
    yield (
        "float32 agrees with float64",
        lambda: checks.single_precision_agrees_with_double(ready(), a, x),
    )
    yield "other shapes are refused", lambda: checks.other_shapes_are_refused(build())
    yield (
        "points y are met or refused",
        lambda: checks.output_points_are_met_or_refused(build().eval(), a, x),
    )
    if build().weights:
        yield "equal weights are none", lambda: checks.equal_weights_are_none(ready(), a, x)
    if expected.converges:
        yield "values converge as the grid is refined", lambda: checks.converges(build().eval())
    if expected.compiles:
        yield (
            "it compiles to one graph",
            lambda: checks.compiles(settled(build(single), *coarse), *coarse),
        )
    if expected.records:
        yield (
            "a step never waits for values",
            lambda: checks.step_never_waits(build(single), *coarse),
        )
    if expected.steps:
        learning = expected.lr, expected.steps, expected.reaches
        yield "eight samples are learned", lambda: checks.overfits(build.new(), *learning)


def _on_domains(build: _Build, expected: Expected) -> Iterator[Claim]:
    """The claims on the domains that the class declares."""
    model = build()
    for way in (way for way in domains.WAYS if domains.takes(model, way)):
        check = domains.batch_equals_its_samples_and_padding_changes_nothing
        yield f"a batch equals its samples, {way} points", partial(check, build(), way)
    yield "other domains are refused", partial(domains.other_domains_are_refused, build())
    if domains.takes(model, "cloud by sample"):
        if not expected.ordered:
            check = domains.permutes_with_the_points
            yield "permuted points of a cloud permute the values", partial(check, build())
        if model.other_points:
            check = domains.samples_have_points_of_their_own
            yield "each sample has points y of its own", partial(check, build())

"""Optimisers of experiments. Each is a class of settings; its objects make a PyTorch optimiser."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.base import Count, Decay, Divisor, Factor, Fraction, NonNegative, require
from operators.registry import register_optimizer, register_schedule
from operators.training.step import Repeated

# Learning rate schedules. A schedule is a function (lr, step, steps, epochs) -> rate of the step.


_HIGH, _LOW = 0.95, 0.85  # momentum of the 1cycle at the ends and at the peak of the rate


Schedule = Callable[[float, int, int, int], float]  # (lr, step, steps, epochs) -> rate


@dataclass(frozen=True)
class OneCycle:
    """1cycle: the rate rises from lr/div to lr and falls to lr/(div final_div), along cosines.

    Adam's β₁ falls from 0.95 to 0.85 while the rate rises, and rises back to 0.95.

    Args:
        warmup: Fraction of the steps before the peak of the learning rate. [1]
        div: The learning rate starts at lr/div. [1]
        final_div: The learning rate ends at lr/(div final_div). [1]

    References: L. N. Smith and N. Topin, Super-convergence, 2019; as `OneCycleLR` of PyTorch.
    """

    warmup: Fraction = 0.3
    div: Divisor = 1e4
    final_div: Divisor = 1e4

    def __post_init__(self) -> None:
        require(0 < self.warmup < 1, "need 0 < warmup < 1", self.warmup)
        require(min(self.div, self.final_div) >= 1, "need div, final_div >= 1", self.div,
                self.final_div)  # fmt: skip

    def check(self, steps: int, epochs: int) -> None:
        """Raise ValueError if the rise is a single step, whose slope would be infinite."""
        if self.warmup * steps == 1:
            raise ValueError(
                f"warmup {self.warmup} is one step of {steps}: the learning rate cannot rise "
                "within one step, use another warmup or more epochs"
            )

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        first = lr / self.div
        return self._between(first, lr, first / self.final_div, step, steps)

    def momentum(self, step: int, steps: int, epochs: int) -> float:
        """Adam's β₁ in a step."""
        return self._between(_HIGH, _LOW, _HIGH, step, steps)

    def _between(self, first: float, peak: float, last: float, step: int, steps: int) -> float:
        top = float(self.warmup * steps) - 1
        if step <= top:
            return _cosine(first, peak, step / top)
        return _cosine(peak, last, (step - top) / (steps - 1 - top))


@dataclass(frozen=True)
class Cosine:
    """The rate rises linearly to lr, then falls along a cosine to end · lr after the last step.

    With w = warmup · steps it is lr (s + 1)/(w + 1) in step s < w, and later
    lr (end + (1 - end) (1 + cos π(s - w)/(steps - w))/2).

    Args:
        warmup: Fraction of the steps in which the rate rises; 0 for none. [1]
        end: The rate after the last step, divided by lr. [1]

    References: I. Loshchilov and F. Hutter, SGDR, ICLR 2017, eq. 5.
    """

    warmup: Decay = 0.05
    end: Decay = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.warmup < 1 and 0 <= self.end < 1, "need 0 <= warmup, end < 1",
                self.warmup, self.end)  # fmt: skip

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        rise = self.warmup * steps
        if step < rise:
            return lr * (step + 1) / (rise + 1)
        return _cosine(lr, self.end * lr, (step - rise) / (steps - rise))


@dataclass(frozen=True)
class StepDecay:
    """The rate is multiplied by a factor after every few epochs: lr factor^⌊epoch/every⌋.

    Epochs are counted from 0.

    Args:
        factor: The factor. [1]
        every: Number of epochs with the same rate.
    """

    factor: Factor = 0.5
    every: Count = 100

    def __post_init__(self) -> None:
        require(0 < self.factor <= 1, "factor must be > 0 and <= 1", self.factor)
        require(self.every >= 1, "every must be >= 1", self.every)

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        return lr * self.factor ** (step * epochs // steps // self.every)


@dataclass(frozen=True)
class Constant:
    """The rate is lr in all steps."""

    def __call__(self, lr: float, step: int, steps: int, epochs: int) -> float:
        return lr


def _cosine(start: float, end: float, part: float) -> float:
    """Value between `start` and `end`, along half a cosine."""
    return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


class Scheduled:
    """The learning rates of an optimiser, step by step.

    Each parameter group has its own peak, the rate with which it was constructed.

    Args:
        cycle_momentum: Whether the schedule also sets the momentum, or Adam's β₁, if it has one.

    Raises:
        ValueError: If the schedule cannot have this length, or if a rate is negative or not finite.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        steps: int,
        epochs: int,
        cycle_momentum: bool = False,
    ) -> None:
        self.optimizer, self.schedule, self.length = optimizer, schedule, (steps, epochs)
        self.peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self.momentum: Callable[..., float] | None = (
            getattr(schedule, "momentum", None) if cycle_momentum else None
        )
        self.go_to(0)

    def go_to(self, step: int) -> None:
        """Set the rates of a step, given by the number of earlier steps."""
        self.number = step
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            rate = self.schedule(peak, step, *self.length)
            if not 0 <= rate < math.inf:
                name = type(self.schedule).__name__
                raise ValueError(
                    f"the schedule {name} gives the learning rate {rate} in step {step}"
                )
            group["lr"] = rate
            if self.momentum is None:
                continue
            momentum = self.momentum(step, *self.length)
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            elif "momentum" in group:
                group["momentum"] = momentum
            else:
                raise ValueError("the optimizer has no momentum that a schedule can set")

    def step(self) -> None:
        """Set the rates of the next step."""
        self.go_to(self.number + 1)

    @property
    def rate(self) -> float:
        """Learning rate of the first parameter group in the present step."""
        return float(self.optimizer.param_groups[0]["lr"])


register_schedule("1cycle", OneCycle)
register_schedule("cosine", Cosine)
register_schedule("steps", StepDecay)
register_schedule("constant", Constant)


# SOAP: Adam in the eigenbasis of Shampoo's preconditioners.


# pyright: reportPrivateImportUsage=false
# torch._foreach_* act on lists of tensors; PyTorch's optimizers use them too


LARGEST = 1024  # dimension of the largest eigenbasis

Basis = Float[Tensor, "count k k"]
Matrices = Float[Tensor, "count m n"]


def _as_matrices(t: Tensor) -> Matrices:
    """Reshape a weight to a stack of matrices."""
    if t.ndim == 2:
        return t[None]
    if t.ndim == 3:
        return t
    if t.shape[-1] == 2:
        return t.flatten(-2).flatten(0, -3)
    return t.flatten(1)[None]


class SOAP(torch.optim.Optimizer):
    """The SOAP optimizer, W <- W - lr Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ for a matrix W with gradient G.

    Q_L and Q_R are the eigenvectors of running means of G Gᵀ and Gᵀ G. Adam's second moment is
    computed in these eigenbases. Every few steps, one orthogonal iteration updates the bases. Plain
    Adam updates vectors and matrices with a single row or column. The first step computes the
    bases, but does not change the matrices. A missing gradient counts as 0. Axes with more than
    `LARGEST` rows or columns keep the identity as their basis, as in one-sided SOAP: their
    eigenvectors would take longer, and more memory, than the training.

    Args:
        params: Parameters with one or more axes. Weights that are not matrices are reshaped as in
            `_as_matrices`.
        lr: Learning rate.
        betas: Decays of Adam's moments.
        basis_decay: Decay of the means of G Gᵀ and Gᵀ G.
        every: Number of steps between two updates of the bases.
        eps: Added to the square root of the second moment.

    Attributes:
        graphed: Whether steps are recorded as a CUDA graph. This needs gradients at fixed memory
            addresses. Updates of the bases are not part of the graph.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        basis_decay: float = 0.95,
        every: int = 10,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "basis_decay": basis_decay, "every": every, "eps": eps},
        )
        self.graphed = False
        self._groups: dict[int, _Group] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or loaded state. Its tensors are stacked again in the next step.

        Raises ValueError if the state has eigenbases of more than `LARGEST` dimensions, as those of
        earlier versions have.
        """
        super().__setstate__(state)
        for of_parameter in self.state.values():
            for side in ("left", "right"):
                if side in of_parameter and of_parameter[side].shape[-1] > LARGEST:
                    raise ValueError(
                        f"SOAP has eigenbases of at most {LARGEST} dimensions, this state has "
                        f"{of_parameter[side].shape[-1]}: it is of an earlier version"
                    )
        self.graphed = getattr(self, "graphed", False)
        self._groups = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one step with the present gradients. `closure` is ignored."""
        for number, group in enumerate(self.param_groups):
            stacked = self._groups.get(number)
            if stacked is None:
                stacked = self._groups[number] = _Group(group["params"], self.state)
            stacked.step(group, self.graphed)


@dataclass(eq=False)
class _Bases:
    """All eigenbases of dimension k, which belong to matrices with k rows or k columns.

    Args:
        gram: Running means of G Gᵀ or Gᵀ G.
        q: Eigenvectors of `gram`, as columns.
    """

    gram: Basis
    q: Basis

    def iterate(self) -> Tensor:
        """Make one orthogonal iteration towards the eigenvectors.

        Columns are sorted by descending Rayleigh quotient before the iteration.

        Returns:
            Old indices of the sorted columns, shape (count, k).
        """
        product = self.gram @ self.q
        order = (self.q * product).sum(-2).argsort(-1, descending=True)
        product = product.gather(2, order[:, None, :].expand_as(product))
        self.q.copy_(torch.linalg.qr(product).Q)
        return order


class _Side(NamedTuple):
    """The bases of one side of stacked matrices: those of its dimension, and which of them.

    Without bases, which large dimensions lack, the basis is the identity.
    """

    bases: _Bases | None
    rows: slice


@dataclass(eq=False)
class _Stack:
    """All matrices of one shape (m, n), with their state.

    Args:
        gradient, mean, square: Gradient, first moment and second moment of Adam. The second moment
            is that in the eigenbases.
        left: Range of indices of the bases Q_L of these matrices in `bases[m]`, if m has bases.
        right: Range of indices of the bases Q_R of these matrices in `bases[n]`, if n has bases.
        bases: All bases. Each key is a dimension, and the value contains all bases of it.
    """

    parameters: list[Tensor]
    gradient: Matrices
    mean: Matrices
    square: Matrices
    left: slice
    right: slice
    bases: dict[int, _Bases]

    @property
    def sides(self) -> tuple[_Side, _Side]:
        """The bases Q_L and Q_R."""
        m, n = self.gradient.shape[1:]
        return _Side(self.bases.get(m), self.left), _Side(self.bases.get(n), self.right)

    def parts(self, values: Tensor) -> list[Tensor]:
        """Split values of the stacked matrices into the values of each parameter."""
        return list(values.split([len(_as_matrices(p)) for p in self.parameters]))

    def of_parameters(self, values: Matrices) -> list[Tensor]:
        """Split values of the stacked matrices by parameter; reshape them like the parameters."""
        pairs = zip(self.parts(values), self.parameters, strict=True)
        return [part.view(p.shape) for part, p in pairs]

    def state(self) -> list[dict[str, Tensor]]:
        """The state of each parameter; its tensors are views of the stacked memory."""
        tensors = {"mean": self.mean, "square": self.square}
        for name, (bases, rows) in zip(("left", "right"), self.sides, strict=True):
            if bases is not None:
                tensors |= {name: bases.gram[rows], f"q_{name}": bases.q[rows]}
        parts = {name: self.parts(values) for name, values in tensors.items()}
        return [
            {name: each[i] for name, each in parts.items()} for i in range(len(self.parameters))
        ]

    def rotated(self, g: Matrices) -> Matrices:
        """Q_Lᵀ G Q_R."""
        (left, rows), (right, columns) = self.sides
        g = g if left is None else left.q[rows].mT @ g
        return g if right is None else g @ right.q[columns]

    def back(self, g: Matrices) -> Matrices:
        """Q_L G Q_Rᵀ."""
        (left, rows), (right, columns) = self.sides
        g = g if left is None else left.q[rows] @ g
        return g if right is None else g @ right.q[columns].mT

    def add_products(self, decay: float) -> None:
        """Update the means of G Gᵀ and Gᵀ G."""
        g = self.gradient
        for (bases, rows), f in zip(self.sides, (g, g.mT), strict=True):
            if bases is not None:
                bases.gram[rows].baddbmm_(f, f.mT, beta=decay, alpha=1 - decay)


@dataclass(eq=False)
class _Group:
    """One parameter group: its matrices, stacked by shape, and its vectors."""

    parameters: list[Tensor]
    state: dict[Any, dict[str, Any]]
    stacks: list[_Stack] = field(init=False)
    vectors: list[Tensor] = field(init=False)
    matrices: list[Tensor] = field(init=False)
    bases: dict[int, _Bases] = field(init=False)
    count: int = field(init=False)  # steps of the matrices; vectors have one more
    fresh: bool = field(init=False)  # whether the next step sets up the bases
    rates: list[Tensor] = field(init=False)
    zeros: dict[int, Tensor] = field(init=False)  # gradients of parameters without one
    recorded: Any = field(init=False)  # addresses and settings of the recorded step
    repeated: Repeated | None = field(init=False)

    def __post_init__(self) -> None:
        given = [p for p in self.parameters if p.requires_grad]
        self.vectors = [p for p in given if p.ndim < 2 or min(p.shape) == 1]
        vector_ids = set(map(id, self.vectors))
        shaped: dict[tuple[int, int], list[Tensor]] = {}
        for p in given:
            if id(p) not in vector_ids:
                m, n = _as_matrices(p).shape[1:]
                shaped.setdefault((m, n), []).append(p)
        self.fresh = not any(self.state[p] for p in given)
        self._start([p for p in given if not self.state[p]], vector_ids)
        self._stack(shaped)
        self.matrices = [p for stack in self.stacks for p in stack.parameters]
        self.count = max([0, *(self.state[p]["step"] - (id(p) in vector_ids) for p in given)])
        dtype = reduce(torch.promote_types, {p.dtype for p in given}, torch.float32)
        device = given[0].device if given else torch.device("cpu")
        # lr / (1 - β₁ᵗ) and 1 / (1 - β₂ᵗ) of matrices, then of vectors
        self.rates = [torch.zeros((), dtype=dtype, device=device) for _ in range(4)]
        self.zeros = {}
        self.recorded, self.repeated = None, None

    def _start(self, parameters: Sequence[Tensor], vector_ids: set[int]) -> None:
        """Initialise the optimizer state of parameters. The state of vectors is that of Adam."""
        for p in parameters:
            v = p if id(p) in vector_ids else _as_matrices(p)
            self.state[p] |= {"step": 0, "mean": torch.zeros_like(v), "square": torch.zeros_like(v)}
            if id(p) not in vector_ids:
                for side, k in (("left", v.shape[1]), ("right", v.shape[2])):
                    if k > LARGEST:
                        continue
                    self.state[p][side] = v.new_zeros(len(v), k, k)
                    self.state[p][f"q_{side}"] = torch.eye(k).to(v).repeat(len(v), 1, 1)

    def _stack(self, shaped: dict[tuple[int, int], list[Tensor]]) -> None:
        """Stack the state of matrices with equal shapes. A parameter's state is then a view."""
        sides: dict[int, list[tuple[Tensor, Tensor]]] = {}
        rows_of_shapes: list[tuple[slice, slice]] = []
        for shape, parameters in shaped.items():
            rows = []
            for side, k in zip(("left", "right"), shape, strict=True):
                if k > LARGEST:
                    rows.append(slice(0))
                    continue
                entries = sides.setdefault(k, [])
                start = sum(len(gram) for gram, _ in entries)
                entries += [(self.state[p][side], self.state[p][f"q_{side}"]) for p in parameters]
                rows.append(slice(start, sum(len(gram) for gram, _ in entries)))
            rows_of_shapes.append((rows[0], rows[1]))
        self.bases = {
            k: _Bases(*(torch.cat(each).contiguous() for each in zip(*entries, strict=True)))
            for k, entries in sides.items()
        }
        self.stacks = []
        for parameters, (left, right) in zip(shaped.values(), rows_of_shapes, strict=True):
            mean, square = (
                torch.cat([self.state[p][name] for p in parameters]).contiguous()
                for name in ("mean", "square")
            )
            gradient = torch.zeros_like(mean)
            stack = _Stack(parameters, gradient, mean, square, left, right, self.bases)
            for p, views in zip(parameters, stack.state(), strict=True):
                self.state[p] |= views
            self.stacks.append(stack)

    def step(self, group: dict[str, Any], graphed: bool) -> None:
        """Make one step of Adam in the bases. Every few steps, also update the bases."""
        gradients = [self._gradient(p) for p in (*self.matrices, *self.vectors)]
        settings = {name: group[name] for name in ("betas", "basis_decay", "eps")}
        if self.fresh:
            self._gather(gradients)
            self._set_up()
            self._set_rates(group)
            self._adam([], gradients[len(self.matrices) :], group["betas"], group["eps"])
            self.fresh = False
        else:
            self.count += 1
            self._set_rates(group)
            advance = partial(self._advance, gradients, **settings)
            if graphed and self.rates[0].device.type == "cuda":
                recorded = ([g.data_ptr() for g in gradients], settings)
                if self.repeated is None or recorded != self.recorded:
                    self.recorded = recorded
                    self.repeated = Repeated(advance, self.rates[0].device)
                advance = self.repeated
            advance()
            if self.count == 1 or self.count % group["every"] == 0:
                self._update_bases()
        for p in self.matrices:
            self.state[p]["step"] = self.count
        for p in self.vectors:
            self.state[p]["step"] = self.count + 1

    def _gradient(self, p: Tensor) -> Tensor:
        if p.grad is not None:
            return p.grad
        return self.zeros.setdefault(id(p), torch.zeros_like(p))

    def _set_rates(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for index, steps in ((0, self.count), (2, self.count + 1)):
            if steps:
                self.rates[index].fill_(group["lr"] / (1 - beta1**steps))
                self.rates[index + 1].fill_(1 / (1 - beta2**steps))

    def _gather(self, gradients: list[Tensor]) -> None:
        """Copy the gradients of matrices into their stacks."""
        views = [v for stack in self.stacks for v in stack.of_parameters(stack.gradient)]
        if views:
            torch._foreach_copy_(views, gradients[: len(views)])

    def _set_up(self) -> None:
        """Set the bases to the eigenvectors of G Gᵀ and Gᵀ G for the first gradients G."""
        for stack in self.stacks:
            stack.add_products(0.0)
        for bases in self.bases.values():
            # descending eigenvalues; in float64, as the matrices may be nearly singular
            bases.q.copy_(torch.linalg.eigh(bases.gram.double()).eigenvectors.flip(-1))

    def _advance(
        self, gradients: list[Tensor], betas: tuple[float, float], basis_decay: float, eps: float
    ) -> None:
        """Run the part of a step that a CUDA graph can record: all but the update of the bases."""
        self._gather(gradients)
        self._adam(self.stacks, gradients[len(self.matrices) :], betas, eps)
        for stack in self.stacks:
            stack.add_products(basis_decay)

    def _adam(
        self, stacks: list[_Stack], gradients: list[Tensor], betas: tuple[float, float], eps: float
    ) -> None:
        """Update W <- W - lr m̂/(√v̂ + ε). The quotient of matrices is computed in their bases."""
        beta1, beta2 = betas
        means = [s.mean for s in stacks] + [self.state[p]["mean"] for p in self.vectors]
        squares = [s.square for s in stacks] + [self.state[p]["square"] for p in self.vectors]
        if not means:
            return
        torch._foreach_lerp_(means, [s.gradient for s in stacks] + gradients, 1 - beta1)
        rotated = [s.rotated(s.gradient) for s in stacks] + gradients
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, rotated, rotated, 1 - beta2)
        count, roots = len(stacks), []
        kinds = ((slice(count), self.rates[:2]), (slice(count, None), self.rates[2:]))
        for rows, (_, correction) in kinds:
            roots += torch._foreach_mul(squares[rows], correction) if squares[rows] else []
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, eps)
        rotated = [s.rotated(s.mean) for s in stacks] + means[count:]
        directions = torch._foreach_div(rotated, roots)
        for rows, (rate, _) in kinds:
            if directions[rows]:
                torch._foreach_mul_(directions[rows], rate)
        back = [s.of_parameters(s.back(d)) for s, d in zip(stacks, directions, strict=False)]
        parameters = [p for s in stacks for p in s.parameters] + self.vectors
        moves = [*(v for each in back for v in each), *directions[count:]]
        torch._foreach_sub_(parameters, moves)

    def _update_bases(self) -> None:
        """Update the eigenvectors, and permute the second moments in the same way."""
        orders = {k: bases.iterate() for k, bases in self.bases.items()}
        for stack in self.stacks:
            square, (m, n) = stack.square, stack.square.shape[1:]
            if m in orders:
                square = square.gather(1, orders[m][stack.left][:, :, None].expand_as(square))
            if n in orders:
                square = square.gather(2, orders[n][stack.right][:, None, :].expand_as(square))
            stack.square.copy_(square)


MakeOptimizer = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]


@dataclass(frozen=True)
class Adam:
    """Adam with the momentum cycle of 1cycle, in one fused kernel for all parameters.

    The L² penalty adds weight_decay · W to the gradient of a weight W, before the moments.

    Args:
        weight_decay: Weight of the L² penalty. [1]

    References: D. Kingma and J. Ba, Adam, ICLR 2015.
    """

    cycles_momentum: ClassVar[bool] = True
    added: ClassVar[tuple[str, ...]] = ("weight_decay",)

    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay, W <- W - lr weight_decay W before each step of Adam.

    The momentum is cycled with 1cycle, as in Adam.

    Args:
        weight_decay: Weight of the decay. [1]

    References: I. Loshchilov and F. Hutter, Decoupled weight decay regularization, ICLR 2019,
    algorithm 2.
    """

    cycles_momentum: ClassVar[bool] = True

    weight_decay: NonNegative = 0.01

    def __post_init__(self) -> None:
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: v <- μ v + G + λ W, then W <- W - lr v.

    With Nesterov's momentum, the step is W <- W - lr (G + λ W + μ v).

    Args:
        momentum: The momentum μ; no schedule changes it. [1]
        nesterov: Whether the momentum is Nesterov's.
        weight_decay: Weight λ of the L² penalty. [1]
    """

    momentum: Decay = 0.9
    nesterov: bool = False
    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.momentum < 1, "need 0 <= momentum < 1", self.momentum)
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum > 0, got 0")

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, lr=lr, momentum=self.momentum, nesterov=self.nesterov,
            weight_decay=self.weight_decay, fused=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Muon:
    """Muon for real matrices: the step is the momentum with its singular values moved towards 1.

    Other parameters get AdamW with its default constants: vectors, and weights with three or more
    axes, such as those of convolutions and the complex weights of Fourier layers. The step of an
    m x n matrix is scaled by 0.2 max(m, n)^½, so that one learning rate serves both parts.
    No schedule changes the momentum.

    Args:
        momentum: Nesterov's momentum of the matrices. [1]
        weight_decay: Decoupled weight decay of all parameters. [1]

    References: K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024;
    J. Liu et al., Muon is scalable for LLM training, 2025, eq. 4, for the scale.
    """

    momentum: Decay = 0.95
    weight_decay: NonNegative = 0.1

    def __post_init__(self) -> None:
        require(0 <= self.momentum < 1, "need 0 <= momentum < 1", self.momentum)
        require(self.weight_decay >= 0, "weight_decay must be >= 0", self.weight_decay)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return MuonAndAdamW(parameters, lr, self.momentum, self.weight_decay)


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon for matrices and AdamW for all other parameters, as one optimiser with two groups.

    Args:
        params: The parameters.
        lr: Learning rate of both parts.
        momentum: Momentum of Muon.
        weight_decay: Weight decay of both parts.

    Raises:
        ValueError: If no parameter is a real matrix.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float
    ) -> None:
        given = list(params)
        matrices = [p for p in given if p.ndim == 2 and not p.is_complex()]
        if not matrices:
            raise ValueError(
                "muon needs parameters that are real matrices, the model has none: use adamw"
            )
        matrix_ids = set(map(id, matrices))
        others = [p for p in given if id(p) not in matrix_ids]
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=lr, momentum=momentum, weight_decay=weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        ]  # fmt: skip
        if others:
            adamw = torch.optim.AdamW(others, lr=lr, weight_decay=weight_decay, fused=True)
            self._parts.append(adamw)
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_parts": self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        """Let both parts act on the groups and the state of this optimiser."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one step with the present gradients. `closure` is ignored."""
        for part in self._parts:
            part.step()


@dataclass(frozen=True)
class Soap:
    """SOAP with constant momentum (`operators.training.optimizers.SOAP`).

    Args:
        beta1: Decay of the first moment. [1]
        beta2: Decay of the second moment. [1]
        every: Number of steps between updates of the eigenbases.
    """

    beta1: Decay = 0.95
    beta2: Decay = 0.95
    every: Count = 10

    def __post_init__(self) -> None:
        decays = self.beta1, self.beta2
        require(all(0 <= beta < 1 for beta in decays), "need 0 <= beta1, beta2 < 1", *decays)
        require(self.every >= 1, "every must be >= 1", self.every)

    def __call__(self, parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return SOAP(parameters, lr=lr, betas=(self.beta1, self.beta2), every=self.every)


register_optimizer("adam", Adam)
register_optimizer("adamw", AdamW)
register_optimizer("sgd", SGD)
register_optimizer("muon", Muon)
register_optimizer("soap", Soap)

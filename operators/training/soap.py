# pyright: reportPrivateImportUsage=false
# PyTorch's own optimizers pass over lists of tensors by the functions torch._foreach_*
"""SOAP: Adam in the eigenbasis of Shampoo's preconditioners.

All matrices of one shape lie side by side in memory: a step is a few products of many matrices, and
passes over lists of tensors. Rates are numbers on the device, so that a CUDA graph can hold a step.

References: N. Vyas et al., SOAP: Improving and stabilizing Shampoo using Adam, ICLR 2025,
algorithm 3; V. Gupta, T. Koren, Y. Singer, Shampoo, ICML 2018.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from operators.training.recording import Repeated

Basis = Float[Tensor, "count k k"]
Matrices = Float[Tensor, "count m n"]


def _as_matrices(t: Tensor) -> Matrices:
    """A weight as a stack of matrices: (m, n) -> (1, m, n); (count, m, n) as it is; a complex one
    (*modes, in, out, 2) -> (modes, in, 2 out); a convolution (out, in, k, k) -> (1, out, in k²)."""
    if t.ndim == 2:
        return t[None]
    if t.ndim == 3:
        return t
    if t.shape[-1] == 2:
        return t.flatten(-2).flatten(0, -3)
    return t.flatten(1)[None]


class SOAP(torch.optim.Optimizer):
    """W <- W - lr Q_L Adam(Q_Lᵀ G Q_R) Q_Rᵀ, Q_L and Q_R eigenvectors of mean G Gᵀ and Gᵀ G.

    For every matrix G of a gradient, running means of G Gᵀ and Gᵀ G are kept. Adam's second
    moment lives in their eigenbases, which one orthogonal iteration every few steps follows.
    Weights of one dimension, and matrices with a single row or column, get plain Adam. The first
    step only sets up the bases. A parameter without a gradient has the gradient 0.

    Args:
        params: Parameters of one or more dimensions; `_as_matrices` says which matrices are in
            them.
        basis_decay: Decay of the means of G Gᵀ and Gᵀ G.

    Attributes:
        graphed: Record steps as a CUDA graph, where gradients stay at one place in memory. The
            updates of the bases are outside of it.
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
        """Take a state, copied or loaded, whose tensors lie each on its own."""
        super().__setstate__(state)
        self.graphed = getattr(self, "graphed", False)
        self._groups = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step with the gradients at hand; `closure` is not used."""
        for number, group in enumerate(self.param_groups):
            laid = self._groups.get(number)
            if laid is None:
                laid = self._groups[number] = _Group(group["params"], self.state)
            laid.step(group, self.graphed)


@dataclass(eq=False)
class _Bases:
    """Means of G Gᵀ or Gᵀ G of all matrices with k rows or columns, and their eigenvectors."""

    gram: Basis
    q: Basis

    def follow(self) -> Tensor:
        """One orthogonal iteration towards the eigenvectors, and the order it put them in.

        Columns are sorted by Rayleigh quotient first, so that the iteration keeps its order.
        """
        product = self.gram @ self.q
        order = (self.q * product).sum(-2).argsort(-1, descending=True)
        product = product.gather(2, order[:, None, :].expand_as(product))
        self.q.copy_(torch.linalg.qr(product).Q)
        return order


@dataclass(eq=False)
class _Stack:
    """All matrices of one shape, with their state.

    Args:
        gradient, mean, square: As in Adam; `square` in the bases.
        left, right: Which of the bases with m and with n columns are theirs.
    """

    parameters: list[Tensor]
    gradient: Matrices
    mean: Matrices
    square: Matrices
    left: slice
    right: slice
    bases: dict[int, _Bases]

    @property
    def sides(self) -> tuple[tuple[_Bases, slice], tuple[_Bases, slice]]:
        m, n = self.gradient.shape[1:]
        return (self.bases[m], self.left), (self.bases[n], self.right)

    def parts(self, values: Tensor) -> list[Tensor]:
        """Those of each parameter among values of all matrices."""
        return list(values.split([len(_as_matrices(p)) for p in self.parameters]))

    def of_parameters(self, values: Matrices) -> list[Tensor]:
        """Values of all matrices in the shapes of the parameters."""
        pairs = zip(self.parts(values), self.parameters, strict=True)
        return [part.view(p.shape) for part, p in pairs]

    def state(self) -> list[dict[str, Tensor]]:
        """That of each parameter: parts of the memory of all."""
        (left, rows), (right, columns) = self.sides
        kept = {
            "mean": self.mean, "square": self.square, "left": left.gram[rows],
            "right": right.gram[columns], "q_left": left.q[rows], "q_right": right.q[columns],
        }  # fmt: skip
        parts = {name: self.parts(values) for name, values in kept.items()}
        return [
            {name: each[i] for name, each in parts.items()} for i in range(len(self.parameters))
        ]

    def rotated(self, g: Matrices) -> Matrices:
        """Q_Lᵀ G Q_R."""
        (left, rows), (right, columns) = self.sides
        return left.q[rows].mT @ g @ right.q[columns]

    def back(self, g: Matrices) -> Matrices:
        """Q_L G Q_Rᵀ."""
        (left, rows), (right, columns) = self.sides
        return left.q[rows] @ g @ right.q[columns].mT

    def add_products(self, decay: float) -> None:
        """Take G Gᵀ and Gᵀ G into their means."""
        g = self.gradient
        for (bases, own), f in zip(self.sides, (g, g.mT), strict=True):
            bases.gram[own].baddbmm_(f, f.mT, beta=decay, alpha=1 - decay)


@dataclass(eq=False)
class _Group:
    """The parameters of one group, and what a step does with them."""

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
    recorded: Any = field(init=False)  # what the recorded step is of
    repeated: Repeated | None = field(init=False)

    def __post_init__(self) -> None:
        given = [p for p in self.parameters if p.requires_grad]
        self.vectors = [p for p in given if p.ndim < 2 or min(p.shape) == 1]
        apart = set(map(id, self.vectors))
        shaped: dict[tuple[int, int], list[Tensor]] = {}
        for p in given:
            if id(p) not in apart:
                m, n = _as_matrices(p).shape[1:]
                shaped.setdefault((m, n), []).append(p)
        self.fresh = not any(self.state[p] for p in given)
        self._start([p for p in given if not self.state[p]], apart)
        self._lay(shaped)
        self.matrices = [p for stack in self.stacks for p in stack.parameters]
        self.count = max([0, *(self.state[p]["step"] - (id(p) in apart) for p in given)])
        dtype = reduce(torch.promote_types, {p.dtype for p in given}, torch.float32)
        device = given[0].device if given else torch.device("cpu")
        # lr / (1 - β₁ᵗ) and 1 / (1 - β₂ᵗ) of matrices, then of vectors
        self.rates = [torch.zeros((), dtype=dtype, device=device) for _ in range(4)]
        self.zeros = {}
        self.recorded, self.repeated = None, None

    def _start(self, parameters: Sequence[Tensor], apart: set[int]) -> None:
        """Give those a state that have none."""
        for p in parameters:
            v = p if id(p) in apart else _as_matrices(p)
            self.state[p] |= {"step": 0, "mean": torch.zeros_like(v), "square": torch.zeros_like(v)}
            if id(p) not in apart:
                for side, k in (("left", v.shape[1]), ("right", v.shape[2])):
                    self.state[p][side] = v.new_zeros(len(v), k, k)
                    self.state[p][f"q_{side}"] = torch.eye(k).to(v).repeat(len(v), 1, 1)

    def _lay(self, shaped: dict[tuple[int, int], list[Tensor]]) -> None:
        """Put the state of all matrices side by side."""
        sides: dict[int, list[tuple[Tensor, Tensor]]] = {}
        owned: list[tuple[slice, slice]] = []
        for shape, parameters in shaped.items():
            places = []
            for side, k in zip(("left", "right"), shape, strict=True):
                entries = sides.setdefault(k, [])
                start = sum(len(gram) for gram, _ in entries)
                entries += [(self.state[p][side], self.state[p][f"q_{side}"]) for p in parameters]
                places.append(slice(start, sum(len(gram) for gram, _ in entries)))
            owned.append((places[0], places[1]))
        self.bases = {
            k: _Bases(*(torch.cat(each).contiguous() for each in zip(*entries, strict=True)))
            for k, entries in sides.items()
        }
        self.stacks = []
        for parameters, (left, right) in zip(shaped.values(), owned, strict=True):
            mean, square = (
                torch.cat([self.state[p][name] for p in parameters]).contiguous()
                for name in ("mean", "square")
            )
            gradient = torch.zeros_like(mean)
            stack = _Stack(parameters, gradient, mean, square, left, right, self.bases)
            for p, own in zip(parameters, stack.state(), strict=True):
                self.state[p] |= own
            self.stacks.append(stack)

    def step(self, group: dict[str, Any], graphed: bool) -> None:
        """One step of Adam in the bases, and every few steps one of the bases."""
        gradients = [self._gradient(p) for p in (*self.matrices, *self.vectors)]
        words = {name: group[name] for name in ("betas", "basis_decay", "eps")}
        if self.fresh:
            self._gather(gradients)
            self._set_up()
            self._set_rates(group)
            self._adam([], gradients[len(self.matrices) :], group["betas"], group["eps"])
            self.fresh = False
        else:
            self.count += 1
            self._set_rates(group)
            advance = partial(self._advance, gradients, **words)
            if graphed and self.rates[0].device.type == "cuda":
                places = ([g.data_ptr() for g in gradients], words)
                if self.repeated is None or places != self.recorded:
                    self.recorded = places
                    self.repeated = Repeated(advance, self.rates[0].device)
                advance = self.repeated
            advance()
            if self.count == 1 or self.count % group["every"] == 0:
                self._follow()
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
        for place, steps in ((0, self.count), (2, self.count + 1)):
            if steps:
                self.rates[place].fill_(group["lr"] / (1 - beta1**steps))
                self.rates[place + 1].fill_(1 / (1 - beta2**steps))

    def _gather(self, gradients: list[Tensor]) -> None:
        """Copy the gradients of matrices to where they lie side by side."""
        places = [v for stack in self.stacks for v in stack.of_parameters(stack.gradient)]
        if places:
            torch._foreach_copy_(places, gradients[: len(places)])

    def _set_up(self) -> None:
        """The bases of the first gradients."""
        for stack in self.stacks:
            stack.add_products(0.0)
        for bases in self.bases.values():
            # by falling eigenvalue; in float64, for the matrices may be near singular
            bases.q.copy_(torch.linalg.eigh(bases.gram.double()).eigenvectors.flip(-1))

    def _advance(
        self, gradients: list[Tensor], betas: tuple[float, float], basis_decay: float, eps: float
    ) -> None:
        """A step between two updates of the bases: the same kernels on the same memory."""
        self._gather(gradients)
        self._adam(self.stacks, gradients[len(self.matrices) :], betas, eps)
        for stack in self.stacks:
            stack.add_products(basis_decay)

    def _adam(
        self, stacks: list[_Stack], gradients: list[Tensor], betas: tuple[float, float], eps: float
    ) -> None:
        """W <- W - lr m̂/(√v̂ + ε) of vectors, and in their bases of matrices."""
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
        for own, (_, correction) in kinds:
            roots += torch._foreach_mul(squares[own], correction) if squares[own] else []
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, eps)
        rotated = [s.rotated(s.mean) for s in stacks] + means[count:]
        directions = torch._foreach_div(rotated, roots)
        for own, (rate, _) in kinds:
            if directions[own]:
                torch._foreach_mul_(directions[own], rate)
        back = [s.of_parameters(s.back(d)) for s, d in zip(stacks, directions, strict=False)]
        parameters = [p for s in stacks for p in s.parameters] + self.vectors
        moves = [*(v for each in back for v in each), *directions[count:]]
        torch._foreach_sub_(parameters, moves)

    def _follow(self) -> None:
        """Follow the eigenvectors; each second moment stays with the directions it is of."""
        orders = {k: bases.follow() for k, bases in self.bases.items()}
        for stack in self.stacks:
            m, n = stack.square.shape[1:]
            rows = orders[m][stack.left][:, :, None].expand_as(stack.square)
            columns = orders[n][stack.right][:, None, :].expand_as(stack.square)
            stack.square.copy_(stack.square.gather(1, rows).gather(2, columns))

"""Compiled steps of the forging of a block. The mathematics is in `solver.py`.

Nodes are numbered [i, j] from the left and from below, elements likewise; the corners of an element
are counted around it from its lower left one. Units are mm, ms, g and N, so stresses are in MPa.
"""

from __future__ import annotations

import math

import numba
import numpy as np

_jit = numba.njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"}
)

_TINY = 1e-300  # added where a denominator may be zero
_POINTS = 4  # of an edge at which the die pushes
_EVERY = 16  # steps between two looks at the largest stable one

# how an interval of time ended
DONE, FOLDED, STALLED = 0, 1, 2
# what `energy` counts: die, plastic, of the control of hourglass modes, of volumetric viscosity
DIE, PLASTIC, HOURGLASS, VISCOUS = range(4)


@_jit
def surface(die: np.ndarray, half: float, x: float) -> tuple[float, float]:
    """Height of the die over the top of the block and its slope at x, before it moves.

    Args:
        die: (pieces, 4): a polynomial of each of equal pieces of [-half, half], from the constant
            on, in the distance from the left end of the piece. It goes on as a straight line.
        half, x: Half the length of the block, and the place.
    """
    pieces = die.shape[0]
    width = 2 * half / pieces
    inside = min(max(x, -half), half)
    k = min(int((inside + half) / width), pieces - 1)
    s = inside + half - k * width
    value = die[k, 0] + s * (die[k, 1] + s * (die[k, 2] + s * die[k, 3]))
    slope = die[k, 1] + s * (2 * die[k, 2] + s * 3 * die[k, 3])
    return value + slope * (x - inside), slope


@_jit
def smallest_width(x: np.ndarray, y: np.ndarray) -> float:
    """The smallest width of an element: its area over the root mean square of its diagonals.

    Width over speed of sound is at most 2/ω, ω the highest frequency of an element whose volume is
    what it was. Of a flat rectangle it is the height, of a square 0.7 of the side; where an element
    is folded it is not positive.

    Reference: D. P. Flanagan, T. Belytschko, Int. J. Numer. Meth. Engng 17, 1981, section 5.
    """
    least = np.inf
    for i in range(x.shape[0] - 1):
        for j in range(x.shape[1] - 1):
            ax, ay = x[i + 1, j + 1] - x[i, j], y[i + 1, j + 1] - y[i, j]
            bx, by = x[i, j + 1] - x[i + 1, j], y[i, j + 1] - y[i + 1, j]
            area = (ax * by - ay * bx) / 2
            least = min(least, area / math.sqrt((ax * ax + ay * ay + bx * bx + by * by) / 2))
    return least


@_jit
def strained(
    nodes: np.ndarray, dt: float, elements: np.ndarray, material: np.ndarray, room: np.ndarray
) -> None:
    """Stresses after a step without plastic flow, which turn with the block. The arguments are
    those of `element_forces`; the first five numbers of `room` become the gradient of the velocity
    times the step, by rows, and σxx + σyy before."""
    x, y, u, v = nodes[0], nodes[1], nodes[2], nodes[3]
    sxx, syy, sxy, before = elements[0], elements[1], elements[2], room[4]
    poisson = material[1]
    stiff, shear = material[0] / (1 - poisson * poisson), material[0] / (2 * (1 + poisson))
    for i in range(x.shape[0] - 1):
        for j in range(x.shape[1] - 1):
            # the diagonals: first from corner 1 to 3, second from 2 to 4
            ax, ay = x[i + 1, j + 1] - x[i, j], y[i + 1, j + 1] - y[i, j]
            bx, by = x[i, j + 1] - x[i + 1, j], y[i, j + 1] - y[i + 1, j]
            au, av = u[i + 1, j + 1] - u[i, j], v[i + 1, j + 1] - v[i, j]
            bu, bv = u[i, j + 1] - u[i + 1, j], v[i, j + 1] - v[i + 1, j]
            scale = dt / (ax * by - ay * bx)
            xx, xy = (au * by - bu * ay) * scale, (bu * ax - au * bx) * scale
            yx, yy = (av * by - bv * ay) * scale, (bv * ax - av * bx) * scale
            room[0, i, j], room[1, i, j], room[2, i, j], room[3, i, j] = xx, xy, yx, yy
            s, t, turn = sxx[i, j], syy[i, j], (xy - yx) / 2
            before[i, j] = s + t
            tilt = 2 * turn * sxy[i, j]
            sxy[i, j] += turn * (t - s) + shear * (xy + yx)
            sxx[i, j] = s + tilt + stiff * (xx + poisson * yy)
            syy[i, j] = t - tilt + stiff * (yy + poisson * xx)


@_jit
def returned(
    xx: np.ndarray, yy: np.ndarray, xy: np.ndarray, material: np.ndarray, flow: np.ndarray
) -> None:
    """Stresses on or below the yield surface, and λ of the plastic strains λ dev σ, of any number.

    In p = σxx + σyy, q = σxx - σyy and t = σxy the yield condition of von Mises in plane stress is
    p²/12 + q²/4 + t² = σ_Y²/3, and p, q, t are divided by 1 + Eλ/(3(1-ν)), 1 + 2Gλ, 1 + 2Gλ.

    One over the root of the left side is nearly a line in λ: three steps of Newton's method leave
    1e-11 of the excess. The loop has no branches and no calls, so that it is compiled to vectors.
    """
    a, b = material[0] / (3 * (1 - material[1])), material[0] / (1 + material[1])
    most = material[2] ** 2 / 3
    for k in range(len(flow)):
        p, q, t = xx[k] + yy[k], xx[k] - yy[k], xy[k]
        big, small = p * p * (1 / 12), q * q * 0.25 + t * t
        slip, da, db = 0.0, 1.0, 1.0
        for _ in range(3):
            first, second = big * da * da, small * db * db
            both = first + second
            excess = max(math.sqrt(both / most) - 1, 0.0)
            slip += excess * both / (first * a * da + second * b * db + _TINY)
            da, db = 1 / (1 + a * slip), 1 / (1 + b * slip)
        p, q = p * da, q * db
        xx[k], yy[k], xy[k], flow[k] = (p + q) * 0.5, (p - q) * 0.5, t * db, slip


@_jit
def stressed(
    nodes: np.ndarray, dt: float, elements: np.ndarray, material: np.ndarray, room: np.ndarray
) -> None:
    """`strained`, then `returned`, whose λ is the last of `room`."""
    strained(nodes, dt, elements, material, room)
    sxx, syy, sxy = elements[0].reshape(-1), elements[1].reshape(-1), elements[2].reshape(-1)
    returned(sxx, syy, sxy, material, room[5].reshape(-1))


@_jit
def element_forces(
    nodes: np.ndarray, dt: float, elements: np.ndarray, material: np.ndarray, room: np.ndarray,
    force: np.ndarray, energy: np.ndarray,
) -> None:  # fmt: skip
    """Stresses after a step that has led to these positions and velocities, and their forces.

    Nodes have positions x, y and velocities u, v; elements have stresses xx, yy, xy, a thickness
    and an equivalent plastic strain, which are replaced as the force of the nodes is. The material
    is E, ν, σ_Y, density, speed of sound, and the coefficients of the viscosities of hourglass
    modes and of waves. Room is six numbers for each element, which mean nothing afterwards; to the
    energy is added.
    """
    stressed(nodes, dt, elements, material, room)
    x, y, u, v, fx, fy = nodes[0], nodes[1], nodes[2], nodes[3], force[0], force[1]
    hourglass, viscosity = material[5], material[6]
    poisson, limit, compliance = material[1], material[2], 1 / material[0]
    wave, rate = material[3] * material[4], 1 / dt
    force[:] = 0.0
    plastic, controlled, viscous = 0.0, 0.0, 0.0
    for i in range(x.shape[0] - 1):
        for j in range(x.shape[1] - 1):
            # half the diagonals
            ax, ay = (x[i + 1, j + 1] - x[i, j]) / 2, (y[i + 1, j + 1] - y[i, j]) / 2
            bx, by = (x[i, j + 1] - x[i + 1, j]) / 2, (y[i, j + 1] - y[i + 1, j]) / 2
            area = 2 * (ax * by - ay * bx)
            xx, xy = room[0, i, j], room[1, i, j]
            yx, yy, flow = room[2, i, j], room[3, i, j], room[5, i, j]
            sxx, syy, sxy = elements[0, i, j], elements[1, i, j], elements[2, i, j]
            after = sxx + syy
            elastic = compliance * (after - room[4, i, j])
            elements[3, i, j] *= 1 - poisson * elastic - flow * after * (1 / 3)
            thick, slip = elements[3, i, j], 2 / 3 * limit * flow
            volume = area * thick
            elements[4, i, j] += slip
            plastic += limit * slip * volume
            # acts on waves alone: plastic flow keeps the volume
            length = math.sqrt(area)
            damping = viscosity * wave * length * (1 - 2 * poisson) * elastic * rate
            viscous += damping * (xx + yy) * volume
            sxx, syy = sxx + damping, syy + damping
            # the velocity that is no linear function of x and y
            hx = x[i, j] - x[i + 1, j] + x[i + 1, j + 1] - x[i, j + 1]
            hy = y[i, j] - y[i + 1, j] + y[i + 1, j + 1] - y[i, j + 1]
            hu = u[i, j] - u[i + 1, j] + u[i + 1, j + 1] - u[i, j + 1]
            hv = v[i, j] - v[i + 1, j] + v[i + 1, j + 1] - v[i, j + 1]
            hu, hv = hu - (xx * hx + xy * hy) * rate, hv - (yx * hx + yy * hy) * rate
            # the part of the hourglass vector along b, corners 3 and 4
            part = 1 / area
            g1, g2 = (hx * by - hy * bx) * part, (hy * ax - hx * ay) * part
            # of the same power whatever the length of that vector, so that steps stay stable
            control = hourglass * wave * length * thick * 0.25 / (1 + (g1 * g1 + g2 * g2) / 2)
            controlled += control * (hu * hu + hv * hv) * dt
            hu, hv = hu * control, hv * control
            # of corner 3 against corner 1, and of corner 4 against corner 2
            f1x, f1y = (sxx * by - sxy * bx) * thick, (sxy * by - syy * bx) * thick
            f2x, f2y = (sxy * ax - sxx * ay) * thick, (syy * ax - sxy * ay) * thick
            fx[i, j] += f1x - hu * (1 + g1)
            fy[i, j] += f1y - hv * (1 + g1)
            fx[i + 1, j + 1] -= f1x + hu * (1 - g1)
            fy[i + 1, j + 1] -= f1y + hv * (1 - g1)
            fx[i + 1, j] += f2x + hu * (1 - g2)
            fy[i + 1, j] += f2y + hv * (1 - g2)
            fx[i, j + 1] -= f2x - hu * (1 + g2)
            fy[i, j + 1] -= f2y - hv * (1 + g2)
    energy[PLASTIC] += plastic
    energy[HOURGLASS] += controlled
    energy[VISCOUS] += viscous


@_jit
def pushed(
    die: np.ndarray, half: float, low: float, stiffness: float, mass: np.ndarray,
    nodes: np.ndarray, force: np.ndarray,
) -> float:  # fmt: skip
    """Adds the forces of the die, without friction, to the nodes of the left side, the top and the
    right side: at equal distances along each edge, along the normal, and shared by its two nodes;
    the force downwards. The die's height 0 is at `low` over the floor, and the stiffness is a force
    over depth and mass."""
    x, y, fx, fy = nodes[0], nodes[1], force[0], force[1]
    nx, ny = x.shape[0] - 1, x.shape[1] - 1
    down, i, j = 0.0, 0, 0
    for edge in range(nx + 2 * ny):
        k = i + 1 if ny <= edge < ny + nx else i
        m = j + 1 if edge < ny else j - 1 if edge >= ny + nx else j
        for point in range(_POINTS):
            s = point / _POINTS
            px, py = (1 - s) * x[i, j] + s * x[k, m], (1 - s) * y[i, j] + s * y[k, m]
            if py <= low and abs(px) <= half:
                continue
            above, slope = surface(die, half, px)
            depth = py - low - above
            if depth > 0:
                stiff = stiffness * ((1 - s) * mass[i, j] + s * mass[k, m]) / _POINTS
                push = stiff * depth / (1 + slope * slope)
                down += push
                fx[i, j] += (1 - s) * push * slope
                fy[i, j] -= (1 - s) * push
                fx[k, m] += s * push * slope
                fy[k, m] -= s * push
        i, j = k, m
    return down


@_jit
def moved(nodes: np.ndarray, force: np.ndarray, mass: np.ndarray, middle: float, dt: float) -> None:
    """Velocities after a step from the middle of the last one, and positions after dt; nodes of the
    bottom stay on the floor."""
    for i in range(nodes.shape[1]):
        force[1, i, 0] = 0.0
        for j in range(nodes.shape[2]):
            nodes[2, i, j] += middle * force[0, i, j] / mass[i, j]
            nodes[3, i, j] += middle * force[1, i, j] / mass[i, j]
            nodes[0, i, j] += dt * nodes[2, i, j]
            nodes[1, i, j] += dt * nodes[3, i, j]


@_jit
def advanced(
    nodes: np.ndarray, mass: np.ndarray, elements: np.ndarray, material: np.ndarray,
    die: np.ndarray, numbers: np.ndarray, span: tuple[float, float], last: float,
    energy: np.ndarray,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Steps of central differences from one time to another.

    Args:
        nodes, mass: As of `element_forces`, velocities half a step before; and masses; replaced.
        elements, material: As of `element_forces`.
        die: As of `surface`.
        numbers: Half the length of the block and its height, the speed of the die downwards, the
            part of the stable step that is taken, the stiffness of the contact over mass and
            step⁻², the smallest step.
        span: The times.
        last: The step before; 0 where there was none.
        energy: Added to.

    Returns:
        How it ended; the number of steps, and the last one; and the mean force on the bottom in the
        last tenth of the time, or when it failed.
    """
    half, height, speed, share, contact, smallest = numbers
    (t, end), force = span, np.empty_like(nodes[:2])
    room = np.empty((6, elements.shape[1], elements.shape[2]))
    steps, left, dt = 0, 1, 0.0
    late, impulse, during = end - (end - t) / 10, 0.0, 0.0
    while left > 0:
        if steps % _EVERY == 0:
            width = smallest_width(nodes[0], nodes[1])
            if not width > 0:
                return FOLDED, steps, last, t
            largest = share * width / material[4]
            if largest < smallest:
                return STALLED, steps, last, t
            left = math.ceil((end - t) / largest)
            dt = (end - t) / left
        # the first step finds a block at rest, and no stress
        element_forces(nodes, last if last > 0 else 1.0, elements, material, room, force, energy)
        middle, low = (last + dt) / 2, height - speed * t
        down = pushed(die, half, low, contact / (dt * dt), mass, nodes, force)
        energy[DIE] += down * speed * middle
        if t >= late:
            impulse, during = impulse - dt * force[1, :, 0].sum(), during + dt
        moved(nodes, force, mass, middle, dt)
        t, last = t + dt, dt
        steps, left = steps + 1, left - 1
    return DONE, steps, last, impulse / during

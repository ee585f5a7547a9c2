"""Compiled time steps of the forging of a block. `solver.py` describes the mathematics.

The indices i, j of nodes and of elements count from the left and from the bottom. The nodes
[i, j], [i+1, j], [i+1, j+1], [i, j+1] are the corners 1 to 4 of the element [i, j]. Units are mm,
ms, g and N, so stresses are in MPa.

Several functions share these arguments:

nodes: Positions x, y and velocities u, v, shape (4, nx, ny).
elements: Stresses xx, yy, xy, thickness and equivalent plastic strain, shape (5, ex, ey).
material: E, ν, σ_Y, density, speed of sound, coefficient of the hourglass viscosity, coefficient of
    the wave viscosity.
die: Coefficients of the polynomials of the die, shape (pieces, 4), as `die.Spline.pieces` returns
    them. The pieces have equal widths and cover [-half, half].
scratch: Six numbers for each element, shape (6, ex, ey): xx, xy, yx, yy of the velocity gradient
    multiplied by the time step, σxx + σyy before the step, and the plastic multiplier λ.
force: Forces on the nodes, shape (2, nx, ny).
energy: Accumulated work, with the entries DIE, PLASTIC, HOURGLASS and VISCOUS.
"""

from __future__ import annotations

import math

import numpy as np

from pdegen.numerics.compilation import compiled

# sums may be reordered, so even the order of assignments can change the last bits
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_jit = compiled(error_model="numpy", fastmath=_FAST)
_inner = compiled(inner=True, error_model="numpy", fastmath=_FAST)

_TINY = 1e-300  # added where a denominator may be zero
_CONTACT_POINTS = 4  # points of an edge at which the die pushes
_STEP_CHECK_INTERVAL = 16  # steps between two computations of the stable time step

# how an interval of time ended: reached, an element folded, the stable step became too small
DONE, FOLDED, STALLED = 0, 1, 2
# entries of `energy`: work of the die, and work dissipated by plastic flow, by the viscosity of
# hourglass modes and by that of waves
DIE, PLASTIC, HOURGLASS, VISCOUS = range(4)


@_jit
def die_surface(die: np.ndarray, half: float, x: float) -> tuple[float, float]:
    """Height and slope of the die at x. The height is relative to the top of the block at rest.

    Outside [-half, half] the die continues as a straight line.
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
    """The smallest width of all elements.

    The width of an element is its area divided by the root mean square of its diagonals. For a
    square it is 0.7 of the side, for a flat rectangle nearly the height. The width divided by the
    speed of sound is at most 2/ω, where ω is the highest frequency of an element whose volume has
    not changed. The width of a folded element is not positive.

    Reference: D. P. Flanagan, T. Belytschko, Int. J. Numer. Meth. Engng 17, 1981, section 5.
    """
    least = np.inf
    for i in range(x.shape[0] - 1):
        for j in range(x.shape[1] - 1):
            # diagonals from corner 1 to 3 and from corner 2 to 4
            ax, ay = x[i + 1, j + 1] - x[i, j], y[i + 1, j + 1] - y[i, j]
            bx, by = x[i, j + 1] - x[i + 1, j], y[i, j + 1] - y[i + 1, j]
            area = (ax * by - ay * bx) / 2
            least = min(least, area / math.sqrt((ax * ax + ay * ay + bx * bx + by * by) / 2))
    return least


@_inner
def elastic_trial(
    nodes: np.ndarray, dt: float, elements: np.ndarray, material: np.ndarray, scratch: np.ndarray
) -> None:
    """Updates the stresses for a step without plastic flow. Stresses rotate with the material.

    Writes the first five numbers of `scratch`.
    """
    x, y, u, v = nodes[0], nodes[1], nodes[2], nodes[3]
    sxx, syy, sxy, trace_before = elements[0], elements[1], elements[2], scratch[4]
    poisson = material[1]
    modulus, shear = material[0] / (1 - poisson * poisson), material[0] / (2 * (1 + poisson))
    for i in range(x.shape[0] - 1):
        for j in range(x.shape[1] - 1):
            # diagonals a from corner 1 to 3 and b from 2 to 4, and their velocities
            ax, ay = x[i + 1, j + 1] - x[i, j], y[i + 1, j + 1] - y[i, j]
            bx, by = x[i, j + 1] - x[i + 1, j], y[i, j + 1] - y[i + 1, j]
            au, av = u[i + 1, j + 1] - u[i, j], v[i + 1, j + 1] - v[i, j]
            bu, bv = u[i, j + 1] - u[i + 1, j], v[i, j + 1] - v[i + 1, j]
            # velocity gradient at the middle, times the step
            scale = dt / (ax * by - ay * bx)
            xx, xy = (au * by - bu * ay) * scale, (bu * ax - au * bx) * scale
            yx, yy = (av * by - bv * ay) * scale, (bv * ax - av * bx) * scale
            scratch[0, i, j], scratch[1, i, j], scratch[2, i, j], scratch[3, i, j] = xx, xy, yx, yy
            # rotation of the stress by (xy - yx)/2, and Hooke's law in plane stress
            s, t, rotation = sxx[i, j], syy[i, j], (xy - yx) / 2
            trace_before[i, j] = s + t
            rotated = 2 * rotation * sxy[i, j]
            sxy[i, j] += rotation * (t - s) + shear * (xy + yx)
            sxx[i, j] = s + rotated + modulus * (xx + poisson * yy)
            syy[i, j] = t - rotated + modulus * (yy + poisson * xx)


@_jit
def return_to_yield_surface(
    xx: np.ndarray, yy: np.ndarray, xy: np.ndarray, material: np.ndarray, flow: np.ndarray
) -> None:
    """Return mapping: moves trial stresses outside the yield surface onto it, in place.

    The plastic strain increment is λ dev σ, and λ is written to `flow`. Let p = σxx + σyy,
    q = σxx - σyy and t = σxy. In plane stress, von Mises's yield condition is
    p²/12 + q²/4 + t² = σ_Y²/3. Plastic flow divides p by 1 + Eλ/(3(1-ν)), and q and t by 1 + 2Gλ.

    Newton's method is applied to (p²/12 + q²/4 + t²)^(-½), which is nearly linear in λ. Three steps
    reduce the excess by a factor of 1e-11. The loop contains no branches and no calls, so the
    compiler can vectorise it.
    """
    p_rate, q_rate = material[0] / (3 * (1 - material[1])), material[0] / (1 + material[1])
    yield_term = material[2] ** 2 / 3
    for k in range(len(flow)):
        p, q, t = xx[k] + yy[k], xx[k] - yy[k], xy[k]
        p_term, q_term = p * p * (1 / 12), q * q * 0.25 + t * t
        multiplier, p_factor, q_factor = 0.0, 1.0, 1.0
        for _ in range(3):  # Newton's method for the plastic multiplier λ
            p_part, q_part = p_term * p_factor * p_factor, q_term * q_factor * q_factor
            total = p_part + q_part
            excess = max(math.sqrt(total / yield_term) - 1, 0.0)
            multiplier += (
                excess * total / (p_part * p_rate * p_factor + q_part * q_rate * q_factor + _TINY)
            )
            p_factor, q_factor = 1 / (1 + p_rate * multiplier), 1 / (1 + q_rate * multiplier)
        p, q = p * p_factor, q * q_factor
        xx[k], yy[k], xy[k], flow[k] = (p + q) * 0.5, (p - q) * 0.5, t * q_factor, multiplier


@_inner
def update_stresses(
    nodes: np.ndarray, dt: float, elements: np.ndarray, material: np.ndarray, scratch: np.ndarray
) -> None:
    """Updates the stresses for a step with plastic flow, and writes all of `scratch`."""
    elastic_trial(nodes, dt, elements, material, scratch)
    sxx, syy, sxy = elements[0].reshape(-1), elements[1].reshape(-1), elements[2].reshape(-1)
    return_to_yield_surface(sxx, syy, sxy, material, scratch[5].reshape(-1))


@_jit
def element_forces(
    nodes: np.ndarray, dt: float, elements: np.ndarray, material: np.ndarray, scratch: np.ndarray,
    force: np.ndarray, energy: np.ndarray,
) -> None:  # fmt: skip
    """Updates the elements for a time step dt, and writes the forces on the nodes.

    `nodes` has the positions at the end of the step and the velocities in its middle.
    """
    update_stresses(nodes, dt, elements, material, scratch)
    x, y, u, v, fx, fy = nodes[0], nodes[1], nodes[2], nodes[3], force[0], force[1]
    hourglass, viscosity = material[5], material[6]
    poisson, limit, compliance = material[1], material[2], 1 / material[0]
    impedance, rate = material[3] * material[4], 1 / dt
    force[:] = 0.0
    plastic_work, hourglass_work, viscous_work = 0.0, 0.0, 0.0
    for i in range(x.shape[0] - 1):
        for j in range(x.shape[1] - 1):
            ax, ay = (x[i + 1, j + 1] - x[i, j]) / 2, (y[i + 1, j + 1] - y[i, j]) / 2
            bx, by = (x[i, j + 1] - x[i + 1, j]) / 2, (y[i, j + 1] - y[i + 1, j]) / 2
            area = 2 * (ax * by - ay * bx)  # a and b are half the diagonals
            xx, xy = scratch[0, i, j], scratch[1, i, j]
            yx, yy, flow = scratch[2, i, j], scratch[3, i, j], scratch[5, i, j]
            sxx, syy, sxy = elements[0, i, j], elements[1, i, j], elements[2, i, j]
            # thickness: elastic strain of -ν/E d(σxx + σyy), plastic strain of -λ(σxx + σyy)/3
            trace = sxx + syy
            elastic = compliance * (trace - scratch[4, i, j])
            elements[3, i, j] *= 1 - poisson * elastic - flow * trace * (1 / 3)
            thickness, plastic_strain = elements[3, i, j], 2 / 3 * limit * flow
            volume = area * thickness
            elements[4, i, j] += plastic_strain
            plastic_work += limit * plastic_strain * volume
            length = math.sqrt(area)
            # viscous stress against the rate of the volume, which changes in waves alone
            damping = viscosity * impedance * length * (1 - 2 * poisson) * elastic * rate
            viscous_work += damping * (xx + yy) * volume
            sxx, syy = sxx + damping, syy + damping
            # hourglass velocity: corners 1 - 2 + 3 - 4, less what a linear velocity gives
            hx = x[i, j] - x[i + 1, j] + x[i + 1, j + 1] - x[i, j + 1]
            hy = y[i, j] - y[i + 1, j] + y[i + 1, j + 1] - y[i, j + 1]
            hu = u[i, j] - u[i + 1, j] + u[i + 1, j + 1] - u[i, j + 1]
            hv = v[i, j] - v[i + 1, j] + v[i + 1, j + 1] - v[i, j + 1]
            hu, hv = hu - (xx * hx + xy * hy) * rate, hv - (yx * hx + yy * hy) * rate
            inverse_area = 1 / area  # g: components of (hx, hy) along the whole diagonals
            g1, g2 = (hx * by - hy * bx) * inverse_area, (hy * ax - hx * ay) * inverse_area
            # scaled so that the damping does not grow with that vector, and steps stay stable
            control = (
                hourglass * impedance * length * thickness * 0.25 / (1 + (g1 * g1 + g2 * g2) / 2)
            )
            hourglass_work += control * (hu * hu + hv * hv) * dt
            hu, hv = hu * control, hv * control
            # force of the stresses on corner 1 and on corner 2; corners 3 and 4 have the opposite
            f1x, f1y = (sxx * by - sxy * bx) * thickness, (sxy * by - syy * bx) * thickness
            f2x, f2y = (sxy * ax - sxx * ay) * thickness, (syy * ax - sxy * ay) * thickness
            fx[i, j] += f1x - hu * (1 + g1)
            fy[i, j] += f1y - hv * (1 + g1)
            fx[i + 1, j + 1] -= f1x + hu * (1 - g1)
            fy[i + 1, j + 1] -= f1y + hv * (1 - g1)
            fx[i + 1, j] += f2x + hu * (1 - g2)
            fy[i + 1, j] += f2y + hv * (1 - g2)
            fx[i, j + 1] -= f2x - hu * (1 + g2)
            fy[i, j + 1] -= f2y - hv * (1 + g2)
    energy[PLASTIC] += plastic_work
    energy[HOURGLASS] += hourglass_work
    energy[VISCOUS] += viscous_work


@_inner
def add_contact_forces(
    die: np.ndarray, half: float, low: float, stiffness: float, mass: np.ndarray,
    nodes: np.ndarray, force: np.ndarray,
) -> float:  # fmt: skip
    """Adds the contact forces of the die to `force`, and returns their total downward component.

    The forces act at equally spaced points on the edges of the left side, the top and the right
    side. They are normal to the die, because there is no friction. Each force is divided between
    the two nodes of its edge. The die has the height `low` + `die_surface` above the floor.
    `stiffness` is the force per depth and mass.
    """
    x, y, fx, fy = nodes[0], nodes[1], force[0], force[1]
    nx, ny = x.shape[0] - 1, x.shape[1] - 1
    down, i, j = 0.0, 0, 0
    for edge in range(nx + 2 * ny):
        k = i + 1 if ny <= edge < ny + nx else i
        m = j + 1 if edge < ny else j - 1 if edge >= ny + nx else j
        # the edge from node [i, j] to [k, m]: up the left side, along the top, down the right side
        for point in range(_CONTACT_POINTS):
            s = point / _CONTACT_POINTS
            px, py = (1 - s) * x[i, j] + s * x[k, m], (1 - s) * y[i, j] + s * y[k, m]
            if py <= low and abs(px) <= half:
                continue
            surface, slope = die_surface(die, half, px)
            depth = py - low - surface
            if depth > 0:
                stiff = stiffness * ((1 - s) * mass[i, j] + s * mass[k, m]) / _CONTACT_POINTS
                # depth is vertical: the normal force has these parts downwards and sideways
                push = stiff * depth / (1 + slope * slope)
                down += push
                fx[i, j] += (1 - s) * push * slope
                fy[i, j] -= (1 - s) * push
                fx[k, m] += s * push * slope
                fy[k, m] -= s * push
        i, j = k, m
    return down


@_inner
def move_nodes(
    nodes: np.ndarray, force: np.ndarray, mass: np.ndarray, velocity_step: float, dt: float
) -> None:
    """Advances the velocities by `velocity_step` and the positions by dt.

    `velocity_step` is the time from the middle of the last step to the middle of this one. The
    bottom nodes stay on the floor.
    """
    for i in range(nodes.shape[1]):
        force[1, i, 0] = 0.0
        for j in range(nodes.shape[2]):
            nodes[2, i, j] += velocity_step * force[0, i, j] / mass[i, j]
            nodes[3, i, j] += velocity_step * force[1, i, j] / mass[i, j]
            nodes[0, i, j] += dt * nodes[2, i, j]
            nodes[1, i, j] += dt * nodes[3, i, j]


@_jit
def advance(
    nodes: np.ndarray, mass: np.ndarray, elements: np.ndarray, material: np.ndarray,
    die: np.ndarray, parameters: np.ndarray, span: tuple[float, float], last: float,
    energy: np.ndarray,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Advances nodes, elements and energy from one time to another with central differences.

    Args:
        nodes: Positions at the first time, and velocities half a step earlier.
        mass: Masses of the nodes, shape (nx, ny).
        elements, material, die: See the top of this module.
        parameters: Half the length of the block, its height, downward speed of the die, ratio of
            the time step to the stable one, contact stiffness in units of mass/step², smallest
            accepted time step.
        span: The first and the last time.
        last: Length of the previous time step, or 0 at the start of the forging.
        energy: Accumulated work.

    Returns:
        The outcome (DONE, FOLDED or STALLED), the number of steps, the length of the last step,
        and the mean force on the bottom over the last tenth of `span`. If the outcome is not DONE,
        the last entry is the time of the failure instead of the force.
    """
    half, height, speed, fraction, contact, smallest = parameters
    (t, end), force = span, np.empty_like(nodes[:2])
    scratch = np.empty((6, elements.shape[1], elements.shape[2]))
    steps, remaining, dt = 0, 1, 0.0
    window_start, impulse, window = end - (end - t) / 10, 0.0, 0.0
    while remaining > 0:
        if steps % _STEP_CHECK_INTERVAL == 0:
            width = smallest_width(nodes[0], nodes[1])
            if not width > 0:
                return FOLDED, steps, last, t
            largest = fraction * width / material[4]
            if largest < smallest:
                return STALLED, steps, last, t
            remaining = math.ceil((end - t) / largest)
            dt = (end - t) / remaining
        # at the start the block is at rest without stress, and any step leaves it so
        element_forces(nodes, last if last > 0 else 1.0, elements, material, scratch, force, energy)
        velocity_step, low = (last + dt) / 2, height - speed * t
        down = add_contact_forces(die, half, low, contact / (dt * dt), mass, nodes, force)
        energy[DIE] += down * speed * velocity_step
        if t >= window_start:
            impulse, window = impulse - dt * force[1, :, 0].sum(), window + dt
        move_nodes(nodes, force, mass, velocity_step, dt)
        t, last = t + dt, dt
        steps, remaining = steps + 1, remaining - 1
    return DONE, steps, last, impulse / window

"""Compiled loops of the Euler solver. The mathematics is in `solver.py`.

States q are (cells, 3): ρ, u, v. The others come as tuples:

faces: (cells, weights, normals, smooth) of the faces between cells. A row of `cells` has the cell
    before the face, the one after it, and around them one more on each side: a, b | c, d, where a
    or d is -1 at an end; `weights` (faces, 4) has the half widths of b, b, c, c over the distances
    of a to b, b to c, b to c, c to d; normals point from b to c and are as long as the face;
    `smooth` is the square of slopes below which nothing is limited.
far: (cells, weights, normals, states) of the outer faces: the cell, the next one inwards, the half
    width over their distance, the normal outwards and the state outside.
wall: (cells, weights, normals) of the wall: the cells above a face and their weights in its
    pressure.
gas: (h, γ), the total enthalpy and the ratio of specific heats.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

Arrays = tuple[np.ndarray, ...]
Gas = tuple[float, float]

_KAPPA = 0.9  # 1 - κ is the share of the third differences that jump at a face
_SONIC, _LINEAR = 0.1, 0.02  # of c: speeds of sound waves, and of others, are rounded below it
_SUBSONIC, _SUPERSONIC = 0.8, 1.1  # squares of Mach numbers between which limiting sets in
_BEND = 0.1  # half the width of the bend at M = 1
_LEAST = 1e-6  # square of the speed of sound
_STEP = 1e-7  # of difference quotients


@_jit
def pressure(rho: float, u: float, v: float, gas: Gas) -> float:
    """That of the total enthalpy h = γ/(γ - 1) p/ρ + (u² + v²)/2."""
    h, gamma = gas
    return (gamma - 1) / gamma * rho * (h - 0.5 * (u * u + v * v))


@_jit
def _sound(u: float, v: float, gas: Gas) -> float:
    return np.sqrt(max((gas[1] - 1) * (gas[0] - 0.5 * (u * u + v * v)), _LEAST))


@_jit
def _limited(a: float, b: float, smooth: float, share: float) -> tuple[float, float, float, float]:
    """A mean of the slopes behind and ahead, and its derivatives by both and by the share:
    (1 - κ)a/2 + (1 + κ)b/2 where they agree, and less by van Albada's factor where they differ."""
    size = a * a + b * b + smooth
    off = (a - b) ** 2 / size
    s = 1 - share * off
    by_a, by_b = -2 * share * (a - b - a * off) / size, -2 * share * (b - a - b * off) / size
    total = 0.5 * (a + b) + _KAPPA * s * (b - a)
    mean = 0.5 * s * ((1 - _KAPPA * s) * a + (1 + _KAPPA * s) * b)
    return (
        mean,
        by_a * total + 0.5 * s * (1 - _KAPPA * s),
        by_b * total + 0.5 * s * (1 + _KAPPA * s),
        -off * total,
    )


@_jit
def _sensors(q: np.ndarray, gas: Gas) -> tuple[np.ndarray, np.ndarray]:
    """0 where the flow of a cell is subsonic, 1 where it is supersonic: shocks lie beside such; and
    the derivatives by u and v."""
    found, slopes = np.empty(len(q)), np.empty((len(q), 2))
    for cell in range(len(q)):
        u, v = q[cell, 1], q[cell, 2]
        sound = _sound(u, v, gas) ** 2
        square = (u * u + v * v) / sound
        t = (square - _SUBSONIC) / (_SUPERSONIC - _SUBSONIC)
        inside = 0 < t < 1
        t = min(max(t, 0.0), 1.0)
        found[cell] = t * t * (3 - 2 * t)
        rate = 6 * t * (1 - t) / (_SUPERSONIC - _SUBSONIC) if inside else 0.0
        rate *= 2 / sound + (gas[1] - 1) * square / sound
        slopes[cell, 0], slopes[cell, 1] = rate * u, rate * v
    return found, slopes


@_jit
def _sides(
    q: np.ndarray,
    cells: np.ndarray,
    weights: np.ndarray,
    smooth: float,
    sensors: np.ndarray,
    states: np.ndarray,
    slopes: np.ndarray,
) -> None:
    """The states before and after a face, (2, 3), and their derivatives by the four cells and by
    what their sensors make together, (2, 5, 3). Beyond an end the slope changes as before it."""
    a, b, c, d = cells
    rest = (1 - sensors[b]) * (1 - sensors[c])
    if a >= 0:
        rest *= 1 - sensors[a]
    if d >= 0:
        rest *= 1 - sensors[d]
    share = float(1 - rest)
    slopes[:] = 0.0
    for k in range(3):
        jump = q[c, k] - q[b, k]
        x, y = weights[1] * jump, weights[2] * jump
        if a >= 0:
            mean, by_w, by_x, by_share = _limited(
                weights[0] * (q[b, k] - q[a, k]), x, smooth, share
            )
            slopes[0, 0, k] = -by_w * weights[0]
            slopes[0, 1, k] = by_w * weights[0] - by_x * weights[1]
            slopes[0, 2, k] = by_x * weights[1]
        else:
            t = weights[1] / weights[2] * weights[3]
            mean, by_w, by_x, by_share = _limited(2 * x - t * (q[d, k] - q[c, k]), x, smooth, share)
            slopes[0, 1, k] = -(by_x + 2 * by_w) * weights[1]
            slopes[0, 2, k] = (by_x + 2 * by_w) * weights[1] + by_w * t
            slopes[0, 3, k] = -by_w * t
        states[0, k] = q[b, k] + mean
        slopes[0, 1, k] += 1
        slopes[0, 4, k] = by_share
        if d >= 0:
            mean, by_z, by_y, by_share = _limited(
                weights[3] * (q[d, k] - q[c, k]), y, smooth, share
            )
            slopes[1, 3, k] = -by_z * weights[3]
            slopes[1, 2, k] = by_z * weights[3] - by_y * weights[2]
            slopes[1, 1, k] = by_y * weights[2]
        else:
            t = weights[2] / weights[1] * weights[0]
            mean, by_z, by_y, by_share = _limited(2 * y - t * (q[b, k] - q[a, k]), y, smooth, share)
            slopes[1, 2, k] = -(by_y + 2 * by_z) * weights[2]
            slopes[1, 1, k] = (by_y + 2 * by_z) * weights[2] + by_z * t
            slopes[1, 0, k] = -by_z * t
        states[1, k] = q[c, k] - mean
        slopes[1, 2, k] += 1
        slopes[1, 4, k] = -by_share
    if min(states[0, 0] / q[b, 0], states[1, 0] / q[c, 0]) < 0.05:  # hardly a density
        slopes[:] = 0.0
        for k in range(3):
            states[0, k], states[1, k] = q[b, k], q[c, k]
            slopes[0, 1, k] = slopes[1, 2, k] = 1.0


@_jit
def _rounded(speed: float, width: float) -> float:
    """|speed|, a parabola where that is less than width."""
    speed = abs(speed)
    return speed if speed >= width else 0.5 * (speed * speed / width + width)


@_jit
def _roe(states: np.ndarray, nx: float, ny: float, size: float, gas: Gas, flux: np.ndarray) -> None:
    """Roe's flux of mass and momentum through a face of this size and unit normal."""
    r0, u0, v0 = states[0]
    r1, u1, v1 = states[1]
    p0, p1 = pressure(r0, u0, v0, gas), pressure(r1, u1, v1, gas)
    n0, n1 = nx * u0 + ny * v0, nx * u1 + ny * v1
    w = np.sqrt(r1 / r0)
    rho, u, v = w * r0, (u0 + w * u1) / (1 + w), (v0 + w * v1) / (1 + w)
    c = _sound(u, v, gas)
    un, ut = nx * u + ny * v, nx * v - ny * u
    slowness = np.sqrt(u * u + v * v) / c  # Rieper's factor min(M, 1), smooth
    if slowness > 1 - _BEND:
        slowness = min(slowness, 1 + _BEND)
        slowness -= (slowness - 1 + _BEND) ** 2 / (4 * _BEND)
    dp, dn = p1 - p0, slowness * (n1 - n0)
    dt = nx * (v1 - v0) - ny * (u1 - u0)
    back = _rounded(un - c, _SONIC * c) * (dp - rho * c * dn) / (2 * c * c)
    forth = _rounded(un + c, _SONIC * c) * (dp + rho * c * dn) / (2 * c * c)
    middle = _rounded(un, _LINEAR * c)
    entropy, shear = middle * (r1 - r0 - dp / (c * c)), middle * rho * dt
    mass = back + forth + entropy
    normal = back * (un - c) + forth * (un + c) + entropy * un
    tangential = mass * ut + shear
    half = 0.5 * size
    flux[0] = half * (r0 * n0 + r1 * n1 - mass)
    flux[1] = half * (r0 * n0 * u0 + r1 * n1 * u1 + nx * (p0 + p1) - nx * normal + ny * tangential)
    flux[2] = half * (r0 * n0 * v0 + r1 * n1 * v1 + ny * (p0 + p1) - ny * normal - nx * tangential)


@_jit
def _roe_slopes(
    states: np.ndarray, nx: float, ny: float, size: float, gas: Gas, by: np.ndarray
) -> None:
    """Difference quotients of Roe's flux by both states, (2, 3, 3)."""
    flux, other = np.empty(3), np.empty(3)
    _roe(states, nx, ny, size, gas, flux)
    for side in range(2):
        for k in range(3):
            states[side, k] += _STEP
            _roe(states, nx, ny, size, gas, other)
            states[side, k] -= _STEP
            for m in range(3):
                by[side, m, k] = (other[m] - flux[m]) / _STEP


@_jit
def wall_pressure(q: np.ndarray, cells: np.ndarray, weights: np.ndarray, gas: Gas) -> float:
    """The pressure at a face of the wall, extrapolated from the cells above it."""
    p = 0.0
    for k in range(len(cells)):
        p += weights[k] * pressure(q[cells[k], 0], q[cells[k], 1], q[cells[k], 2], gas)
    return p


@_jit
def _outer(q: np.ndarray, far: Arrays, f: int, states: np.ndarray) -> None:
    cells, weights, _, outside = far
    for k in range(3):
        states[0, k] = q[cells[f, 0], k] + weights[f] * (q[cells[f, 0], k] - q[cells[f, 1], k])
        states[1, k] = outside[f, k]


@_jit
def residual(
    q: np.ndarray, faces: Arrays, far: Arrays, wall: Arrays, gas: Gas
) -> tuple[np.ndarray, np.ndarray]:
    """What flows out of each cell, (cells, 3), and its wave speeds times the lengths of its faces,
    (cells,)."""
    cells, weights, normals, smooth = faces
    found, speed = np.zeros(q.shape), np.zeros(len(q))
    states, flux, slopes = np.empty((2, 3)), np.empty(3), np.empty((2, 5, 3))
    sensors, _ = _sensors(q, gas)
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _sides(q, cells[f], weights[f], smooth[f], sensors, states, slopes)
        _roe(states, nx, ny, size, gas, flux)
        b, c = cells[f, 1], cells[f, 2]
        for k in range(3):
            found[b, k] += flux[k]
            found[c, k] -= flux[k]
        for cell in (b, c):
            u, v = q[cell, 1], q[cell, 2]
            speed[cell] += size * (abs(nx * u + ny * v) + _sound(u, v, gas))
    cells, _, normals, _ = far
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _outer(q, far, f, states)
        _roe(states, nx, ny, size, gas, flux)
        cell = cells[f, 0]
        for k in range(3):
            found[cell, k] += flux[k]
        u, v = q[cell, 1], q[cell, 2]
        speed[cell] += size * (abs(nx * u + ny * v) + _sound(u, v, gas))
    cells, weights, normals = wall
    for f in range(len(cells)):
        nx, ny, cell = normals[f, 0], normals[f, 1], cells[f, 0]
        p = wall_pressure(q, cells[f], weights[f], gas)
        found[cell, 1] += nx * p
        found[cell, 2] += ny * p
        u, v = q[cell, 1], q[cell, 2]
        speed[cell] += abs(nx * u + ny * v) + np.hypot(nx, ny) * _sound(u, v, gas)
    return found, speed


@_jit
def jacobian(
    q: np.ndarray, faces: Arrays, far: Arrays, wall: Arrays, gas: Gas, places: Arrays, count: int
) -> np.ndarray:
    """The derivatives of `residual`, as blocks (count, 3, 3) in the places given for the four cells
    of both rows of each face, and for the cells of each outer face and face of the wall."""
    cells, weights, normals, smooth = faces
    inner, outer, below = places
    blocks = np.zeros((count, 3, 3))
    sensors, rates = _sensors(q, gas)
    states, slopes, by = np.empty((2, 3)), np.empty((2, 5, 3)), np.empty((2, 3, 3))
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _sides(q, cells[f], weights[f], smooth[f], sensors, states, slopes)
        _roe_slopes(states, nx, ny, size, gas, by)
        for column in range(4):
            before, after = inner[f, 0, column], inner[f, 1, column]
            if before >= 0:
                for m in range(3):
                    for k in range(3):
                        value = (
                            by[0, m, k] * slopes[0, column, k] + by[1, m, k] * slopes[1, column, k]
                        )
                        blocks[before, m, k] += value
                        blocks[after, m, k] -= value
        for column in range(4):
            cell, before, after = cells[f, column], inner[f, 0, column], inner[f, 1, column]
            if before >= 0 and (rates[cell, 0] != 0 or rates[cell, 1] != 0):
                rest = 1.0
                for other in range(4):
                    if other != column and cells[f, other] >= 0:
                        rest *= 1 - sensors[cells[f, other]]
                for m in range(3):
                    value = 0.0
                    for k in range(3):
                        value += by[0, m, k] * slopes[0, 4, k] + by[1, m, k] * slopes[1, 4, k]
                    for k in range(2):
                        blocks[before, m, k + 1] += rest * value * rates[cell, k]
                        blocks[after, m, k + 1] -= rest * value * rates[cell, k]
    cells, weights, normals, _ = far
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _outer(q, far, f, states)
        _roe_slopes(states, nx, ny, size, gas, by)
        for m in range(3):
            for k in range(3):
                blocks[outer[f, 0], m, k] += by[0, m, k] * (1 + weights[f])
                blocks[outer[f, 1], m, k] -= by[0, m, k] * weights[f]
    cells, weights, normals = wall
    for f in range(len(cells)):
        for column in range(cells.shape[1]):
            rho, u, v = q[cells[f, column]]
            for m in range(2):
                n = weights[f, column] * (gas[1] - 1) / gas[1] * normals[f, m]
                block = blocks[below[f, column], m + 1]
                block[0] += n * (gas[0] - 0.5 * (u * u + v * v))
                block[1] -= n * rho * u
                block[2] -= n * rho * v
    return blocks

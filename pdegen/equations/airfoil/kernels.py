"""Compiled loops of the Euler solver. The mathematics is in `solver.py`.

States q have shape (cells, 3): density ρ and velocity u, v. The other arguments are tuples:

faces: (cells, weights, normals, smooth) of the faces between cells.
    `cells` (faces, 4) has the cells a, b | c, d on the grid line through each face. b lies before
    it and c after it; a and d are their outer neighbours, or -1 where the line ends.
    `weights` (faces, 4) has the half widths of b, b, c, c, each over the distance of the centres of
    a and b, b and c, b and c, c and d.
    `normals` (faces, 2) point from b to c; their length is that of the face.
    `smooth` (faces,) is added to the squared differences in the limiter: differences that are much
    smaller are not limited.
far: (cells, weights, normals, states) of the far-field faces: the cell inside and the next one
    inwards, the half width of the first over their distance, the outward normal and the state
    outside.
wall: (cells, weights, normals) of the wall faces: the cells above a face, their weights in the
    extrapolated wall pressure, and the normal into the wall.
gas: (h, γ), the total enthalpy and the ratio of specific heats.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(nogil=True, cache=True, error_model="numpy")

Arrays = tuple[np.ndarray, ...]
Gas = tuple[float, float]

_KAPPA = 0.9  # κ of the MUSCL scheme; the share 1 - κ of third differences jumps at a face
_ACOUSTIC_FIX, _CONVECTIVE_FIX = 0.1, 0.02  # entropy fix: thresholds of |u ± c| and of |u|, over c
_LOWER_SENSOR, _UPPER_SENSOR = 0.8, 1.1  # squared Mach numbers between which the limiter sets in
_MACH_BLEND = 0.1  # half the width in M over which min(M, 1) is smoothed
_LEAST_SOUND_SQUARED = 1e-6  # floor of c², for unphysical states
_DIFFERENCE_STEP = 1e-7  # step of difference quotients


@_jit
def pressure(rho: float, u: float, v: float, gas: Gas) -> float:
    """Pressure p from the total enthalpy h = γ/(γ - 1) p/ρ + (u² + v²)/2."""
    h, gamma = gas
    return (gamma - 1) / gamma * rho * (h - 0.5 * (u * u + v * v))


@_jit
def _sound_speed(u: float, v: float, gas: Gas) -> float:
    """Speed of sound c = ((γ - 1)(h - (u² + v²)/2))^½."""
    return np.sqrt(max((gas[1] - 1) * (gas[0] - 0.5 * (u * u + v * v)), _LEAST_SOUND_SQUARED))


@_jit
def _limited_increment(
    a: float, b: float, smooth: float, limiting: float
) -> tuple[float, float, float, float]:
    """Limited increment from a cell to a face, and its derivatives by a, b and `limiting`.

    a and b are the differences behind the cell and across the face. With limiting = 0 the increment
    is ((1 - κ)a + (1 + κ)b)/2; with 1, van Albada's factor s = (2ab + smooth)/(a² + b² + smooth)
    reduces it where a and b differ.
    """
    squares = a * a + b * b + smooth
    contrast = (a - b) ** 2 / squares
    s = 1 - limiting * contrast
    s_by_a, s_by_b = (
        -2 * limiting * (a - b - a * contrast) / squares,
        -2 * limiting * (b - a - b * contrast) / squares,
    )
    by_s = 0.5 * (a + b) + _KAPPA * s * (b - a)
    increment = 0.5 * s * ((1 - _KAPPA * s) * a + (1 + _KAPPA * s) * b)
    return (
        increment,
        s_by_a * by_s + 0.5 * s * (1 - _KAPPA * s),
        s_by_b * by_s + 0.5 * s * (1 + _KAPPA * s),
        -contrast * by_s,
    )


@_jit
def _sonic_sensors(q: np.ndarray, gas: Gas) -> tuple[np.ndarray, np.ndarray]:
    """Sensor of each cell, (cells,), and its derivatives by u and v, (cells, 2).

    It rises from 0 at M² = 0.8 to 1 at M² = 1.1: shocks lie beside supersonic cells.
    """
    sensors, derivatives = np.empty(len(q)), np.empty((len(q), 2))
    for cell in range(len(q)):
        u, v = q[cell, 1], q[cell, 2]
        sound_squared = _sound_speed(u, v, gas) ** 2
        mach_squared = (u * u + v * v) / sound_squared
        t = (mach_squared - _LOWER_SENSOR) / (_UPPER_SENSOR - _LOWER_SENSOR)
        inside = 0 < t < 1
        t = min(max(t, 0.0), 1.0)
        # the cubic t²(3 - 2t), and its derivative by (u² + v²)/2 over u or v
        sensors[cell] = t * t * (3 - 2 * t)
        rate = 6 * t * (1 - t) / (_UPPER_SENSOR - _LOWER_SENSOR) if inside else 0.0
        rate *= 2 / sound_squared + (gas[1] - 1) * mach_squared / sound_squared
        derivatives[cell, 0], derivatives[cell, 1] = rate * u, rate * v
    return sensors, derivatives


@_jit
def _limiting(sensors: np.ndarray, cells: np.ndarray) -> float:
    """Strength of the limiter at a face with the cells a, b | c, d: 1 - Π (1 - sensor)."""
    a, b, c, d = cells
    unlimited = (1 - sensors[b]) * (1 - sensors[c])
    if a >= 0:
        unlimited *= 1 - sensors[a]
    if d >= 0:
        unlimited *= 1 - sensors[d]
    return float(1 - unlimited)


@_jit
def _face_states(
    q: np.ndarray, cells: np.ndarray, weights: np.ndarray, smooth: float, sensors: np.ndarray,
    states: np.ndarray, slopes: np.ndarray,
) -> None:  # fmt: skip
    """MUSCL states on both sides of a face, from its four cells a, b | c, d.

    `states` (2, 3) becomes ρ, u, v on the side of b and of c. `slopes` (2, 5, 3) becomes their
    derivatives by a, b, c, d and by `_limiting`. Where a line of cells ends, the difference beyond
    the end is extrapolated linearly.
    """
    a, b, c, d = cells
    limiting = _limiting(sensors, cells)
    slopes[:] = 0.0
    for k in range(3):
        # the difference across the face, scaled by the half widths of b and of c
        jump = q[c, k] - q[b, k]
        across_b, across_c = weights[1] * jump, weights[2] * jump
        if a >= 0:
            increment, by_outer, by_across, by_limiting = _limited_increment(
                weights[0] * (q[b, k] - q[a, k]), across_b, smooth, limiting
            )
            slopes[0, 0, k] = -by_outer * weights[0]
            slopes[0, 1, k] = by_outer * weights[0] - by_across * weights[1]
            slopes[0, 2, k] = by_across * weights[1]
        else:
            stretch = weights[1] / weights[2] * weights[3]
            increment, by_outer, by_across, by_limiting = _limited_increment(
                2 * across_b - stretch * (q[d, k] - q[c, k]), across_b, smooth, limiting
            )
            slopes[0, 1, k] = -(by_across + 2 * by_outer) * weights[1]
            slopes[0, 2, k] = (by_across + 2 * by_outer) * weights[1] + by_outer * stretch
            slopes[0, 3, k] = -by_outer * stretch
        states[0, k] = q[b, k] + increment
        slopes[0, 1, k] += 1
        slopes[0, 4, k] = by_limiting
        if d >= 0:
            increment, by_outer, by_across, by_limiting = _limited_increment(
                weights[3] * (q[d, k] - q[c, k]), across_c, smooth, limiting
            )
            slopes[1, 3, k] = -by_outer * weights[3]
            slopes[1, 2, k] = by_outer * weights[3] - by_across * weights[2]
            slopes[1, 1, k] = by_across * weights[2]
        else:
            stretch = weights[2] / weights[1] * weights[0]
            increment, by_outer, by_across, by_limiting = _limited_increment(
                2 * across_c - stretch * (q[b, k] - q[a, k]), across_c, smooth, limiting
            )
            slopes[1, 2, k] = -(by_across + 2 * by_outer) * weights[2]
            slopes[1, 1, k] = (by_across + 2 * by_outer) * weights[2] + by_outer * stretch
            slopes[1, 0, k] = -by_outer * stretch
        states[1, k] = q[c, k] - increment
        slopes[1, 2, k] += 1
        slopes[1, 4, k] = -by_limiting
    if min(states[0, 0] / q[b, 0], states[1, 0] / q[c, 0]) < 0.05:  # nearly no density: first order
        slopes[:] = 0.0
        for k in range(3):
            states[0, k], states[1, k] = q[b, k], q[c, k]
            slopes[0, 1, k] = slopes[1, 2, k] = 1.0


@_jit
def _fixed_speed(speed: float, width: float) -> float:
    """Entropy fix: |speed|, replaced by a parabola where it is below the width."""
    speed = abs(speed)
    return speed if speed >= width else 0.5 * (speed * speed / width + width)


@_jit
def _roe_flux(
    states: np.ndarray, nx: float, ny: float, size: float, gas: Gas, flux: np.ndarray
) -> None:
    """Roe's flux of mass and momentum through a face, written to `flux` (3,).

    `states` (2, 3) has the states before and after the face, (nx, ny) is its unit normal from the
    first to the second, `size` its length.
    """
    r0, u0, v0 = states[0]
    r1, u1, v1 = states[1]
    p0, p1 = pressure(r0, u0, v0, gas), pressure(r1, u1, v1, gas)
    n0, n1 = nx * u0 + ny * v0, nx * u1 + ny * v1
    # Roe-averaged state, its velocity along the normal (un) and along the face (ut)
    w = np.sqrt(r1 / r0)
    rho, u, v = w * r0, (u0 + w * u1) / (1 + w), (v0 + w * v1) / (1 + w)
    c = _sound_speed(u, v, gas)
    un, ut = nx * u + ny * v, nx * v - ny * u
    low_mach = np.sqrt(u * u + v * v) / c  # Rieper's low-Mach factor min(M, 1), smoothed
    if low_mach > 1 - _MACH_BLEND:
        low_mach = min(low_mach, 1 + _MACH_BLEND)
        low_mach -= (low_mach - 1 + _MACH_BLEND) ** 2 / (4 * _MACH_BLEND)
    # strengths of the four waves, times their absolute speeds: u - c, u + c, entropy, shear
    dp, dn = p1 - p0, low_mach * (n1 - n0)
    dt = nx * (v1 - v0) - ny * (u1 - u0)
    left_wave = _fixed_speed(un - c, _ACOUSTIC_FIX * c) * (dp - rho * c * dn) / (2 * c * c)
    right_wave = _fixed_speed(un + c, _ACOUSTIC_FIX * c) * (dp + rho * c * dn) / (2 * c * c)
    convective_speed = _fixed_speed(un, _CONVECTIVE_FIX * c)
    entropy, shear = convective_speed * (r1 - r0 - dp / (c * c)), convective_speed * rho * dt
    # dissipation: sums of waves in mass, normal and tangential momentum
    mass = left_wave + right_wave + entropy
    normal = left_wave * (un - c) + right_wave * (un + c) + entropy * un
    tangential = mass * ut + shear
    # mean of both physical fluxes, less half the dissipation; back to x and y
    half = 0.5 * size
    flux[0] = half * (r0 * n0 + r1 * n1 - mass)
    flux[1] = half * (r0 * n0 * u0 + r1 * n1 * u1 + nx * (p0 + p1) - nx * normal + ny * tangential)
    flux[2] = half * (r0 * n0 * v0 + r1 * n1 * v1 + ny * (p0 + p1) - ny * normal - nx * tangential)


@_jit
def _roe_flux_derivatives(
    states: np.ndarray, nx: float, ny: float, size: float, gas: Gas, by: np.ndarray
) -> None:
    """Difference quotients of Roe's flux: by[side, m, k] = ∂flux_m/∂states[side, k]."""
    flux, changed = np.empty(3), np.empty(3)
    _roe_flux(states, nx, ny, size, gas, flux)
    for side in range(2):
        for k in range(3):
            states[side, k] += _DIFFERENCE_STEP
            _roe_flux(states, nx, ny, size, gas, changed)
            states[side, k] -= _DIFFERENCE_STEP
            for m in range(3):
                by[side, m, k] = (changed[m] - flux[m]) / _DIFFERENCE_STEP


@_jit
def wall_pressure(q: np.ndarray, cells: np.ndarray, weights: np.ndarray, gas: Gas) -> float:
    """Pressure at a wall face, extrapolated from the cells above it."""
    p = 0.0
    for k in range(len(cells)):
        p += weights[k] * pressure(q[cells[k], 0], q[cells[k], 1], q[cells[k], 2], gas)
    return p


@_jit
def _far_field_states(q: np.ndarray, far: Arrays, f: int, states: np.ndarray) -> None:
    """States (2, 3) at the far-field face f: extrapolated linearly from inside, and outside."""
    cells, weights, _, outside = far
    for k in range(3):
        states[0, k] = q[cells[f, 0], k] + weights[f] * (q[cells[f, 0], k] - q[cells[f, 1], k])
        states[1, k] = outside[f, k]


@_jit
def residual(
    q: np.ndarray, faces: Arrays, far: Arrays, wall: Arrays, gas: Gas
) -> tuple[np.ndarray, np.ndarray]:
    """Net outflow of mass and momentum from each cell, (cells, 3), and Σ (|u·n| + c) |face| over
    its faces, (cells,), which limits the pseudo-time step."""
    cells, weights, normals, smooth = faces
    outflow, wave_speed = np.zeros(q.shape), np.zeros(len(q))
    states, flux, slopes = np.empty((2, 3)), np.empty(3), np.empty((2, 5, 3))
    sensors, _ = _sonic_sensors(q, gas)
    # faces between cells: what leaves b enters c
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _face_states(q, cells[f], weights[f], smooth[f], sensors, states, slopes)
        _roe_flux(states, nx, ny, size, gas, flux)
        b, c = cells[f, 1], cells[f, 2]
        for k in range(3):
            outflow[b, k] += flux[k]
            outflow[c, k] -= flux[k]
        for cell in (b, c):
            u, v = q[cell, 1], q[cell, 2]
            wave_speed[cell] += size * (abs(nx * u + ny * v) + _sound_speed(u, v, gas))
    # far field: Roe's flux between the state inside and the state outside
    cells, _, normals, _ = far
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _far_field_states(q, far, f, states)
        _roe_flux(states, nx, ny, size, gas, flux)
        cell = cells[f, 0]
        for k in range(3):
            outflow[cell, k] += flux[k]
        u, v = q[cell, 1], q[cell, 2]
        wave_speed[cell] += size * (abs(nx * u + ny * v) + _sound_speed(u, v, gas))
    # wall: no mass flows through, the pressure pushes
    cells, weights, normals = wall
    for f in range(len(cells)):
        nx, ny, cell = normals[f, 0], normals[f, 1], cells[f, 0]
        p = wall_pressure(q, cells[f], weights[f], gas)
        outflow[cell, 1] += nx * p
        outflow[cell, 2] += ny * p
        u, v = q[cell, 1], q[cell, 2]
        wave_speed[cell] += abs(nx * u + ny * v) + np.hypot(nx, ny) * _sound_speed(u, v, gas)
    return outflow, wave_speed


@_jit
def _add_inner_blocks(
    q: np.ndarray, faces: Arrays, gas: Gas, inner: np.ndarray, blocks: np.ndarray
) -> None:
    """Adds the derivatives of the fluxes between cells; `inner` has the block numbers of faces."""
    cells, weights, normals, smooth = faces
    sensors, sensor_derivatives = _sonic_sensors(q, gas)
    states, slopes, by = np.empty((2, 3)), np.empty((2, 5, 3)), np.empty((2, 3, 3))
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _face_states(q, cells[f], weights[f], smooth[f], sensors, states, slopes)
        _roe_flux_derivatives(states, nx, ny, size, gas, by)
        # chain rule: flux by states, states by the four cells
        for column in range(4):
            row_b, row_c = inner[f, 0, column], inner[f, 1, column]
            if row_b >= 0:
                for m in range(3):
                    for k in range(3):
                        value = (
                            by[0, m, k] * slopes[0, column, k] + by[1, m, k] * slopes[1, column, k]
                        )
                        blocks[row_b, m, k] += value
                        blocks[row_c, m, k] -= value
        # states by the limiter, whose sensors depend on u and v
        for column in range(4):
            cell, row_b, row_c = cells[f, column], inner[f, 0, column], inner[f, 1, column]
            if row_b >= 0 and (
                sensor_derivatives[cell, 0] != 0 or sensor_derivatives[cell, 1] != 0
            ):
                others = 1.0
                for neighbour in range(4):
                    if neighbour != column and cells[f, neighbour] >= 0:
                        others *= 1 - sensors[cells[f, neighbour]]
                for m in range(3):
                    value = 0.0
                    for k in range(3):
                        value += by[0, m, k] * slopes[0, 4, k] + by[1, m, k] * slopes[1, 4, k]
                    for k in range(2):
                        blocks[row_b, m, k + 1] += others * value * sensor_derivatives[cell, k]
                        blocks[row_c, m, k + 1] -= others * value * sensor_derivatives[cell, k]


@_jit
def jacobian(
    q: np.ndarray, faces: Arrays, far: Arrays, wall: Arrays, gas: Gas, positions: Arrays, count: int
) -> np.ndarray:
    """Derivatives of `residual` by q, as blocks (count, 3, 3) of a sparse matrix.

    positions: Numbers of the blocks to which a face adds, negative for a missing cell. Inner faces
        have shape (faces, 2, 4): rows b and c, columns a, b, c, d. Far-field faces (faces, 2) and
        wall faces (faces, cells above) have the row of the cell at the boundary.
    """
    inner, outer, walls = positions
    blocks = np.zeros((count, 3, 3))
    _add_inner_blocks(q, faces, gas, inner, blocks)
    states, by = np.empty((2, 3)), np.empty((2, 3, 3))
    # far field: the state inside is extrapolated from two cells; the state outside is fixed
    cells, weights, normals, _ = far
    for f in range(len(cells)):
        size = np.hypot(normals[f, 0], normals[f, 1])
        nx, ny = normals[f, 0] / size, normals[f, 1] / size
        _far_field_states(q, far, f, states)
        _roe_flux_derivatives(states, nx, ny, size, gas, by)
        for m in range(3):
            for k in range(3):
                blocks[outer[f, 0], m, k] += by[0, m, k] * (1 + weights[f])
                blocks[outer[f, 1], m, k] -= by[0, m, k] * weights[f]
    # wall: derivatives of the extrapolated pressure by ρ, u, v, in the rows of momentum
    cells, weights, normals = wall
    for f in range(len(cells)):
        for column in range(cells.shape[1]):
            rho, u, v = q[cells[f, column]]
            for m in range(2):
                n = weights[f, column] * (gas[1] - 1) / gas[1] * normals[f, m]
                block = blocks[walls[f, column], m + 1]
                block[0] += n * (gas[0] - 0.5 * (u * u + v * v))
                block[1] -= n * rho * u
                block[2] -= n * rho * v
    return blocks

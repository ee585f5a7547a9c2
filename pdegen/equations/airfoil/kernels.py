"""Compiled loops of the Euler solver. `solver.py` describes the mathematics.

States q have shape (cells, 3) and contain the density ρ and the velocity components u, v. The
other arguments are tuples of arrays:

faces: (cells, weights, normals, smooth) for the faces between cells.
    `cells` (faces, 4) has four cells a, b | c, d for each face. The face lies between b and c. a is
    the other neighbour of b, and d that of c. Their number is -1 where the grid line ends.
    `weights` (faces, 4) has one fraction for each pair (a, b), (b, c), (b, c), (c, d). The
    denominator is the distance between the two centres. The numerator is the half width of b for
    the first two fractions, and of c for the last two.
    `normals` (faces, 2) point from b to c. Their length is the length of the face.
    `smooth` (faces,) is added to the squared differences in the limiter. The limiter does not
    affect differences whose square is much smaller than `smooth`.
far: (cells, weights, normals, states) for the far-field faces.
    `cells` (faces, 2) has the cell at the boundary and the next cell inwards. `weights` (faces,)
    has the half width of the first cell divided by the distance between both centres.
    `normals` point outwards, and `states` are the states outside.
wall: (cells, weights, normals) for the wall faces.
    `cells` (faces, above) has a few cells above each face. The wall pressure is the sum of their
    pressures multiplied by `weights` (faces, above). `normals` point into the wall.
gas: (h, γ), the total enthalpy and the ratio of specific heats.
"""

from __future__ import annotations

import numpy as np

from pdegen.numerics.compilation import compiled

_jit, _inner = (compiled(inner=inner, error_model="numpy") for inner in (False, True))

Arrays = tuple[np.ndarray, ...]
Gas = tuple[float, float]

_KAPPA = 0.9  # κ of the MUSCL scheme; the share 1 - κ of third differences jumps at a face
_ACOUSTIC_FIX, _CONVECTIVE_FIX = 0.1, 0.02  # entropy fix: thresholds of |u ± c| and of |u|, over c
_LOWER_SENSOR, _UPPER_SENSOR = 0.8, 1.1  # squared Mach numbers between which the limiter sets in
_MACH_BLEND = 0.1  # half the width in M over which min(M, 1) is smoothed
_LEAST_SOUND_SQUARED = 1e-6  # floor of c², for unphysical states
_DIFFERENCE_STEP = 1e-7  # step of difference quotients


@_inner
def pressure(rho: float, u: float, v: float, gas: Gas) -> float:
    """Pressure p that solves γ/(γ - 1) p/ρ + (u² + v²)/2 = h."""
    h, gamma = gas
    return (gamma - 1) / gamma * rho * (h - 0.5 * (u * u + v * v))


@_inner
def _sound_speed(u: float, v: float, gas: Gas) -> float:
    """Speed of sound c = ((γ - 1)(h - (u² + v²)/2))^½."""
    return np.sqrt(max((gas[1] - 1) * (gas[0] - 0.5 * (u * u + v * v)), _LEAST_SOUND_SQUARED))


@_inner
def _limited_increment(
    a: float, b: float, smooth: float, limiting: float
) -> tuple[float, float, float, float]:
    """Limited increment from a cell centre to a face, and its derivatives by a, b and `limiting`.

    b is the difference across this face, and a the difference across the opposite face. The
    increment is s ((1 - κs)a + (1 + κs)b)/2. The factor s is linear in `limiting`. If `limiting` is
    0, s is 1. If it is 1, s is van Albada's factor (2ab + smooth)/(a² + b² + smooth).
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


@_inner
def _sonic_sensors(q: np.ndarray, gas: Gas) -> tuple[np.ndarray, np.ndarray]:
    """Sensor of each cell, shape (cells,), and its derivatives by u and v, shape (cells, 2)."""
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


@_inner
def _limiting(sensors: np.ndarray, cells: np.ndarray) -> float:
    """Strength of the limiter at a face: 1 - Π (1 - sensor), with a factor for each of `cells`."""
    a, b, c, d = cells
    unlimited = (1 - sensors[b]) * (1 - sensors[c])
    if a >= 0:
        unlimited *= 1 - sensors[a]
    if d >= 0:
        unlimited *= 1 - sensors[d]
    return float(1 - unlimited)


@_inner
def _face_states(
    q: np.ndarray, cells: np.ndarray, weights: np.ndarray, smooth: float, sensors: np.ndarray,
    states: np.ndarray, slopes: np.ndarray,
) -> None:  # fmt: skip
    """Writes the MUSCL states on both sides of a face, computed from its four cells a, b | c, d."""
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


@_inner
def _fixed_speed(speed: float, width: float) -> float:
    """Entropy fix: |speed|, smoothed to a parabola where |speed| < width."""
    speed = abs(speed)
    return speed if speed >= width else 0.5 * (speed * speed / width + width)


@_inner
def _roe_flux(
    states: np.ndarray, nx: float, ny: float, size: float, gas: Gas, flux: np.ndarray
) -> None:
    """Writes Roe's flux of mass and momentum through a face to `flux`, shape (3,)."""
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


@_inner
def _roe_flux_derivatives(
    states: np.ndarray, nx: float, ny: float, size: float, gas: Gas, by: np.ndarray
) -> None:
    """Writes the derivatives ∂flux_m/∂states[side, k] of Roe's flux to by[side, m, k]."""
    flux, changed = np.empty(3), np.empty(3)
    _roe_flux(states, nx, ny, size, gas, flux)
    for side in range(2):
        for k in range(3):
            states[side, k] += _DIFFERENCE_STEP
            _roe_flux(states, nx, ny, size, gas, changed)
            states[side, k] -= _DIFFERENCE_STEP
            for m in range(3):
                by[side, m, k] = (changed[m] - flux[m]) / _DIFFERENCE_STEP


@_inner
def wall_pressure(q: np.ndarray, cells: np.ndarray, weights: np.ndarray, gas: Gas) -> float:
    """Pressure at a wall face, extrapolated from the cells above it."""
    p = 0.0
    for k in range(len(cells)):
        p += weights[k] * pressure(q[cells[k], 0], q[cells[k], 1], q[cells[k], 2], gas)
    return p


@_inner
def _far_field_states(q: np.ndarray, far: Arrays, f: int, states: np.ndarray) -> None:
    """Writes the states (2, 3) on both sides of the far-field face f."""
    cells, weights, _, outside = far
    for k in range(3):
        states[0, k] = q[cells[f, 0], k] + weights[f] * (q[cells[f, 0], k] - q[cells[f, 1], k])
        states[1, k] = outside[f, k]


@_jit
def residual(
    q: np.ndarray, faces: Arrays, far: Arrays, wall: Arrays, gas: Gas
) -> tuple[np.ndarray, np.ndarray]:
    """Net outflow of mass and momentum from each cell, shape (cells, 3), and wave speeds.

    The wave speed of a cell, Σ (|u·n| + c) |face| over its faces, limits the pseudo-time step.
    """
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


@_inner
def _add_inner_blocks(
    q: np.ndarray, faces: Arrays, gas: Gas, inner: np.ndarray, blocks: np.ndarray
) -> None:
    """Adds the derivatives of the fluxes through inner faces to `blocks`."""
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
    """Derivatives of `residual` by q: the blocks of a sparse matrix, shape (count, 3, 3).

    `positions` has three arrays with the numbers of the blocks to which each face contributes.
    The first array (faces, 2, 4) is for inner faces. The blocks are in the rows of b and c, and in
    the columns of a, b, c, d. The second array (faces, 2) is for far-field faces, and the third
    (faces, above) for wall faces. Both refer to blocks in the row of the cell at the boundary. A
    number is negative if the cell of the column is missing.
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

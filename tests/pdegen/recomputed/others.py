"""Equations whose solvers no short second computation replaces: where each of their keys is tested,
by an exact solution, an independent figure or another unit."""

from __future__ import annotations

from tests.pdegen.recomputed.case import Case, Content, Expected

_UNITS = "recomputed/test_units.py::test_a_forged_block_is_the_same_in_other_units"
_PLASTIC = "test_plasticity.py::"
_ELASTIC = "test_elasticity.py::"
_PIPE = "test_pipe.py::"
_AIRFOIL = "test_airfoil.py::"


def _none(content: Content, seed: int, samples: range) -> Expected:
    raise NotImplementedError


def _only(words: set[str], elsewhere: dict[str, str]) -> Case:
    return Case({}, _none, {}, frozenset({"equation", *words}), elsewhere)


AIRFOIL = _only(
    {"design.law"},
    {
        "resolution": _AIRFOIL + "test_a_finer_grid_has_all_nodes_of_a_coarser_one",
        "mach": _AIRFOIL + "test_the_far_stream_is_that_of_the_formulas",
        "angle": _AIRFOIL + "test_the_far_stream_is_that_of_the_formulas",
        "gamma": _AIRFOIL + "test_the_far_stream_is_that_of_the_formulas",
        "design.amplitude": _AIRFOIL + "test_designs_of_another_size_are_noticed",
        "solver.tolerance": _AIRFOIL + "test_what_is_not_steady_is_an_error",
    },
)
ELASTICITY = _only(
    {"void.law"},
    {
        "resolution": _ELASTIC + "test_acceptance_figures",
        "traction": "recomputed/test_units.py::test_a_sheet_is_the_same_in_other_units",
        "refinement": _ELASTIC
        + "test_a_finer_mesh_by_a_key_has_the_same_points_and_smaller_errors",
        "void.least": "recomputed/test_units.py::test_a_void_has_the_radius_of_its_formula",
        "void.span": "recomputed/test_units.py::test_a_void_has_the_radius_of_its_formula",
        "void.sigma": "recomputed/test_units.py::test_a_void_has_the_radius_of_its_formula",
        "void.tau": "recomputed/test_units.py::test_a_void_has_the_radius_of_its_formula",
        "void.modes": "recomputed/test_units.py::test_a_void_has_the_radius_of_its_formula",
        "material.law": _ELASTIC + "test_a_small_load_on_the_hyperelastic_sheet_is_linear",
        "material.young": "recomputed/test_units.py::test_a_sheet_is_the_same_in_other_units",
        "material.poisson": _ELASTIC + "test_cooks_membrane",
        "material.c1": "recomputed/test_units.py::test_a_sheet_is_the_same_in_other_units",
        "material.c2": _ELASTIC + "test_uniaxial_stretch_of_mooney_and_rivlin",
        "material.steps": _ELASTIC + "test_load_steps_do_not_change_the_equilibrium",
    },
)
PIPE = _only(
    {"centre.law"},
    {
        "resolution": _PIPE + "test_acceptance_figures",
        "viscosity": _PIPE + "test_the_orders_are_three_and_two",
        "length": _PIPE + "test_a_straight_pipe_has_the_flow_of_poiseuille",
        "refinement": _PIPE
        + "test_a_finer_solution_by_a_key_has_the_same_points_and_smaller_errors",
        "centre.heights": "recomputed/test_units.py::test_a_pipe_is_the_cubic_of_its_knots",
        "centre.slopes": "recomputed/test_units.py::test_a_pipe_is_the_cubic_of_its_knots",
    },
)
PLASTICITY = _only(
    {"die.law", "solver.method"},
    {
        **dict.fromkeys(
            ("length", "height", "speed", "interval", "material.young", "material.limit",
             "material.density", "die.heights", "die.gap"),
            _UNITS,
        ),
        "resolution": _PLASTIC + "test_two_grids_tell_the_error",
        "frames": _PLASTIC + "test_stores_of_few_frames_pass",
        "drift": _PLASTIC + "test_labels_without_drift_are_those_with_it_moved",
        "material.poisson": _PLASTIC
        + "test_a_linear_velocity_gives_one_stress_and_no_force_inside",
        "die.points": _PLASTIC + "test_a_die_is_a_natural_spline_that_goes_on_straight",
        "solver.share": _PLASTIC + "test_smaller_steps_change_little",
        "solver.hourglass": _PLASTIC + "test_an_hourglass_mode_is_resisted_and_pays_for_it",
        "solver.viscosity": _PLASTIC
        + "test_hourglass_modes_are_damped_alike_in_elements_of_any_shape",
        "solver.contact": _PLASTIC + "test_the_block_is_between_the_floor_and_the_die",
        "solver.imbalance": _PLASTIC + "test_a_sample_out_of_balance_is_named_and_others_are_kept",
    },
)  # fmt: skip

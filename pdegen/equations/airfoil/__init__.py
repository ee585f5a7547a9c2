"""The steady Euler equations around morphed airfoils: transonic flow on a C-grid."""

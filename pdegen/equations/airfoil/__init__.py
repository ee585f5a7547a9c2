"""The steady Euler equations around morphed sections: transonic flow on a C-grid."""

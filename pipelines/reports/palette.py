"""Colours of figures, reports and the site."""

# Okabe and Ito's colours: distinct for colour-blind readers; line styles and markers differ too
TRUTH, MODEL, ERROR, INPUT = "#000000", "#0072B2", "#D55E00", "#009E73"
QUIET = "#7F7F7F"
INKS = (MODEL, ERROR, INPUT, "#CC79A7", "#E69F00", "#56B4E9", QUIET, TRUTH)  # of several runs
SHADE = "#9CC5E0"  # of areas: a light MODEL
MARKERS = "osD^vP*X<>hp"
DASHES = ("-", "--", "-.", ":")

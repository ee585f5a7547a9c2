"""Generate, verify, train, evaluate, report: the only package that knows pdegen and operators."""

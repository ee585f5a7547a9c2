"""Speed against floors and other ways, for developers; `make bench` runs most of it."""

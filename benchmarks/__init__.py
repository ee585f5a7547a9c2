"""Speed against other ways, for developers; `make bench` runs these and `pdegen bench`."""

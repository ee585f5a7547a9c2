# pdegen in a container, with PyTorch for CPUs:
#   docker build -t pdegen .
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" pdegen run burgers-quick
# With dolfinx of Debian, for the recipes darcy-fem and darcy-inclusion:
#   docker build -t pdegen-dolfinx --target dolfinx .
# For GPUs, another index of PyTorch (docs/installing.md): --build-arg PIP_EXTRA_INDEX_URL=...

FROM python:3.13-slim-trixie AS base
ARG PIP_EXTRA_INDEX_URL
ARG PIP_NO_CACHE_DIR=1
WORKDIR /opt/pdegen
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY install install
COPY datasets datasets
COPY pdegen pdegen
COPY operators operators
COPY pipelines pipelines
RUN python -m venv /opt/venv \
    && /opt/venv/bin/python install/pytorch.py \
    && /opt/venv/bin/pip install --no-cache-dir --constraint constraints.txt . \
    && /opt/venv/bin/python install/slim.py
ENV PATH=/opt/venv/bin:$PATH MPLCONFIGDIR=/tmp/matplotlib NUMBA_CACHE_DIR=/tmp/numba
WORKDIR /work
ENTRYPOINT ["pdegen"]
CMD ["--help"]

FROM base AS dolfinx
# a distribution's release pins its versions
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-dolfinx-real python3-gmsh \
       libopenblas0-pthread \
    && rm -rf /var/lib/apt/lists/*
USER 1000

FROM base AS pdegen
USER 1000

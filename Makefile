# make demo      environment of a user, then recipe -> store -> trained operator -> report.html
# make test      environment of a developer, linters, types, import contracts, doctests and tests
# make check     format, linters, import contracts, structure; types and tests that changed
# make plain     a new environment of the default dependencies alone, and what a user does in it
# make validate  published numbers, and the tests that take minutes
# make soak      kills, power cuts, flipped bytes, failing disks: the same bytes afterwards, or a refusal
# make mutants   faults that cosmic-ray puts into ten modules, and the share that survives the tests
# make bench     speed, as ratios inside one run
# make dolfinx   the finite element library, which is not on PyPI: from Debian where this may install
# make servers   SLURM and Ceph for the tests of make validate: from Debian where this may install
# make calculix  the oracle of plasticity: from Debian where this may install
# make fuse      the library of the power cuts, which make validate and make soak install
# make docs      the site of docs/, its tutorials executed, in build/site
# make browser   Chromium and axe, which make validate looks at the site with
# make format    fix what ruff can fix

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
TOOLS := $(VENV)/tools
# Python compiles the modules that are imported; the others, most of them, never are
INSTALL := $(BIN)/pip install --disable-pip-version-check --no-compile
# waiting threads that spin slow a shared machine down many times over
QUIET := OMP_WAIT_POLICY=PASSIVE OPENBLAS_NUM_THREADS=1
# this version ships published samples, which the tests import; later ones do not
SAMPLES := neuraloperator==0.3.0
# the schema of CITATION.cff, without the packages of its converter
SCHEMA := cffconvert==2.0.0
# Gmsh makes meshes for the oracles of elasticity
DOLFINX := python3-dolfinx-real python3-gmsh libopenblas0-pthread
SLURM := slurm-wlm munge
CEPH := radosgw ceph-mon ceph-osd
FUSE := fuse3 libfuse3-3
CALCULIX := calculix-ccx
PAPER := texlive-latex-base texlive-latex-recommended poppler-utils
# npm's: they look at the pages of the site
CHECKERS := axe-core@4.14.1 playwright-core@1.65.1
# at run level 1 no service starts
APT := RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300

.PHONY: demo check dolfinx servers fuse calculix paper browser plain test validate soak mutants bench format
.PHONY: lint docs

# pyproject.toml without the settings of linters and tests; its time changes with its text alone
build/project.toml: pyproject.toml
	@mkdir -p build
	@awk '/^\[/ { kept = !/^\[+tool\./ || /^\[tool\.hatch/ } kept' pyproject.toml > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# what a user needs
$(READY): build/project.toml constraints.txt install/pytorch.py install/slim.py
	@echo "installing pdegen and what it needs into $(VENV); size and build of PyTorch follow"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python install/pytorch.py
	$(INSTALL) --constraint constraints.txt --editable .
	$(BIN)/python install/slim.py
	@du -sm $(VENV) | sed 's/\([0-9]*\).*/$(VENV) has \1 MB/'
	touch $(READY)

# what a developer needs beside it
$(TOOLS): $(READY)
	$(INSTALL) --constraint constraints.txt --editable ".[dev]"
	$(INSTALL) --no-deps $(SCHEMA)
	$(INSTALL) --no-deps --upgrade --target $(VENV)/samples $(SAMPLES)
	touch $(TOOLS)

demo: $(READY)
	$(BIN)/pdegen run burgers-quick --out runs/demo --overwrite

# the tools of the site, for those who build it
$(VENV)/docs: $(READY)
	$(INSTALL) --constraint constraints.txt --editable ".[docs]"
	touch $(VENV)/docs

docs: $(VENV)/docs
	$(QUIET) OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet \
		--define nb_execution_mode=cache docs build/site
	@echo build/site/index.html

lint: $(TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# the subpackages, and the files of tests, with changes since this commit: make check SINCE=main
SINCE := HEAD~1
SINCE_THEN = { git diff --name-only --diff-filter=d $(SINCE); git ls-files --others \
	--exclude-standard; }
CHANGED = $$($(SINCE_THEN) | grep -E "^(pdegen|operators|pipelines)/.*\.py$$" | cut -d/ -f1-2 | sort -u)
TOUCHED = $$($(SINCE_THEN) | grep -E "^tests/(.*/)?test_[^/]*\.py$$" | sort -u)

check: $(TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	changed="$(CHANGED)"; if test -n "$$changed"; then $(BIN)/pyright $$changed; fi
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 \
		tests/test_structure.py $(TOUCHED)

# $(call debian,CHECK,NAME,PACKAGES): install Debian's packages where root and apt allow, else say so
define debian
@if $(1); then exit; fi; \
	if test "$$(id -u)" = 0; then as_root=env; else as_root="sudo -n env"; fi; \
	if ! { command -v apt-get && $$as_root true; } >/dev/null 2>&1; then \
		echo "$(2) is missing: apt-get install $(3)"; exit; fi; \
	echo "installing $(3)"; \
	install="$$as_root $(APT) install -qq -y --no-install-recommends $(3)"; \
	$$install >/dev/null 2>&1 || { $$as_root $(APT) update -qq && $$install >/dev/null; } || \
		echo "$(2) could not be installed: its tests say what is missing"
endef

dolfinx:
	$(call debian,test -n "$$PDEGEN_DOLFINX_PYTHON" || \
		/usr/bin/python3 -I -c "import dolfinx; import gmsh" 2>/dev/null,dolfinx,$(DOLFINX))

fuse:
	$(call debian,ldconfig -p | grep -q libfuse3,libfuse,$(FUSE))

calculix:
	$(call debian,command -v ccx >/dev/null,CalculiX,$(CALCULIX))

paper:
	$(call debian,command -v pdflatex >/dev/null && command -v pdftotext >/dev/null,LaTeX,$(PAPER))

# build/browser has the driver of Chromium and the checker of pages, neither of which the site needs
browser:
	$(call debian,command -v chromium >/dev/null,Chromium,chromium)
	$(call debian,command -v npm >/dev/null,npm,npm)
	-npm install --silent --no-audit --no-fund --prefix build/browser $(CHECKERS)

servers:
	$(call debian,command -v slurmctld >/dev/null && command -v munged >/dev/null,SLURM,$(SLURM))
	$(call debian,command -v radosgw >/dev/null && command -v ceph-osd >/dev/null,Ceph,$(CEPH))

# build/plain is made anew; steps and their seconds are printed
plain:
	$(PYTHON) -m tests.plain

# Workers of one thread each, one more than processors, for tests of servers and of locks wait;
# neighbours stay together, for they share what is made for them. Bytecode is kept, whatever the
# environment says, for many tests start processes.
test: lint dolfinx calculix
	$(QUIET) OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "not slow" \
		--numprocesses 3 --dist worksteal --timeout 900 --durations=15

validate: $(TOOLS) $(VENV)/docs browser paper fuse calculix
	$(QUIET) $(BIN)/python -m pytest tests/validation --durations=10
	$(QUIET) $(BIN)/python -m pytest -m slow --timeout 3600 --durations=10

soak: $(TOOLS) fuse
	$(QUIET) $(BIN)/python -m tests.soak

# cosmic-ray has an environment of its own
build/mutants/bin/cosmic-ray:
	$(PYTHON) -m venv build/mutants
	build/mutants/bin/pip install --disable-pip-version-check cosmic-ray==8.7.0

mutants: $(TOOLS) build/mutants/bin/cosmic-ray
	PATH="$(CURDIR)/build/mutants/bin:$$PATH" $(QUIET) OMP_NUM_THREADS=1 \
		$(BIN)/python -m tests.mutants

bench: $(TOOLS)
	$(QUIET) $(BIN)/python -m benchmarks all
	$(QUIET) $(BIN)/python -m benchmarks.burgers
	$(QUIET) $(BIN)/python -m benchmarks.darcy
	$(QUIET) $(BIN)/python -m benchmarks.training
	$(QUIET) $(BIN)/python -m benchmarks.scale --shards 10000
	$(QUIET) $(BIN)/python -m benchmarks.workers
	$(QUIET) $(BIN)/python -m benchmarks.start

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

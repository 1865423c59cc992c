# Everything that a person or a machine does with a clone. Each target first installs missing packages.
.DEFAULT_GOAL := help
SHELL := /bin/bash -o pipefail

build_dir := build/release
# ccache is used if it is installed.
launcher = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
# WINNOW_CUDA=ON builds the device code, OFF does not. Unset: it is built if there is a device.
configure = cmake --preset release $(launcher) $(if $(WINNOW_CUDA),-DWINNOW_CUDA=$(WINNOW_CUDA)) $(CMAKE_ARGS)
program = @scripts/build.py $(build_dir) winnow_cli

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: packages packages-ci
packages:
	@scripts/bootstrap.sh
packages-ci:
	@scripts/bootstrap.sh --ci

$(build_dir)/build.ninja: CMakePresets.json | packages
	@$(configure) | grep -- '-- CUDA'

# The values of this call count, also if the folder was configured before.
.PHONY: configured
configured: packages $(build_dir)/build.ninja
	@$(if $(WINNOW_CUDA)$(CMAKE_ARGS),$(configure) | grep -- '-- CUDA',true)

.PHONY: build
build: configured ## The program, optimised, into build/release; WINNOW_CUDA=ON: with the device code
	$(program)

.PHONY: all
all: configured ## The program and all tests
	@scripts/build.py $(build_dir)

.PHONY: demo
demo: configured ## Build what the demo needs and run it on the model in assets/
	@scripts/build.py $(build_dir) winnow_demo
	@$(build_dir)/bin/winnow-demo demo

.PHONY: retrofit-demo
retrofit-demo: configured ## Teach the model in assets/ to compress its cache, and run it
	$(program)
	@scripts/retrofit-demo.sh

.PHONY: test
test: all ## Build and run all tests but those with clients from PyPI
	@ctest --preset release -j "$$(($$(nproc) + 1))"  # many tests wait for another process

.PHONY: test-clients
test-clients: all ## Ask a server with the clients that people use, from PyPI (2 GB)
	@ctest --preset clients

.PHONY: python
python: all ## Build the Python package's wheel and run its tests
	@scripts/bootstrap.sh --python
	@scripts/python-tests.sh $(build_dir)

.PHONY: docs
docs: configured ## Build the documentation as a site into build/site
	$(program)
	@scripts/bootstrap.sh --python
	@scripts/docs/build.sh

.PHONY: eval-demo
eval-demo: configured ## What every cache costs the models in assets/ (7 to 13 minutes on two cores)
	$(program)
	@python3 scripts/eval_demo.py --binary $(build_dir)/bin/winnow

.PHONY: bench
bench: configured ## Build and run the benchmarks
	@cmake $(build_dir) -DWINNOW_BUILD_BENCHMARKS=ON >/dev/null
	@scripts/build.py $(build_dir)
	@set -e; for program in $(build_dir)/benchmarks/*_benchmark; do "$$program" $(BENCH_ARGS); done

.PHONY: sanitize
sanitize: packages ## Build and run the unit tests under ASan and UBSan
	@cmake --preset asan $(launcher) >/dev/null
	@scripts/build.py build/asan
	@ctest --preset asan -j "$$(nproc)"

.PHONY: format
format: packages-ci ## Lay out the sources as .clang-format says
	@scripts/check.sh format --fix

.PHONY: lint
lint: packages-ci all ## Check layout, links and device code for older devices, run clang-tidy
	@scripts/check.sh format
	@scripts/check.sh links
	@scripts/check.sh devices
	@scripts/check.sh tidy

.PHONY: deb tarball wheel
deb: configured ## Build Debian packages of this distribution
	@scripts/bootstrap.sh --package
	$(program)
	@scripts/package.sh deb $(build_dir)
tarball: configured ## Build a tarball with the program and the libraries that it needs
	@scripts/bootstrap.sh --package
	$(program)
	@scripts/package.sh tarball $(build_dir)
wheel: configured ## Build a Python wheel with the program and the libraries that they need
	@scripts/bootstrap.sh --package
	$(program)
	@scripts/package.sh wheel $(build_dir)

.PHONY: install
install: build ## Install into PREFIX (default /usr/local)
	@cmake --install $(build_dir) --prefix "$(or $(PREFIX),/usr/local)"

.PHONY: clean
clean: ## Remove all build folders
	@rm -rf build

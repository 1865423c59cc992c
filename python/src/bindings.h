// The parts of the extension module winnow._winnow. The package's Python files make the API of it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace winnow::python {

namespace nb = nanobind;

/// Token ids that Python gives.
using TokenArray = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// An array that owns `values`, whose number is the product of `shape`.
template <class T, int Dimensions>
nb::ndarray<nb::numpy, T, nb::ndim<Dimensions>> to_numpy(std::vector<T> values,
                                                         const std::size_t (&shape)[Dimensions]) {
  auto* held = new std::vector<T>(std::move(values));
  const nb::capsule owner(held,
                          [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return nb::ndarray<nb::numpy, T, nb::ndim<Dimensions>>(held->data(), Dimensions, shape, owner);
}

void bind_results(nb::module_& module);
void bind_stream(nb::module_& module);
void bind_llm(nb::module_& module);

}  // namespace winnow::python

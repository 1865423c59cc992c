#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

void RoutesMemory::reserve(const Router& router, int rows) {
  const std::size_t pairs =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(router.active);
  experts_.ensure(pairs);
  weights_.ensure(pairs);
  pairs_.ensure(pairs);
  places_.ensure(pairs);
  begins_.ensure(static_cast<std::size_t>(router.count) + 1);
}

RoutesView RoutesMemory::view() const {
  return {experts_.data(), weights_.data(), pairs_.data(), places_.data(), begins_.data()};
}

}  // namespace winnow::ops::cuda

// Tests that need a CUDA device.
#pragma once

#include <gtest/gtest.h>

#include "base/cuda/device.h"

namespace winnow::testing {

/// A fixture whose tests are skipped where there is no device.
template <class Test>
class OnDevice : public Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

}  // namespace winnow::testing

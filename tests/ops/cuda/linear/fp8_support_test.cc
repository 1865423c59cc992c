#include "ops/cuda/linear/fp8_support.h"

#include <gtest/gtest.h>

namespace winnow::ops::cuda {
namespace {

TEST(Fp8Support, IsHoppersWithScalesOfRows) {
  EXPECT_EQ((Fp8Support{9, 0, 120900}.problem()), "");
  EXPECT_EQ((Fp8Support{9, 0, 130100}.problem()), "");
}

TEST(Fp8Support, NamesTheDevicesComputeCapability) {
  EXPECT_EQ((Fp8Support{8, 6, 120900}.problem()),
            "the device has compute capability 8.6, products in fp8 need 9.0 (H100, H200)");
  EXPECT_NE((Fp8Support{10, 0, 120900}.problem()), "");
}

TEST(Fp8Support, NamesTheVersionOfTheLibrary) {
  EXPECT_EQ((Fp8Support{9, 0, 120805}.problem()),
            "cuBLASLt has version 12.8, products in fp8 need that of CUDA 12.9");
}

}  // namespace
}  // namespace winnow::ops::cuda

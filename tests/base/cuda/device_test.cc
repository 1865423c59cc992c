// Device memory.
#include "base/cuda/device.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "base/cuda/on_device.h"
#include "base/error.h"

namespace winnow::cuda {
namespace {

class DeviceMemoryTest : public winnow::testing::OnDevice<::testing::Test> {};

// After a step that found no memory, sequences are closed by kernels.
TEST_F(DeviceMemoryTest, LaunchesAfterAFailedAllocationSucceed) {
  constexpr std::size_t kTooMuch = std::size_t{1} << 50;
  EXPECT_THROW(allocate(kTooMuch), Error);
  EXPECT_NO_THROW(check_launch("a later kernel"));
}

}  // namespace
}  // namespace winnow::cuda

// States of recurrent layers in device memory: each belongs to one sequence, which alone writes it.
#include "kvcache/cuda/device_states.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/cuda/on_device.h"
#include "base/error.h"
#include "kvcache/cuda/device_cache.h"

namespace winnow::kvcache::cuda {
namespace {

class CudaStates : public winnow::testing::OnDevice<::testing::Test> {
 protected:
  static constexpr StateShape kShape{.layers = 3, .floats = 20};
  static std::vector<float> filled(float value) { return std::vector<float>(kShape.size(), value); }
};

TEST_F(CudaStates, AreTakenForkedAndGivenBack) {
  const winnow::cuda::Stream stream;
  DeviceStates states(kShape, 2);
  states.resize(4);
  EXPECT_EQ(states.need(3), 1);
  EXPECT_TRUE(states.save(3, stream.get()).empty());
  states.fork(3, 1, stream.get());
  EXPECT_FALSE(states.holds(1)) << "a fork of a sequence without a token has no state";
  states.restore(3, filled(2.0F), stream.get());
  states.ensure(3, stream.get());
  EXPECT_EQ(states.save(3, stream.get()), filled(2.0F));
  states.fork(3, 0, stream.get());
  EXPECT_EQ(states.free(), 0);
  EXPECT_EQ(states.used_bytes(), 2 * kShape.bytes());
  EXPECT_THROW(states.ensure(1, stream.get()), Error);
  states.resize(6);
  states.release(3);
  EXPECT_EQ(states.save(0, stream.get()), filled(2.0F));
  states.ensure(5, stream.get());
  EXPECT_EQ(states.save(5, stream.get()), filled(0.0F)) << "memory that was used before";
}

TEST_F(CudaStates, ModelsWithoutRecurrentLayersHaveNone) {
  const winnow::cuda::Stream stream;
  DeviceStates states({}, 5);
  states.resize(2);
  states.ensure(1, stream.get());
  EXPECT_EQ(states.count(), 0);
  EXPECT_EQ(states.need(1), 0);
  EXPECT_FALSE(states.holds(1));
}

// States take no more than half of the memory, however many sequences there are.
TEST_F(CudaStates, LeaveRoomForPages) {
  CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 64, .group = 1};
  shape.states = kShape;
  CacheConfig config;
  config.max_bytes = 100 * kShape.bytes();
  EXPECT_EQ(DeviceCache(config, shape, 1000).states().count(), 50);
  EXPECT_EQ(DeviceCache(config, shape, 3).states().count(), 3);
  config.max_bytes = kShape.bytes();
  EXPECT_THROW(DeviceCache(config, shape, 1), Error);
}

}  // namespace
}  // namespace winnow::kvcache::cuda

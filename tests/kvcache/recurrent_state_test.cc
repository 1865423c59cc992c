#include "kvcache/recurrent_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace winnow::kvcache {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr StateShape kShape{.layers = 2, .floats = 3};

TEST(RecurrentState, BeginsWithZerosAndWithoutMemory) {
  StatePool pool(kShape);
  RecurrentState state(pool);
  EXPECT_TRUE(state.values().empty());
  EXPECT_EQ(state.bytes(), 0U);
  EXPECT_TRUE(state.needs_memory());
  EXPECT_THAT(state.layer(1), Each(0.0F));
  EXPECT_FALSE(state.needs_memory());
  EXPECT_EQ(state.values().size(), 6U);
  EXPECT_EQ(state.bytes(), 24U);
  EXPECT_EQ(pool.bytes(), 24U);
}

TEST(RecurrentState, ACopySharesUntilOneIsWritten) {
  StatePool pool(kShape);
  std::optional<RecurrentState> state(pool);
  state->layer(0)[0] = 1.0F;
  RecurrentState copy = *state;
  EXPECT_EQ(pool.bytes(), 24U);
  EXPECT_TRUE(state->needs_memory());
  EXPECT_TRUE(copy.needs_memory());
  copy.layer(1)[2] = 5.0F;
  EXPECT_EQ(pool.bytes(), 48U);
  EXPECT_FALSE(state->needs_memory());
  EXPECT_THAT(state->values(), ElementsAre(1, 0, 0, 0, 0, 0));
  EXPECT_THAT(copy.values(), ElementsAre(1, 0, 0, 0, 0, 5));
  state.reset();
  EXPECT_EQ(pool.bytes(), 24U);
}

TEST(RecurrentState, IsRestoredFromItsValues) {
  StatePool pool(kShape);
  RecurrentState state(pool);
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  state.restore(values);
  EXPECT_THAT(state.layer(1), ElementsAre(4, 5, 6));
}

TEST(RecurrentState, OfAModelWithoutRecurrentLayersIsNothing) {
  StatePool pool({});
  RecurrentState state(pool);
  state.restore({});
  EXPECT_FALSE(state.needs_memory());
  EXPECT_EQ(pool.bytes(), 0U);
}

}  // namespace
}  // namespace winnow::kvcache

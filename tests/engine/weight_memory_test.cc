#include "engine/weight_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "base/error.h"

namespace winnow::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMebibyte = 1 << 20;

model::Checkpoint demo_model() {
  return model::Checkpoint::open(WINNOW_SOURCE_DIR "/assets/base");
}

std::string error_of(const model::Checkpoint& checkpoint, WeightStorage storage,
                     const HostMemory& memory) {
  try {
    std::ignore = memory_warning(checkpoint, storage, memory);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(WeightMemory, IsWhatTheFilesHave) {
  const model::Checkpoint model = demo_model();
  const WeightMemory stored = weight_memory(model, WeightStorage::as_stored);
  EXPECT_EQ(stored.held, 0.0) << "all are mapped";
  EXPECT_EQ(stored.mapped, 2.0 * static_cast<double>(model.parameter_count())) << "bf16";
  const WeightMemory int4 = weight_memory(model, WeightStorage::int4);
  EXPECT_EQ(int4.mapped, 0.0);
  EXPECT_NEAR(int4.held / stored.mapped, 4.5 / 16, 0.001);
}

TEST(WeightMemory, IsNoMatterWhereItSuffices) {
  EXPECT_EQ(
      memory_warning(demo_model(), WeightStorage::as_stored, {64 * kMebibyte, 28 * kMebibyte}), "");
}

TEST(WeightMemory, MappedWeightsThatDoNotFitAreReadFromTheDisk) {
  const auto warning = [](std::size_t available) {
    return memory_warning(demo_model(), WeightStorage::as_stored,
                          {available * kMebibyte, available * kMebibyte});
  };
  EXPECT_THAT(warning(20), HasSubstr("assets/base: the weights take 27.8 MiB, 20.0 MiB of memory "
                                     "are available: every token reads them from the disk; "
                                     "--weights int8 takes 14.7 MiB"));
  EXPECT_THAT(warning(10), HasSubstr("; --weights int4 takes 7.8"));
  EXPECT_THAT(warning(5), HasSubstr("; --weights int4 takes 7.80 MiB, which is too much, too"));
}

TEST(WeightMemory, HeldWeightsHaveToFit) {
  const model::Checkpoint model = demo_model();
  EXPECT_THAT(error_of(model, WeightStorage::int8, {10 * kMebibyte, 9 * kMebibyte}),
              HasSubstr("assets/base: the weights take 14.7 MiB, this process may use 10.0 MiB of "
                        "memory in all; --weights int4 takes 7.80 MiB"));
  EXPECT_THAT(error_of(model, WeightStorage::int4, {5 * kMebibyte, 5 * kMebibyte}),
              Not(HasSubstr("--weights")));
  EXPECT_THAT(memory_warning(model, WeightStorage::int4, {20 * kMebibyte, 5 * kMebibyte}),
              HasSubstr("5.00 MiB of memory are available: the system may swap, or end winnow"));
}

}  // namespace
}  // namespace winnow::engine

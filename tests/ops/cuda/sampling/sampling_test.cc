// Tokens chosen on the device compared with the host's choices from the same logits.
#include "ops/cuda/sampling/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::int32_t kUnwritten = -7;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

using LogitMaker = float (*)(Random&);
struct Case {
  const char* name;
  int vocab;
  LogitMaker logit;
};

float normal(Random& random) {
  return static_cast<float>(random.normal());
}
float peaked(Random& random) {
  return static_cast<float>(12.0 * random.normal());
}
float equal(Random& /*random*/) {
  return 1.5F;
}
// Few distinct values, so that most tokens have many ties.
float rounded(Random& random) {
  return static_cast<float>(std::round(2.0 * random.normal()));
}
float masked(Random& random) {
  return random.uniform() < 0.9 ? -kInfinity : static_cast<float>(random.normal());
}

float some_numbers(Random& random) {
  return random.uniform() < 0.5 ? kNone : static_cast<float>(random.normal());
}
float no_numbers(Random& /*random*/) {
  return kNone;
}
float some_infinite(Random& random) {
  return random.uniform() < 0.01 ? kInfinity : static_cast<float>(random.normal());
}
float none_possible(Random& /*random*/) {
  return -kInfinity;
}
float at_most_zero(Random& random) {
  return random.uniform() < 0.5 ? -0.0F : random.uniform() < 0.5 ? 0.0F : -1.0F;
}

// Rules of all kinds, many of each with different random bits.
std::vector<TokenRule> rules(Random& random) {
  std::vector<TokenRule> result;
  const auto octaves = [](double temperature) {
    return static_cast<float>(std::numbers::log2e / temperature);
  };
  const auto share = [](double p) { return static_cast<std::uint64_t>(p * 0x1p64); };
  const auto far = [](double p) {
    return static_cast<std::uint32_t>(-std::log2(p) * (1 << kOctaveBits));
  };
  for (int i = 0; i < 4; ++i) {
    for (const TokenRule& rule :
         {TokenRule{},
          TokenRule{.octaves = octaves(1.0)},
          TokenRule{.octaves = octaves(0.3)},
          TokenRule{.octaves = octaves(5.0)},
          TokenRule{.octaves = octaves(1e30)},
          TokenRule{.octaves = octaves(1e-30)},
          TokenRule{.octaves = octaves(1.0), .most = 1},
          TokenRule{.octaves = octaves(1.0), .most = 40},
          TokenRule{.octaves = octaves(2.0), .most = 1 << 20},
          TokenRule{.octaves = octaves(1.0), .share = share(0.9)},
          TokenRule{.octaves = octaves(1.0), .share = 1},
          TokenRule{.octaves = octaves(0.8), .farthest = far(0.05)},
          TokenRule{.octaves = octaves(0.8), .farthest = 0},
          TokenRule{
              .octaves = octaves(0.7), .most = 50, .farthest = far(0.01), .share = share(0.95)},
          TokenRule{.octaves = octaves(1e6)},
          TokenRule{.octaves = octaves(5.0), .share = share(0.9)},
          TokenRule{.octaves = octaves(1.0), .farthest = far(0.5), .share = share(0.9)},
          TokenRule{
              .octaves = octaves(1.0), .most = 3000, .farthest = far(0.2), .share = share(0.9)},
          TokenRule{.octaves = octaves(3.0), .penalty = 1.3F, .most = 7},
          TokenRule{.octaves = octaves(1.0), .penalty = 0.8F, .share = share(0.5)},
          TokenRule{.penalty = 3.0F}}) {
      result.push_back(rule);
      result.back().random = i == 0 ? 0 : i == 1 ? ~std::uint64_t{0} : random.bits();
    }
  }
  return result;
}

class CudaSamplingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

class CudaSampling : public CudaSamplingTest, public ::testing::WithParamInterface<Case> {};

// Launches of nine rows that take all rules.
constexpr std::uint64_t kSeeds = 10;

// Masks of rows that allow any token, a share of them, a single one, or none.
std::vector<std::uint64_t> masks(std::size_t rows, std::size_t vocab, Random& random) {
  const std::size_t words = mask_words(vocab);
  std::vector<std::uint64_t> all(rows * words);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto mask = std::span(all).subspan(row * words, words);
    const std::uint64_t kind = random.bits() % 8;
    const auto token = static_cast<std::size_t>(random.uniform() * static_cast<double>(vocab));
    for (std::uint64_t& word : mask) {
      word = kind == 0   ? ~std::uint64_t{0}
             : kind <= 3 ? random.bits()
             : kind <= 5 ? random.bits() & random.bits() & random.bits() & random.bits()
                         : 0;
    }
    mask[token / 64] |= kind == 7 ? 0 : std::uint64_t{1} << (token % 64);
  }
  return all;
}

// A launch of `rows` rows, each with its own logits and a rule from number 9 `seed` on.
// `masked`: every row but the third, sixth and so on has a mask.
void compare(const Case& c, int rows, std::uint64_t seed, bool masked = false) {
  Random random(seed);
  const std::vector<TokenRule> all = rules(random);
  ASSERT_LE(all.size(), 9 * kSeeds);
  const auto vocab = static_cast<std::size_t>(c.vocab);
  const auto count = static_cast<std::size_t>(rows);
  std::vector<float> logits(count * vocab);
  for (float& logit : logits) {
    logit = c.logit(random);
  }
  std::vector<std::vector<std::int32_t>> histories(count);
  const std::size_t words = (vocab + 31) / 32;
  const winnow::cuda::DeviceBuffer<std::uint32_t> seen(
      std::vector<std::uint32_t>(count * words, 0));
  const std::vector<std::uint64_t> allowed = masks(count, vocab, random);
  const winnow::cuda::DeviceBuffer<std::uint64_t> device_allowed{
      std::span<const std::uint64_t>(allowed)};
  const auto has_mask = [masked](std::size_t row) { return masked && row % 3 != 2; };
  std::vector<SampledRow> sampled(count);
  const winnow::cuda::Stream stream;
  for (std::size_t i = 0; i < count; ++i) {
    for (int k = 0; k < 100; ++k) {
      histories[i].push_back(static_cast<std::int32_t>(random.uniform() * c.vocab));
    }
    const TokenRule& rule = all[(i + 9 * seed) % all.size()];
    const bool marks = rule.penalty != 1.0F || i % 2 == 0;
    sampled[i] = {rule, marks ? seen.data() + i * words : nullptr, histories[i].back()};
    if (has_mask(i)) {
      sampled[i].allowed =
          reinterpret_cast<const std::uint32_t*>(device_allowed.data() + i * mask_words(vocab));
    }
    if (!marks) {
      continue;
    }
    const winnow::cuda::DeviceBuffer<std::int32_t> earlier{
        std::span<const std::int32_t>(histories[i].data(), histories[i].size() - 1)};
    mark_tokens(sampled[i].seen, earlier.data(), 99, stream.get());
    stream.synchronize();
  }
  const winnow::cuda::DeviceBuffer<float> device_logits{std::span<const float>(logits)};
  const winnow::cuda::DeviceBuffer<SampledRow> device_rows{std::span<const SampledRow>(sampled)};
  const winnow::cuda::DeviceBuffer<std::int32_t> tokens(
      std::vector<std::int32_t>(count, kUnwritten));
  sample_tokens(device_logits.data(), rows, c.vocab, device_rows.data(), tokens.data(),
                stream.get());
  stream.synchronize();
  std::vector<std::int32_t> got(count);
  tokens.read(got);
  for (std::size_t i = 0; i < count; ++i) {
    const auto row = std::span<const float>(logits).subspan(i * vocab, vocab);
    const auto mask =
        std::span(allowed).subspan(i * mask_words(vocab), has_mask(i) ? mask_words(vocab) : 0);
    EXPECT_EQ(got[i], sample_token(row, histories[i], sampled[i].rule, mask))
        << "row " << i << ", rule " << (i + 9 * seed) % all.size();
  }
  std::vector<std::uint32_t> bits(count * words);
  seen.read(bits);
  for (std::size_t i = 0; i < count; ++i) {  // including the newest
    const auto newest = static_cast<std::size_t>(histories[i].back());
    EXPECT_EQ(bits[i * words + newest / 32] >> (newest % 32) & 1U, sampled[i].seen != nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Logits, CudaSampling,
    ::testing::Values(Case{"normal", 32000, normal}, Case{"normal_odd", 1003, normal},
                      Case{"large_vocabulary", 151936, normal}, Case{"peaked", 50257, peaked},
                      Case{"one", 1, normal}, Case{"few", 5, normal}, Case{"equal", 4099, equal},
                      Case{"rounded", 32000, rounded}, Case{"masked", 32000, masked},
                      Case{"some_numbers", 4099, some_numbers},
                      Case{"no_numbers", 1003, no_numbers},
                      Case{"some_infinite", 1003, some_infinite},
                      Case{"none_possible", 1003, none_possible},
                      Case{"at_most_zero", 4099, at_most_zero}),
    [](const auto& info) { return std::string(info.param.name); });

// One block per row, then clusters of 2 and more; the cluster size for a number of rows depends on
// the device. (On an H200: 1, 2, 3, 4, 5, 6, 8.)
TEST_P(CudaSampling, ChoosesWhatTheHostChooses) {
  for (const int rows : {150, 60, 40, 30, 22, 17}) {
    compare(GetParam(), rows, static_cast<std::uint64_t>(rows));
  }
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    compare(GetParam(), 9, seed);
  }
}

TEST_P(CudaSampling, ChoosesAmongAllowedTokens) {
  for (const int rows : {150, 40, 17}) {
    compare(GetParam(), rows, static_cast<std::uint64_t>(rows), true);
  }
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    compare(GetParam(), 9, seed, true);
  }
}

// One launch, for compute-sanitizer (scripts/gpu-check.sh): all kinds of searches one after
// another, in several passes, of rows that begin within a vector.
TEST_F(CudaSamplingTest, SearchesInSeveralPasses) {
  compare({"equal", 4099, equal}, 9, 3);
  compare({"equal", 4099, equal}, 9, 3, true);
}

TEST_F(CudaSamplingTest, TakesTheLargestVocabulary) {
  compare({"largest", kMostTokens, rounded}, 9, 1);
}

}  // namespace
}  // namespace winnow::ops::cuda

// Microseconds to choose a step's tokens from its logits.
//
//     sampling_benchmark [--json FILE]
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "cuda/benchmark_main.h"
#include "cuda/time_graph.h"
#include "ops/cuda/sampling/sampling.h"

namespace winnow {
namespace {

using ops::TokenRule;
using ops::cuda::SampledRow;

struct NamedRule {
  const char* name;
  TokenRule rule;
};
const NamedRule kRules[] = {
    {"greedy", {}},
    {"temperature 1", {.octaves = 1.4427F}},
    {"top-p 0.9", {.octaves = 1.4427F, .share = ~std::uint64_t{0} / 10 * 9}},
    {"top-k 50, top-p 0.9", {.octaves = 1.4427F, .most = 50, .share = ~std::uint64_t{0} / 10 * 9}},
};

// Logits of a model with random weights: flatter than a trained model's, so more candidates.
cuda::DeviceBuffer<float> random_logits(std::size_t count) {
  Random random(1);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = static_cast<float>(random.uniform() + random.uniform() + random.uniform()) * 3.0F;
  }
  return cuda::DeviceBuffer<float>(std::span<const float>(logits));
}

nlohmann::json run() {
  constexpr int kMostRows = 256;
  constexpr int kVocab = 128256;
  const cuda::Stream stream;
  const auto logits = random_logits(std::size_t{kMostRows} * kVocab);
  const cuda::DeviceBuffer<std::int32_t> tokens(kMostRows);
  nlohmann::json results;
  fmt::print("{:<22}{:>8}{:>14}   ({} tokens)\n", "rule", "rows", "microseconds", kVocab);
  for (const NamedRule& named : kRules) {
    for (const int rows : {1, 4, 8, 16, 32, 48, 64, 80, 96, 128, 256}) {
      std::vector<SampledRow> sampled(static_cast<std::size_t>(rows), SampledRow{named.rule});
      Random random(2);
      for (SampledRow& row : sampled) {
        row.rule.random = random.bits();
      }
      const cuda::DeviceBuffer<SampledRow> device_rows{std::span<const SampledRow>(sampled)};
      const double milliseconds = time_graph(
          stream,
          [&] {
            ops::cuda::sample_tokens(logits.data(), rows, kVocab, device_rows.data(), tokens.data(),
                                     stream.get());
          },
          20);
      fmt::print("{:<22}{:>8}{:>14.1f}\n", named.name, rows, milliseconds * 1e3);
      results.push_back({{"rule", named.name},
                         {"rows", rows},
                         {"vocabulary", kVocab},
                         {"microseconds", milliseconds * 1e3}});
    }
  }
  return results;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

// The CPU time to choose a token from a row of logits: one thread, normal logits, every
// iteration with its own random bits.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/sampling.h"

namespace winnow::ops {
namespace {

struct NamedRule {
  const char* name;
  TokenRule rule;
};

// At temperature 1.
constexpr float kOctaves = 1.4427F;
constexpr std::uint64_t kNineTenths = ~std::uint64_t{0} / 10 * 9;
constexpr NamedRule kRules[] = {
    {"greedy", {}},
    {"temperature 1", {.octaves = kOctaves}},
    {"top-p 0.9", {.octaves = kOctaves, .share = kNineTenths}},
    {"top-k 50, top-p 0.9", {.octaves = kOctaves, .most = 50, .share = kNineTenths}},
    {"min-p 0.05", {.octaves = kOctaves, .farthest = 290'041'000}},
};

void choose(benchmark::State& state, TokenRule rule, std::size_t vocabulary) {
  Random random(1);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    logit = static_cast<float>(random.normal());
  }
  while (state.KeepRunning()) {
    rule.random = random.bits();
    benchmark::DoNotOptimize(sample_token(logits, {}, rule));
  }
}

void add_all() {
  for (const std::size_t vocabulary : {8192, 49152, 128256}) {
    for (const NamedRule& named : kRules) {
      const std::string name = std::to_string(vocabulary) + "/" + named.name;
      benchmark::RegisterBenchmark(name.c_str(), choose, named.rule, vocabulary)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace winnow::ops

int main(int argc, char** argv) {
  winnow::ops::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

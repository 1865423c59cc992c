// Training attention compared with the same arithmetic as plain matrix products.
//   training_attention_benchmark
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "base/random.h"
#include "ops/cpu/linear/small_gemm.h"
#include "ops/training_attention.h"

namespace winnow::ops {
namespace {

constexpr std::size_t kTokens = 4096;
constexpr std::size_t kDim = 64;
constexpr std::size_t kHeads = 2;  // of keys and values
constexpr std::size_t kGroup = 3;

std::vector<float> normal(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.normal());
  }
  return values;
}

// Products of 96 rows by 64 columns, 64 deep, that stay in the cache, as in tiles.
void products(benchmark::State& state) {
  const auto a = normal(96 * 64, 1);
  const auto b = normal(64 * 64, 2);
  std::vector<float> c(96 * 64);
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    cpu::add_product({c.data(), 96, 64}, {a.data(), 64, 1}, {b.data(), 64, 64});
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["flops"] =
      benchmark::Counter(2.0 * 96 * 64 * 64, benchmark::Counter::kIsIterationInvariantRate);
}

void attention(benchmark::State& state) {
  const bool backward = state.range(0) != 0;
  const bool biased = state.range(1) != 0;
  const std::size_t width = kHeads * kGroup * kDim;
  const auto queries = normal(kTokens * width, 1);
  const auto keys = normal(kTokens * kHeads * kDim, 2);
  const auto values = normal(kTokens * kHeads * kDim, 3);
  const auto dout = normal(kTokens * width, 4);
  const std::vector<float> bias(kTokens * kHeads, -1.0F);
  const std::vector<std::int32_t> first_key(kTokens, 0);
  const TrainingAttention attention{
      .head_dim = kDim,
      .group = kGroup,
      .window = 256,
      .scale = 0.125F,
      .first_key = first_key,
      .queries = {queries.data(), kTokens, width},
      .keys = {keys.data(), kTokens, kHeads * kDim},
      .values = {values.data(), kTokens, kHeads * kDim},
      .bias = biased ? Matrix<const float>(bias.data(), kTokens, kHeads) : Matrix<const float>()};
  std::vector<float> out(queries.size());
  std::vector<float> normalizers(kTokens * kHeads * kGroup);
  std::vector<float> dqueries(queries.size());
  std::vector<float> dkeys(keys.size());
  std::vector<float> dvalues(values.size());
  std::vector<float> dbias(bias.size());
  const Matrix<float> out_matrix(out.data(), kTokens, width);
  const Matrix<float> normalizer_matrix(normalizers.data(), kTokens, kHeads * kGroup);
  const TrainingAttentionGradients gradients{
      {dqueries.data(), kTokens, width},
      {dkeys.data(), kTokens, kHeads * kDim},
      {dvalues.data(), kTokens, kHeads * kDim},
      biased ? Matrix<float>(dbias.data(), kTokens, kHeads) : Matrix<float>()};
  Workspace workspace;
  for (auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    training_attention(workspace, attention, out_matrix, normalizer_matrix);
    if (backward) {
      training_attention_backward(workspace, attention, out_matrix, normalizer_matrix,
                                  {dout.data(), kTokens, width}, gradients);
    }
  }
  // Half of T x T is visible: 2 products forward, 5 backward, of 2 D operations each.
  const double pairs = 0.5 * kTokens * kTokens * kHeads * kGroup;
  state.counters["flops"] = benchmark::Counter(pairs * 2 * kDim * (backward ? 7 : 2),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(products)->Name("products/96x64x64, one thread")->UseRealTime();
BENCHMARK(attention)
    ->Name("training_attention")
    ->ArgNames({"backward", "biased"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace winnow::ops

BENCHMARK_MAIN();

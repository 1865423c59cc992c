// The delta rule for training against the CPU's: outputs and gradients of packed documents.
#include "ops/cuda/training/training_delta.h"

#include <cmath>

#include "ops/cuda/training/training_recurrent_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

// Operands of products have 11 significant bits on a device; out is rounded to bf16 besides.
constexpr double kOutputs = 4e-3;
constexpr double kGradients = 1.5e-3;

using CudaTrainingDelta = CudaTrainingOps;

// Queries and keys of length 1, gates that hardly decay, and some that forget everything.
struct RuleValues {
  Values mixed, rates, log_decays, decays, dout;

  explicit RuleValues(const RecurrentWorld& world)
      : mixed(draw(world.count(world.channels()), 11, 0.5)),
        rates(draw(world.count(world.heads.value_heads), 12)),
        log_decays(draw(world.count(world.heads.value_heads), 13)),
        dout(draw(world.count(world.values()), 14)) {
    const auto all = matrix(mixed, count_of(world.channels()));
    const int dim = world.heads.key_dim;
    const Values weight(count_of(dim), 1.0F / std::sqrt(static_cast<float>(dim)));
    for (int head = 0; head < 2 * world.heads.key_heads; ++head) {
      const auto own = columns(all, head * dim, dim);
      rms_norm(own, own, weight, 1e-8F);
    }
    for (float& rate : rates) {
      rate = 1.0F / (1.0F + std::exp(-rate));
    }
    constexpr std::size_t kForgets = 97;  // one in so many
    for (std::size_t i = 0; i < log_decays.size(); ++i) {
      log_decays[i] = i % kForgets == 5 ? -40.0F : -0.05F * std::exp(log_decays[i]);
      decays.push_back(std::exp(log_decays[i]));
    }
  }
};

struct RuleResults {
  Values out, dqueries, dkeys, dvalues, drates, dlog_decays;
};

RuleResults on_host(const RecurrentWorld& world, RuleValues& x) {
  const DeltaRuleShape& heads = world.heads;
  const int keys = heads.key_width();
  const auto gates = world.count(heads.value_heads);
  RuleResults r{Values(world.count(world.values())),
                Values(world.count(keys)),
                Values(world.count(keys)),
                Values(world.count(world.values())),
                Values(gates),
                Values(gates)};
  world.for_each_document([&](std::size_t first, std::size_t last) {
    const auto of = [&](Values& values, int cols) {
      return matrix(values, count_of(cols)).slice(first, last);
    };
    Values state(count_of(heads.state_size()));
    const auto mixed = of(x.mixed, world.channels());
    const DeltaRuleChunk chunk{.queries = columns(mixed, 0, keys),
                               .keys = columns(mixed, keys, keys),
                               .values = columns(mixed, 2 * keys, world.values()),
                               .decays = of(x.decays, heads.value_heads),
                               .rates = of(x.rates, heads.value_heads),
                               .state = state,
                               .out = of(r.out, world.values())};
    ops::delta_rule(heads, std::span(&chunk, 1));
    const Matrix<const float> dout = of(x.dout, world.values());
    const DeltaRuleGradients gradients{.queries = of(r.dqueries, keys),
                                       .keys = of(r.dkeys, keys),
                                       .decays = of(r.dlog_decays, heads.value_heads),
                                       .rates = of(r.drates, heads.value_heads),
                                       .values = of(r.dvalues, world.values())};
    delta_rule_backward(heads, std::span(&chunk, 1), std::span(&dout, 1), std::span(&gradients, 1));
  });
  for (std::size_t i = 0; i < gates; ++i) {
    r.dlog_decays[i] *= x.decays[i];
  }
  return r;
}

// The sum over the value heads of each key head.
Values grouped(const RecurrentWorld& world, const Values& x) {
  const std::size_t dim = count_of(world.heads.key_dim);
  const std::size_t group = count_of(world.heads.value_heads / world.heads.key_heads);
  Values sums(x.size() / group);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i / (group * dim) * dim + i % dim] += x[i];
  }
  return sums;
}

// With scratch for `spare` more rows than exist; backward after the forward that gave the
// outputs, or after one that computes only backward's data.
RuleResults on_device(const RecurrentWorld& world, const RuleValues& x, int spare = 0,
                      bool again = true) {
  const DeltaRuleShape& heads = world.heads;
  const std::vector<std::int32_t> firsts = world.first_key();
  const DeviceBuffer<std::int32_t> first_key((std::span<const std::int32_t>(firsts)));
  const auto mixed = upload(x.mixed);
  const auto rates = upload(x.rates);
  const auto log_decays = upload(x.log_decays);
  const auto dout = upload(x.dout);
  const auto memory = poisoned<float>(DeltaScratch::size(heads, world.rows + spare));
  const TrainingDelta rule{.heads = heads,
                           .rows = world.rows,
                           .first_key = first_key.data(),
                           .mixed = mixed.data(),
                           .rates = rates.data(),
                           .log_decays = log_decays.data(),
                           .scratch = DeltaScratch(heads, world.rows + spare, memory.data())};
  const auto out = poisoned<bf16>(x.dout.size());
  training_delta(rule, out.data(), nullptr);
  RuleResults r{download(out), {}, {}, {}, {}, {}};
  const auto dqueries = poisoned<float>(world.count(heads.value_heads * heads.key_dim));
  const auto dkeys = poisoned<float>(dqueries.size());
  const auto dvalues = poisoned<float>(x.dout.size());
  const auto drates = poisoned<float>(x.rates.size());
  const auto dlog_decays = poisoned<float>(x.rates.size());
  if (again) {
    training_delta(rule, nullptr, nullptr);
  }
  training_delta_backward(
      rule, dout.data(),
      {dqueries.data(), dkeys.data(), dvalues.data(), drates.data(), dlog_decays.data()}, nullptr);
  r.dqueries = grouped(world, download(dqueries));
  r.dkeys = grouped(world, download(dkeys));
  r.dvalues = download(dvalues);
  r.drates = download(drates);
  r.dlog_decays = download(dlog_decays);
  return r;
}

// Besides the worlds of all recurrent tests: the heads of Qwen's hybrids, the widest ones, and
// rows that do not fill a chunk.
std::vector<RecurrentWorld> rule_worlds() {
  std::vector<RecurrentWorld> worlds = recurrent_worlds();
  worlds.push_back({{1, 2, 128, 128}, false, 4, 150, {0, 30, 140}});
  worlds.push_back({{1, 1, 256, 256}, false, 4, 96, {0}});
  worlds.push_back({{1, 2, 32, 16}, false, 4, 40, {0, 7}});
  worlds.push_back({{1, 2, 32, 16}, false, 4, 1, {0}});
  return worlds;
}

TEST_F(CudaTrainingDelta, GivesTheResultsAndGradientsOfTheCpu) {
  for (const RecurrentWorld& world : rule_worlds()) {
    SCOPED_TRACE(::testing::Message()
                 << world.rows << " rows, " << world.heads.key_dim << " channels");
    RuleValues values(world);
    const RuleResults expected = on_host(world, values);
    const RuleResults found = on_device(world, values);
    expect_close(found.out, expected.out, kOutputs, "outputs");
    expect_close(found.dqueries, expected.dqueries, kGradients, "queries");
    expect_close(found.dkeys, expected.dkeys, kGradients, "keys");
    expect_close(found.dvalues, expected.dvalues, kGradients, "values");
    expect_close(found.drates, expected.drates, kGradients, "rates");
    expect_close(found.dlog_decays, expected.dlog_decays, kGradients, "log decays");
  }
}

TEST_F(CudaTrainingDelta, GivesTheSameBitsWhateverTheScratch) {
  constexpr int kSpare = 100;
  for (const RecurrentWorld& world : rule_worlds()) {
    const RuleValues values(world);
    const RuleResults first = on_device(world, values);
    for (const auto& [spare, again] : {std::pair(0, true), {kSpare, true}, {0, false}}) {
      const RuleResults found = on_device(world, values, spare, again);
      EXPECT_EQ(found.out, first.out);
      EXPECT_EQ(found.dqueries, first.dqueries);
      EXPECT_EQ(found.dkeys, first.dkeys);
      EXPECT_EQ(found.dvalues, first.dvalues);
      EXPECT_EQ(found.drates, first.drates);
      EXPECT_EQ(found.dlog_decays, first.dlog_decays);
    }
  }
}

// The least that devices with bf16 have.
TEST(TrainingDelta, FitsHeadsOf128ChannelsIntoAnyDevice) {
  constexpr std::size_t kLeast = 99 << 10;
  EXPECT_LE(training_delta_shared_memory(128), kLeast);
  EXPECT_GT(training_delta_shared_memory(256), kLeast);
  // However narrow heads are: kernels hold two matrices of a chunk, and more.
  constexpr std::size_t kMatrices = 2 * sizeof(float) * kDeltaChunk * kDeltaChunk;
  EXPECT_GT(training_delta_shared_memory(8), 2 * kMatrices);
}

}  // namespace
}  // namespace winnow::ops::cuda::testing

// Recurrent layers on a device against the CPU's ops: several sequences of different lengths,
// with histories; and steps of one token each.
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/causal_conv.h"
#include "ops/cuda/recurrent/delta_inputs.h"
#include "ops/cuda/recurrent/delta_rule.h"
#include "ops/cuda/recurrent/output_gates.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/norm.h"

namespace winnow::ops::cuda::testing {
namespace {

using Values = std::vector<float>;

std::size_t count_of(int count) {
  return static_cast<std::size_t>(count);
}

template <class T>
Matrix<T> columns(Matrix<T> x, int first, int count) {
  return {x.data + first, x.rows, count_of(count), x.stride};
}

// Several sequences, whose slots are out of order and have gaps, and one for padding.
struct World {
  DeltaRuleShape heads;
  int taps;
  std::vector<int> counts;  // tokens of each sequence
  std::vector<std::int32_t> firsts{0};
  std::vector<Values> states;
  Values tap_values, log_decay, decay_bias;
  Values conv_bias, skip;  // of heads that do not correct
  RateLimits limits;

  World(const DeltaRuleShape& shape, int tap_count, std::vector<int> tokens)
      : heads(shape),
        taps(tap_count),
        counts(std::move(tokens)),
        tap_values(draw(count_of(tap_count * channels()), 1, 0.5)),
        log_decay(draw(count_of(shape.value_heads), 2, 0.5)),
        decay_bias(draw(count_of(shape.value_heads), 3)) {
    if (!shape.corrects) {
      conv_bias = draw(count_of(channels()), 6);
      skip = draw(count_of(shape.value_heads), 7);
      limits = {0.2F, 1.5F};
    }
    for (const int count : counts) {
      firsts.push_back(firsts.back() + count);
      states.push_back(draw(state_size(), 10 + states.size(), 0.3));
    }
  }

  [[nodiscard]] int channels() const { return channels_of(heads); }
  [[nodiscard]] int stride() const { return (2 * heads.value_heads + 7) / 8 * 8; }
  [[nodiscard]] std::size_t rows() const { return count_of(firsts.back()); }
  [[nodiscard]] std::size_t state_size() const {
    return count_of(heads.state_size() + (taps - 1) * channels());
  }
};

struct Result {
  Values mixed;
  Values gates;  // [rows, stride]
  Values out;
  std::vector<Values> states;
};

void norm_to(Matrix<float> x, int dim, float length) {
  const Values weight(count_of(dim), length / std::sqrt(static_cast<float>(dim)));
  for (int first = 0; first < static_cast<int>(x.cols); first += dim) {
    const auto head = columns(x, first, dim);
    rms_norm(head, head, weight, 1e-6F / static_cast<float>(dim));
  }
}

// Reorders rows of values, keys, queries, a state space's order, to the rule's order.
void queries_first(const DeltaRuleShape& heads, Values& mixed) {
  const auto width = count_of(channels_of(heads));
  const auto keys = count_of(heads.key_width());
  const auto values = count_of(heads.value_width());
  for (std::size_t first = 0; first < mixed.size(); first += width) {
    const Values row(mixed.begin() + static_cast<std::ptrdiff_t>(first),
                     mixed.begin() + static_cast<std::ptrdiff_t>(first + width));
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t from = i < keys       ? values + keys + i
                               : i < 2 * keys ? values + i - keys
                                              : i - 2 * keys;
      mixed[first + i] = row[from];
    }
  }
}

Result on_host(const World& world, Values projected, Values gates) {
  const DeltaRuleShape& heads = world.heads;
  const int keys = heads.key_width();
  Result result{Values(projected.size()), std::move(gates),
                Values(world.rows() * count_of(heads.value_width())), world.states};
  const Matrix<float> input = matrix(projected, count_of(world.channels()));
  const Matrix<float> mixed = matrix(result.mixed, count_of(world.channels()));
  const Matrix<float> both = matrix(result.gates, count_of(world.stride()));
  const auto rates = columns(both, 0, heads.value_heads);
  const auto decays = columns(both, heads.value_heads, heads.value_heads);
  if (heads.corrects) {
    delta_gates(decays, rates, world.log_decay, world.decay_bias);
  } else {
    state_space_gates(decays, rates, world.log_decay, world.decay_bias, world.limits);
  }
  Values by_channel(world.tap_values.size());
  for (std::size_t i = 0; i < by_channel.size(); ++i) {
    const std::size_t channel = i / count_of(world.taps);
    by_channel[i] =
        world.tap_values[i % count_of(world.taps) * count_of(world.channels()) + channel];
  }
  const auto of = [&](auto x, std::size_t i) {
    return x.slice(count_of(world.firsts[i]), count_of(world.firsts[i + 1]));
  };
  for (std::size_t i = 0; i < world.counts.size(); ++i) {
    causal_conv(of(mixed, i), of(input, i), by_channel, world.conv_bias,
                std::span(result.states[i]).subspan(count_of(heads.state_size())));
  }
  activate(Activation::silu, mixed);
  if (heads.corrects) {
    norm_to(columns(mixed, 0, keys), heads.key_dim,
            1.0F / std::sqrt(static_cast<float>(heads.key_dim)));
    norm_to(columns(mixed, keys, keys), heads.key_dim, 1.0F);
  } else {
    queries_first(heads, result.mixed);
  }
  for (std::size_t i = 0; i < world.counts.size(); ++i) {
    const DeltaRuleChunk chunk{
        .queries = of(columns(mixed, 0, keys), i),
        .keys = of(columns(mixed, keys, keys), i),
        .values = of(columns(mixed, 2 * keys, heads.value_width()), i),
        .decays = of(decays, i),
        .rates = of(rates, i),
        .state = std::span(result.states[i]).first(count_of(heads.state_size())),
        .out = of(matrix(result.out, count_of(heads.value_width())), i)};
    ops::delta_rule(heads, std::span(&chunk, 1));
  }
  for (std::size_t i = 0; !heads.corrects && i < result.out.size(); ++i) {
    const std::size_t at = i % count_of(heads.value_width());
    const auto row = mixed.row(i / count_of(heads.value_width()));
    result.out[i] += world.skip[at / count_of(heads.value_dim)] * row[count_of(2 * keys) + at];
  }
  return result;
}

// Layer 1 of states of two layers; slot i + 1 is sequence n - 1 - i.
Result on_device(const World& world, const Values& projected, const Values& logits, bool as_steps) {
  const std::size_t size = world.state_size();
  std::vector<DeviceBuffer<float>> memory;
  std::vector<float*> table{nullptr};
  std::vector<std::int32_t> slots;
  for (std::size_t i = 0; i < world.counts.size(); ++i) {
    Values both(2 * size, 7.0F);
    std::ranges::copy(world.states[i], both.begin() + static_cast<std::ptrdiff_t>(size));
    memory.push_back(upload(both));
    slots.push_back(static_cast<std::int32_t>(world.counts.size() - i));
  }
  for (std::size_t i = world.counts.size(); i > 0; --i) {
    table.push_back(memory[i - 1].data());
  }
  slots.push_back(-1);
  std::vector<std::int32_t> firsts = world.firsts;
  firsts.push_back(firsts.back() + 1);  // of what pads
  const DeviceBuffer<float*> states((std::span<float* const>(table)));
  const DeviceBuffer<std::int32_t> slots_on_device((std::span<const std::int32_t>(slots)));
  const DeviceBuffer<std::int32_t> firsts_on_device((std::span<const std::int32_t>(firsts)));
  const RecurrentRows rows{.sequences = static_cast<int>(slots.size()),
                           .longest = std::ranges::max(world.counts),
                           .firsts = as_steps ? nullptr : firsts_on_device.data(),
                           .slots = slots_on_device.data(),
                           .states = states.data(),
                           .offset = size};
  const auto taps = upload(world.tap_values);
  const auto log_decay = upload(world.log_decay);
  const auto decay_bias = upload(world.decay_bias);
  const bool corrects = world.heads.corrects;
  const auto conv_bias = upload(corrects ? Values(1) : world.conv_bias);
  const auto skip = upload(corrects ? Values(1) : world.skip);
  const auto input = upload(projected);
  const auto gates = upload(logits);
  const auto mixed = poisoned<float>(projected.size());
  const auto out = poisoned<float>(world.rows() * count_of(world.heads.value_width()));
  delta_inputs(world.heads,
               {.projected = input.data(),
                .mixed = mixed.data(),
                .gates = gates.data(),
                .gate_stride = world.stride(),
                .taps = taps.data(),
                .tap_count = world.taps,
                .conv_bias = corrects ? nullptr : conv_bias.data(),
                .log_decay = log_decay.data(),
                .decay_bias = decay_bias.data(),
                .limits = world.limits},
               rows, nullptr);
  delta_rule(world.heads,
             {.mixed = mixed.data(),
              .gates = gates.data(),
              .gate_stride = world.stride(),
              .skip = corrects ? nullptr : skip.data(),
              .out = out.data()},
             rows, nullptr);
  Result result{download(mixed), download(gates), download(out), {}};
  for (const auto& state : memory) {
    const Values both = download(state);
    EXPECT_EQ(std::ranges::count(std::span(both).first(size), 7.0F),
              static_cast<std::ptrdiff_t>(size))
        << "another layer's state";
    result.states.emplace_back(both.begin() + static_cast<std::ptrdiff_t>(size), both.end());
  }
  return result;
}

Values projections(const World& world) {
  return draw(world.rows() * count_of(world.channels()), 4);
}
Values gate_logits(const World& world) {
  return draw(world.rows() * count_of(world.stride()), 5);
}

void expect_same_on_both(const World& world, bool as_steps) {
  const Result expected = on_host(world, projections(world), gate_logits(world));
  const Result got = on_device(world, projections(world), gate_logits(world), as_steps);
  expect_close(got.mixed, expected.mixed, kExact, "queries, keys, values");
  expect_close(got.gates, expected.gates, kExact, "gates");
  expect_close(got.out, expected.out, kExact, "outputs");
  for (std::size_t i = 0; i < got.states.size(); ++i) {
    expect_close(got.states[i], expected.states[i], kExact, "states");
  }
}

constexpr std::array<DeltaRuleShape, 7> kShapes{{{1, 2, 4, 4},
                                                 {2, 2, 36, 72},
                                                 {16, 32, 128, 128},
                                                 {1, 3, 256, 200},
                                                 {2, 6, 132, 64},
                                                 {1, 48, 128, 64, false},
                                                 {2, 6, 36, 72, false}}};

using CudaRecurrent = CudaTrainingOps;

TEST_F(CudaRecurrent, ChunksOfSeveralSequences) {
  for (const DeltaRuleShape& shape : kShapes) {
    for (const int taps : {1, 4, 33}) {
      expect_same_on_both({shape, taps, {2, 70, 1, 133, 16}}, false);
    }
  }
}

TEST_F(CudaRecurrent, StepsOfSeveralSequences) {
  for (const DeltaRuleShape& shape : kShapes) {
    for (const int taps : {1, 4, 33}) {
      expect_same_on_both({shape, taps, {1, 1, 1}}, true);
    }
  }
}

// No bit of a token depends on how its text is split, or on other sequences.
TEST_F(CudaRecurrent, ChunksDoNotDependOnHowATextIsCut) {
  constexpr int kTokens = 150;
  for (const DeltaRuleShape& shape : kShapes) {
    const World whole(shape, 4, {kTokens});
    const Values all = projections(whole);
    const Values logits = gate_logits(whole);
    const Result expected = on_device(whole, all, logits, false);
    Values state = whole.states.front();
    Values out;
    int first = 0;
    for (const int count : {1, 40, 2, 64, 43}) {
      World part(shape, 4, {count, 9});
      part.states.front() = state;
      const auto rows_of = [&](const Values& x, int cols) {
        Values rows(x.begin() + first * cols, x.begin() + (first + count) * cols);
        rows.resize(part.rows() * count_of(cols), 0.5F);
        return rows;
      };
      const Result got =
          on_device(part, rows_of(all, whole.channels()), rows_of(logits, whole.stride()), false);
      state = got.states.front();
      out.insert(out.end(), got.out.begin(), got.out.begin() + count * shape.value_width());
      first += count;
    }
    EXPECT_EQ(first, kTokens);
    EXPECT_EQ(out, expected.out);
    EXPECT_EQ(state, expected.states.front());
  }
}

TEST_F(CudaRecurrent, NamesWhatHasNoKernel) {
  EXPECT_THROW(check_recurrent({1, 1, 6, 8}, 4), Error);
  EXPECT_THROW(check_recurrent({1, 1, 8, 260}, 4), Error);
  EXPECT_THROW(check_recurrent({1, 1, 8, 8}, 34), Error);
}

TEST_F(CudaRecurrent, GatedOutputs) {
  constexpr int kRows = 37;
  for (const int dim : {4, 72, 128, 200, 256}) {
    constexpr int kHeads = 6;
    const std::size_t width = count_of(kHeads * dim);
    auto x = draw_bf16(kRows * width, 1);
    auto gates = draw(kRows * width, 2, 2.0);
    const auto weight = draw(count_of(dim), 3);
    const auto bias = draw(width, 4);
    Values expected = x;
    Matrix<float> by_head(expected.data(), kRows * kHeads, count_of(dim));
    rms_norm(by_head, by_head, weight, 1e-6F);
    Values gated = gates;
    silu_multiply(matrix(gated, width), matrix(expected, width));
    const auto gates_on_device = upload(gates);
    const GatedHeads shape{kRows, kHeads, dim, gates_on_device.data()};
    const auto out = poisoned<bf16>(x.size());
    const auto from = upload(x);
    const auto weights = upload(weight);
    gated_rms_norm(out.data(), from.data(), shape, weights.data(), 1e-6F, nullptr);
    expect_close(download(out), gated, kRounded, "gated norm");

    for (const bool has_bias : {false, true}) {
      Values added = gates;
      for (std::size_t i = 0; has_bias && i < added.size(); ++i) {
        added[i] += bias[i % width];
      }
      Values multiplied = x;
      sigmoid_multiply(matrix(multiplied, width), matrix(added, width));
      const auto own = upload_bf16(x);
      const auto biases = upload(bias);
      cuda::sigmoid_multiply(own.data(), shape, has_bias ? biases.data() : nullptr, nullptr);
      expect_close(download(own), multiplied, kRounded, "output gates");
    }
  }
}

TEST_F(CudaRecurrent, OutputsNormedBehindTheirGates) {
  constexpr int kRows = 37;
  for (const int dim : {8, 100, 1536}) {
    constexpr int kGroups = 3;
    const std::size_t width = count_of(kGroups * dim);
    const auto x = draw(kRows * width, 1);
    const auto gates = draw(kRows * width, 2, 2.0);
    const auto weight = draw(width, 3);
    Values expected = gates;
    Values ups = x;
    silu_multiply(matrix(expected, width), matrix(ups, width));
    for (int group = 0; group < kGroups; ++group) {
      const auto own = columns(matrix(expected, width), group * dim, dim);
      rms_norm(own, own, std::span(weight).subspan(count_of(group * dim), count_of(dim)), 1e-6F);
    }
    const auto gates_on_device = upload(gates);
    const auto out = poisoned<bf16>(x.size());
    const auto from = upload(x);
    const auto weights = upload(weight);
    norm_gated(out.data(), from.data(), {kRows, kGroups, dim, gates_on_device.data()},
               weights.data(), 1e-6F, nullptr);
    expect_close(download(out), expected, kRounded, "norm of gated outputs");
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing

// Short convolutions on a device against the CPU's ops: several sequences of different lengths,
// with histories; steps of one token each; texts split anywhere.
#include "ops/cuda/recurrent/short_conv.h"

#include <vector>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/causal_conv.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

using Floats = std::vector<float>;

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

// Texts of several sequences, each following its state.
struct ConvWorld {
  int channels;
  int taps;
  std::vector<int> counts;

  [[nodiscard]] int rows() const {
    int sum = 0;
    for (const int count : counts) {
      sum += count;
    }
    return sum;
  }
  [[nodiscard]] std::size_t state_size() const { return size_of((taps - 1) * channels); }
  [[nodiscard]] Floats state(std::size_t i) const { return draw(state_size(), 20 + i); }
  [[nodiscard]] Floats taps_by_channel() const { return draw(size_of(taps * channels), 1); }
};

struct ConvResult {
  Floats out;
  std::vector<Floats> states;
};

// projected: [rows, 2 * channels]: gates, inputs.
ConvResult convolved_on_host(const ConvWorld& world, const Floats& projected, Floats gates) {
  const auto width = size_of(world.channels);
  ConvResult result;
  Floats inputs;
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const std::size_t at = i / width * 2 * width + i % width;
    inputs.push_back(projected[at] * projected[at + width]);
  }
  Floats mixed(inputs.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < world.counts.size(); ++i) {
    const std::size_t last = first + size_of(world.counts[i]);
    result.states.push_back(world.state(i));
    causal_conv(matrix(mixed, width).slice(first, last), matrix(inputs, width).slice(first, last),
                world.taps_by_channel(), {}, result.states.back());
    first = last;
  }
  multiply(matrix(gates, width), matrix(mixed, width));
  result.out = std::move(gates);
  return result;
}

ConvResult convolved_on_device(const ConvWorld& world, const Floats& projected, const Floats& gates,
                               const std::vector<Floats>& states, bool as_steps) {
  const auto width = size_of(world.channels);
  Floats by_tap(size_of(world.taps) * width);
  const Floats taps = world.taps_by_channel();
  for (std::size_t i = 0; i < taps.size(); ++i) {
    by_tap[i % size_of(world.taps) * width + i / size_of(world.taps)] = taps[i];
  }
  std::vector<DeviceBuffer<float>> memory;
  std::vector<float*> table;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> firsts{0};
  for (std::size_t i = 0; i < states.size(); ++i) {
    memory.push_back(upload(states[i].empty() ? Floats(1) : states[i]));
    table.push_back(memory.back().data());
    slots.push_back(static_cast<std::int32_t>(i));
    firsts.push_back(firsts.back() + world.counts[i]);
  }
  const DeviceBuffer<float*> table_on_device((std::span<float* const>(table)));
  const DeviceBuffer<std::int32_t> slots_on_device((std::span<const std::int32_t>(slots)));
  const DeviceBuffer<std::int32_t> firsts_on_device((std::span<const std::int32_t>(firsts)));
  const auto input = upload(projected);
  const auto output_gates = upload(gates);
  const auto tap_values = upload(by_tap);
  const auto out = poisoned<bf16>(gates.size());
  short_conv({.projected = input.data(),
              .gates = output_gates.data(),
              .taps = tap_values.data(),
              .tap_count = world.taps,
              .channels = world.channels,
              .out = out.data()},
             {.sequences = static_cast<int>(slots.size()),
              .longest = std::ranges::max(world.counts),
              .firsts = as_steps ? nullptr : firsts_on_device.data(),
              .slots = slots_on_device.data(),
              .states = table_on_device.data()},
             nullptr);
  ConvResult result{download(out), {}};
  for (std::size_t i = 0; i < states.size(); ++i) {
    result.states.push_back(states[i].empty() ? Floats() : download(memory[i]));
  }
  return result;
}

using CudaShortConv = CudaTrainingOps;

TEST_F(CudaShortConv, SeveralSequences) {
  for (const bool as_steps : {false, true}) {
    for (const int taps : {1, 3, 33}) {
      const std::vector<int> counts =
          as_steps ? std::vector{1, 1, 1} : std::vector{2, 70, 1, 133, 16};
      const ConvWorld world{200, taps, counts};
      const Floats projected = draw(size_of(2 * world.rows() * world.channels), 2);
      const Floats gates = draw(size_of(world.rows() * world.channels), 3);
      std::vector<Floats> states;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        states.push_back(world.state(i));
      }
      const ConvResult expected = convolved_on_host(world, projected, gates);
      const ConvResult got = convolved_on_device(world, projected, gates, states, as_steps);
      expect_close(got.out, expected.out, kRounded, "outputs");
      for (std::size_t i = 0; i < states.size(); ++i) {
        EXPECT_EQ(got.states[i], expected.states[i]) << i;
      }
    }
  }
}

TEST_F(CudaShortConv, DoesNotDependOnHowATextIsCut) {
  constexpr int kTokens = 150;
  const ConvWorld whole{72, 4, {kTokens}};
  const Floats projected = draw(size_of(2 * kTokens * whole.channels), 2);
  const Floats gates = draw(size_of(kTokens * whole.channels), 3);
  const ConvResult expected = convolved_on_device(whole, projected, gates, {whole.state(0)}, false);
  Floats state = whole.state(0);
  Floats out;
  int first = 0;
  for (const int count : {1, 40, 2, 64, 43}) {
    const auto rows_of = [&](const Floats& x, int cols) {
      return Floats(x.begin() + first * cols, x.begin() + (first + count) * cols);
    };
    const ConvResult got = convolved_on_device({whole.channels, whole.taps, {count}},
                                               rows_of(projected, 2 * whole.channels),
                                               rows_of(gates, whole.channels), {state}, count == 1);
    state = got.states.front();
    out.insert(out.end(), got.out.begin(), got.out.end());
    first += count;
  }
  EXPECT_EQ(first, kTokens);
  EXPECT_EQ(out, expected.out);
  EXPECT_EQ(state, expected.states.front());
}

TEST_F(CudaShortConv, NamesTooManyTaps) {
  EXPECT_THROW(check_taps(34), Error);
}

}  // namespace
}  // namespace winnow::ops::cuda::testing

// Time of a recurrent layer's kernels and of its linear layers, for the heads of Qwen3-Next-80B:
// steps of one token per sequence, as a share of the bandwidth of their states, and chunks of a
// prompt.
//
//     recurrent_benchmark [--json FILE]
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/read_bandwidth.h"
#include "cuda/benchmark_main.h"
#include "cuda/time_graph.h"
#include "ops/cuda/recurrent/delta_inputs.h"
#include "ops/cuda/recurrent/delta_rule.h"
#include "ops/cuda/recurrent/output_gates.h"

namespace winnow {
namespace {

constexpr ops::DeltaRuleShape kHeads{16, 32, 128, 128};
constexpr int kTaps = 4;
constexpr int kStride = 64;  // of gates

template <class T>
cuda::DeviceBuffer<T> zeros(std::size_t count) {
  cuda::DeviceBuffer<T> buffer(count);
  buffer.fill(0);
  return buffer;
}

std::size_t size_of(int count) {
  return static_cast<std::size_t>(count);
}

// A layer's inputs for `sequences` sequences of `tokens` tokens each.
struct Layer {
  int sequences;
  int rows;
  std::size_t state = size_of(kHeads.state_size() + (kTaps - 1) * channels());
  cuda::DeviceBuffer<float> states, projected, mixed, gates, taps, heads, out, output_gates, norm;
  cuda::DeviceBuffer<bf16> normed;
  cuda::DeviceBuffer<std::int32_t> slots, firsts;
  cuda::DeviceBuffer<float*> table;
  ops::cuda::RecurrentRows described;

  static int channels() { return ops::cuda::channels_of(kHeads); }

  Layer(int count, int tokens)
      : sequences(count),
        rows(count * tokens),
        states(zeros<float>(size_of(count) * state)),
        projected(zeros<float>(size_of(rows) * size_of(channels()))),
        mixed(zeros<float>(size_of(rows) * size_of(channels()))),
        gates(zeros<float>(size_of(rows) * kStride)),
        taps(zeros<float>(size_of(kTaps * channels()))),
        heads(zeros<float>(size_of(kHeads.value_heads))),
        out(zeros<float>(size_of(rows) * size_of(kHeads.value_width()))),
        output_gates(zeros<float>(out.size())),
        norm(zeros<float>(size_of(kHeads.value_dim))),
        normed(zeros<bf16>(out.size())) {
    std::vector<std::int32_t> numbers;
    std::vector<std::int32_t> begins{0};
    std::vector<float*> places;
    for (int i = 0; i < count; ++i) {
      numbers.push_back(i);
      begins.push_back((i + 1) * tokens);
      places.push_back(states.data() + size_of(i) * state);
    }
    slots = cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(numbers));
    firsts = cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(begins));
    table = cuda::DeviceBuffer<float*>(std::span<float* const>(places));
    described = {.sequences = count,
                 .longest = tokens,
                 .firsts = tokens > 1 ? firsts.data() : nullptr,
                 .slots = slots.data(),
                 .states = table.data()};
  }

  void take_inputs(cudaStream_t stream) const {
    ops::cuda::delta_inputs(kHeads,
                            {.projected = projected.data(),
                             .mixed = mixed.data(),
                             .gates = gates.data(),
                             .gate_stride = kStride,
                             .taps = taps.data(),
                             .tap_count = kTaps,
                             .log_decay = heads.data(),
                             .decay_bias = heads.data()},
                            described, stream);
  }
  void apply_rule(cudaStream_t stream) const {
    ops::cuda::delta_rule(
        kHeads,
        {.mixed = mixed.data(), .gates = gates.data(), .gate_stride = kStride, .out = out.data()},
        described, stream);
  }
  void norm_outputs(cudaStream_t stream) const {
    ops::cuda::gated_rms_norm(normed.data(), out.data(),
                              {.rows = rows,
                               .heads = kHeads.value_heads,
                               .dim = kHeads.value_dim,
                               .gates = output_gates.data()},
                              norm.data(), 1e-6F, stream);
  }
};

nlohmann::json run() {
  const cuda::Stream stream;
  nlohmann::json results;
  const double bandwidth = cuda::measure_read_bandwidth();
  fmt::print("{}, reads {:.2f} TB/s\n", device_name(), bandwidth / 1e12);
  fmt::print("{:>10}{:>8}{:>12}{:>12}{:>12}{:>14}   (microseconds)\n", "sequences", "tokens",
             "inputs", "rule", "all", "of bandwidth");
  const auto measure = [&](int sequences, int tokens) {
    const Layer layer(sequences, tokens);
    const auto time = [&](const auto& work) {
      return 1e3 * time_graph(
                       stream, [&] { work(stream.get()); }, 5);
    };
    const double inputs = time([&](cudaStream_t s) { layer.take_inputs(s); });
    const double rule = time([&](cudaStream_t s) { layer.apply_rule(s); });
    const double all = time([&](cudaStream_t s) {
      layer.take_inputs(s);
      layer.apply_rule(s);
      layer.norm_outputs(s);
    });
    const double bytes = 2.0 * sizeof(float) * kHeads.state_size() * sequences;
    const double share = bytes / (rule * 1e-6) / bandwidth;
    fmt::print("{:>10}{:>8}{:>12.1f}{:>12.1f}{:>12.1f}{:>13.0f}%\n", sequences, tokens, inputs,
               rule, all, 100.0 * share);
    results.push_back({{"sequences", sequences},
                       {"tokens", tokens},
                       {"inputs_us", inputs},
                       {"rule_us", rule},
                       {"all_us", all},
                       {"read_bandwidth", bandwidth},
                       {"state_bytes", bytes}});
  };
  for (const int sequences : {1, 2, 4, 8, 16, 32, 64, 128}) {
    measure(sequences, 1);
  }
  for (const int tokens : {64, 512, 2048, 8192}) {
    measure(1, tokens);
  }
  measure(8, 256);
  return results;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

// Training attention on the device: milliseconds forward and backward of 16,384 tokens, 32 query
// heads and 8 KV heads, with DMS's bias beyond a window of 256, and useful floating-point
// operations per second: 4 head_dim forward and 10 head_dim backward for each query head and key
// that it sees.
//
//     training_attention_cuda_benchmark [--json FILE]
//
// Medians over the replays of a graph. A call's inputs and outputs are larger than the cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "cuda/benchmark_main.h"
#include "cuda/time_graph.h"
#include "ops/cuda/training/training_attention.h"

namespace winnow {
namespace {

using cuda::DeviceBuffer;
using ops::Matrix;
using ops::cuda::TrainingKernel;

constexpr int kTokens = 16384;
constexpr int kKvHeads = 8;
constexpr int kGroup = 4;
constexpr int kWindow = 256;

struct Case {
  int head_dim;
  int document;  // tokens
  bool biased;
  TrainingKernel kernel;
};

/// A matrix [kTokens, cols] in device memory.
template <class T>
class DeviceMatrix {
 public:
  explicit DeviceMatrix(int cols)
      : cols_(static_cast<std::size_t>(cols)), buffer_(kTokens * cols_) {}
  /// Random numbers: a million of `draw`, repeated.
  template <class F>
  DeviceMatrix(int cols, F&& draw) : cols_(static_cast<std::size_t>(cols)) {
    std::vector<T> drawn(1000003);
    std::ranges::generate(drawn, draw);
    std::vector<T> x(kTokens * cols_);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = drawn[i % drawn.size()];
    }
    buffer_ = DeviceBuffer<T>(std::span<const T>(x));
  }
  [[nodiscard]] Matrix<T> matrix() const { return {buffer_.data(), kTokens, cols_}; }

 private:
  std::size_t cols_;
  DeviceBuffer<T> buffer_;
};

std::vector<std::int32_t> first_keys(int document) {
  std::vector<std::int32_t> first(kTokens);
  for (int i = 0; i < kTokens; ++i) {
    first[static_cast<std::size_t>(i)] = i / document * document;
  }
  return first;
}

nlohmann::json run_case(const Case& c, const cuda::Stream& stream) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto number = [&] { return to_bf16(normal(random)); };
  const int kv_width = kKvHeads * c.head_dim;
  const int width = kv_width * kGroup;
  const DeviceMatrix<bf16> queries(width, number);
  const DeviceMatrix<bf16> keys(kv_width, number);
  const DeviceMatrix<bf16> values(kv_width, number);
  const DeviceMatrix<bf16> dout(width, number);
  // log(1 - alpha) of decisions that are mostly 1: sums of logits and noise, over 0.1.
  const DeviceMatrix<float> bias(kKvHeads,
                                 [&] { return -std::log1p(std::exp(10.0F * normal(random))); });
  const std::vector<std::int32_t> first = first_keys(c.document);
  const DeviceBuffer<std::int32_t> first_key{std::span<const std::int32_t>(first)};
  const DeviceMatrix<bf16> out(width);
  const DeviceMatrix<bf16> dqueries(width);
  const DeviceMatrix<bf16> dkeys(kv_width);
  const DeviceMatrix<bf16> dvalues(kv_width);
  const DeviceMatrix<float> normalizers(kKvHeads * kGroup);
  const DeviceMatrix<float> dbias(kKvHeads);
  const DeviceBuffer<std::byte> scratch(
      ops::cuda::training_attention_scratch_bytes(kTokens, kKvHeads * kGroup, c.head_dim));
  const ops::cuda::TrainingAttention attention{
      .head_dim = c.head_dim,
      .group = kGroup,
      .window = kWindow,
      .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
      .first_key = first_key.data(),
      .queries = queries.matrix(),
      .keys = keys.matrix(),
      .values = values.matrix(),
      .bias = c.biased ? Matrix<const float>(bias.matrix()) : Matrix<const float>()};
  const double forward = time_graph(stream, [&] {
    ops::cuda::training_attention(attention, out.matrix(), normalizers.matrix(), scratch.data(),
                                  stream.get(), c.kernel);
  });
  const double backward = time_graph(stream, [&] {
    ops::cuda::training_attention_backward(attention, out.matrix(), normalizers.matrix(),
                                           dout.matrix(),
                                           {.queries = dqueries.matrix(),
                                            .keys = dkeys.matrix(),
                                            .values = dvalues.matrix(),
                                            .bias = c.biased ? dbias.matrix() : Matrix<float>()},
                                           scratch.data(), stream.get(), c.kernel);
  });
  const double pairs =
      0.5 * kTokens * (c.document + 1.0) * kKvHeads * kGroup;  // of query heads and keys
  const double operations = 4.0 * c.head_dim * pairs;
  const char* kernel = c.kernel == TrainingKernel::best ? "best" : "portable";
  fmt::print("{:4} {:6} {:5} {:9} {:9.3f} {:9.3f} {:9.3f} {:8.0f} {:8.0f}\n", c.head_dim,
             c.document, c.biased ? "bias" : "none", kernel, forward, backward, forward + backward,
             operations / forward * 1e-9, 2.5 * operations / backward * 1e-9);
  return {{"head_dim", c.head_dim},  {"document", c.document}, {"biased", c.biased},
          {"kernel", kernel},        {"forward_ms", forward},  {"backward_ms", backward},
          {"operations", operations}};
}

nlohmann::json run() {
  const cuda::Stream stream;
  fmt::print("{}\n\n{:>4} {:>6} {:5} {:9} {:>9} {:>9} {:>9} {:>8} {:>8}\n", device_name(), "D", "T",
             "", "kernel", "fwd ms", "bwd ms", "both ms", "TFLOP/s", "TFLOP/s");
  nlohmann::json results = nlohmann::json::array();
  for (const int head_dim : {64, 128}) {
    for (const int document : {4096, 8192}) {
      for (const bool biased : {true, false}) {
        results.push_back(run_case({head_dim, document, biased, TrainingKernel::best}, stream));
      }
    }
    results.push_back(run_case({head_dim, 4096, true, TrainingKernel::portable}, stream));
  }
  return {{"device", device_name()}, {"results", results}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

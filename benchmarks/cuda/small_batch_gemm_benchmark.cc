// Linear layers of a batch, compared with cuBLASLt, which reads a bf16 copy of the weights.
//
//     small_batch_gemm_benchmark [--json FILE]
//
// The linear layers of whole decode steps (no attention), every layer with its own weights, in
// one graph: products, their epilogues, and packing of rows.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "base/cuda/read_bandwidth.h"
#include "cuda/benchmark_main.h"
#include "cuda/random_weights.h"
#include "cuda/time_graph.h"
#include "ops/cuda/activation.h"
#include "ops/cuda/linear/linear.h"
#include "ops/cuda/linear/small_batch_gemm_kernels.h"
#include "ops/cuda/norm.h"

namespace winnow {
namespace {

using cuda::DeviceBuffer;
using ops::cuda::DeviceWeightFormat;
using ops::cuda::DeviceWeightView;
using ops::cuda::PackedRows;

constexpr DeviceWeightFormat kFormats[] = {DeviceWeightFormat::bf16, DeviceWeightFormat::fp8,
                                           DeviceWeightFormat::int8, DeviceWeightFormat::int4};
constexpr int kRowCounts[] = {16, 32, 64};
constexpr std::size_t kMostRows = ops::cuda::kMostSmallBatchRows;
constexpr std::size_t kWidest = 32768;

/// The kernels' inputs and outputs, large enough for every shape.
struct Activations {
  Activations() {
    std::vector<bf16> values(kMostRows * kWidest);
    std::vector<float> floats(values.size());
    std::mt19937 random(2);
    std::normal_distribution<float> draw;
    for (std::size_t i = 0; i < values.size(); ++i) {
      floats[i] = draw(random);
      values[i] = to_bf16(floats[i]);
    }
    wide = DeviceBuffer<bf16>(values);
    narrow = DeviceBuffer<bf16>(values);
    hidden = DeviceBuffer<float>(floats);
  }

  DeviceBuffer<float> gain{std::vector<float>(kWidest, 1.0F)};
  DeviceBuffer<float> hidden;
  DeviceBuffer<bf16> wide;
  DeviceBuffer<bf16> narrow;
  DeviceBuffer<float> sums{ops::cuda::kMostSmallBatchParts * kMostRows * kWidest};
  DeviceBuffer<float> logits{kMostRows * 160000};
};

/// The packed rows that products read.
struct Packed {
  Packed(const ModelShape& model, DeviceWeightFormat format)
      : normed(format, model.width), attended(format, model.heads), inner(format, model.inner) {}
  ops::cuda::PackedMemory normed;
  ops::cuda::PackedMemory attended;
  ops::cuda::PackedMemory inner;
};

/// Attention would be between the first and the second product of a layer.
void step(const ModelShape& model, const ModelWeights& weights, const Packed& packed, int rows,
          const Activations& a, cudaStream_t stream) {
  const float* gain = a.gain.data();
  const PackedRows normed = packed.normed.rows(rows);
  const auto multiply = [&](std::size_t i, const PackedRows& x) {
    const DeviceWeightView weight = weights.view(i);
    return small_batch_gemm(weight, x, small_batch_parts(weight, rows), a.sums.data(), stream);
  };
  add_and_norm(a.hidden.data(), {}, nullptr, gain, 1e-5F, normed, stream);
  for (int layer = 0; layer < model.layers; ++layer) {
    const std::size_t first = 4 * static_cast<std::size_t>(layer);
    store_product(a.logits.data(), multiply(first, normed), stream);
    const PackedRows attended = packed.attended.rows(rows);
    pack_rows(attended, a.wide.data(), stream);
    add_and_norm(a.hidden.data(), multiply(first + 1, attended), nullptr, gain, 1e-5F, normed,
                 stream);
    const PackedRows inner = packed.inner.rows(rows);
    gate_product(inner, multiply(first + 2, normed), nullptr, stream);
    add_and_norm(a.hidden.data(), multiply(first + 3, inner), nullptr, gain, 1e-5F, normed, stream);
  }
  small_batch_gemm(weights.view(weights.size() - 1), normed, 1, a.logits.data(), stream);
}

/// The same by cuBLASLt, with row-major weights.
void step_by_library(const ModelShape& model, const bf16* weights, int rows, const Activations& a,
                     ops::cuda::Linear& linear, cudaStream_t stream) {
  const auto next = [&weights](int outputs, int inputs) {
    return std::exchange(weights, weights + std::size_t(outputs) * std::size_t(inputs));
  };
  const auto norm = [&] {
    ops::cuda::rms_norm(a.narrow.data(), a.hidden.data(), rows, model.width, a.gain.data(), 1e-5F,
                        stream);
  };
  for (int layer = 0; layer < model.layers; ++layer) {
    norm();
    linear.multiply(a.logits.data(), a.narrow.data(), next(model.qkv, model.width), rows, model.qkv,
                    model.width, stream);
    linear.multiply_add(a.hidden.data(), a.wide.data(), next(model.width, model.heads), rows,
                        model.width, model.heads, stream);
    norm();
    linear.multiply(a.wide.data(), a.narrow.data(), next(2 * model.inner, model.width), rows,
                    2 * model.inner, model.width, stream);
    ops::cuda::silu_multiply(a.narrow.data(), a.wide.data(), rows, model.inner, nullptr, stream);
    linear.multiply_add(a.hidden.data(), a.narrow.data(), next(model.width, model.inner), rows,
                        model.width, model.inner, stream);
  }
  norm();
  linear.multiply(a.logits.data(), a.narrow.data(), next(model.vocabulary, model.width), rows,
                  model.vocabulary, model.width, stream);
}

nlohmann::json time_library(const ModelShape& model, const cuda::Stream& stream,
                            const Activations& activations) {
  const ModelWeights weights(model, DeviceWeightFormat::bf16);
  nlohmann::json results = nlohmann::json::object();
  fmt::print("{:12} cuBLASLt   ", model.name);
  for (const int rows : kRowCounts) {
    ops::cuda::Linear linear;
    linear.search(true);
    const auto run = [&] {
      step_by_library(model, reinterpret_cast<const bf16*>(weights.data()), rows, activations,
                      linear, stream.get());
    };
    run();  // selects algorithms
    stream.synchronize();
    const double us = 1e3 * time_graph(stream, run);
    fmt::print(" {:>8.0f} us      ", us);
    results[std::to_string(rows)] = us;
  }
  fmt::print("\n");
  return results;
}

nlohmann::json time_steps(const ModelShape& model, DeviceWeightFormat format,
                          const cuda::Stream& stream, const Activations& activations,
                          double bandwidth) {
  const ModelWeights weights(model, format);
  const Packed packed(model, format);
  const double floor = static_cast<double>(weights.bytes()) / bandwidth * 1e6;
  nlohmann::json results{{"format", format_name(format)}, {"floor_microseconds", floor}};
  fmt::print("{:12} {:5} {:>5.0f}", model.name, format_name(format), floor);
  for (const int rows : kRowCounts) {
    const double us = 1e3 * time_graph(stream, [&] {
                        step(model, weights, packed, rows, activations, stream.get());
                      });
    fmt::print(" {:>8.0f} us {:>3.0f} %", us, 100 * floor / us);
    std::fflush(stdout);
    results["microseconds"][std::to_string(rows)] = us;
  }
  fmt::print("\n");
  return results;
}

nlohmann::json run() {
  const double bandwidth = cuda::measure_read_bandwidth();
  fmt::print("{}, reading {:.0f} GB/s; microseconds of a step, and share of the floor\n{:24}",
             device_name(), bandwidth * 1e-9, "");
  for (const int rows : kRowCounts) {
    fmt::print(" {:>5} rows        ", rows);
  }
  fmt::print("\n");
  const cuda::Stream stream;
  const Activations activations;
  nlohmann::json models = nlohmann::json::array();
  for (const ModelShape& model : kModels) {
    nlohmann::json steps = nlohmann::json::array();
    for (const DeviceWeightFormat format : kFormats) {
      steps.push_back(time_steps(model, format, stream, activations, bandwidth));
    }
    models.push_back({{"model", model.name},
                      {"steps", steps},
                      {"cublaslt_microseconds", time_library(model, stream, activations)}});
  }
  return {{"device", device_name()}, {"read_bytes_per_s", bandwidth}, {"models", models}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

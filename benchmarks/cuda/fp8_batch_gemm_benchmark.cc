// Products in fp8 of a large batch with the linear layers of a model: microseconds per product for
// three implementations, and for only reading its weights.
//
//     fp8_batch_gemm_benchmark [--json FILE]
//
// Medians over the replays of a graph of calls, each with another copy of the weight, so that no
// weight is found in the cache.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/read_bandwidth.h"
#include "cuda/benchmark_main.h"
#include "cuda/time_graph.h"
#include "ops/cuda/linear/fp8_batch_gemm.h"
#include "ops/cuda/linear/fp8_rows.h"

namespace winnow {
namespace {

using cuda::DeviceBuffer;
using ops::cuda::DeviceWeight;
using ops::cuda::Fp8Rows;

constexpr std::size_t kBeyondCaches = std::size_t{256} << 20;

struct Case {
  const char* model;
  const char* name;
  int outputs;
  int inputs;
  bool paired;
};

constexpr Case kCases[] = {
    {"Llama-3.1-8B", "qkv", 6144, 4096, false},
    {"Llama-3.1-8B", "output", 4096, 4096, false},
    {"Llama-3.1-8B", "gate and up", 28672, 4096, true},
    {"Llama-3.1-8B", "down", 4096, 14336, false},
    {"half of Llama-2-70B", "qkv", 5120, 8192, false},
    {"half of Llama-2-70B", "output", 8192, 4096, false},
    {"half of Llama-2-70B", "gate and up", 28672, 8192, true},
    {"half of Llama-2-70B", "down", 8192, 14336, false},
};

std::vector<bf16> draw(std::size_t count) {
  std::minstd_rand random(1);
  std::vector<bf16> values(count);
  for (bf16& value : values) {
    value.bits = static_cast<std::uint16_t>((random() & 0x807FU) | 0x3F00U);  // 0.5 to 1, or less
  }
  return values;
}

nlohmann::json run_case(const Case& c, const cuda::Stream& stream, double bandwidth) {
  const auto size = static_cast<std::size_t>(c.outputs) * static_cast<std::size_t>(c.inputs);
  const std::vector<bf16> values = draw(size);
  const ops::Weight source{.format = ops::WeightFormat::bf16,
                           .rows = c.outputs,
                           .cols = c.inputs,
                           .data = values.data()};
  const std::size_t copies = kBeyondCaches / size + 2;
  std::vector<DeviceWeight> weights;
  std::vector<DeviceBuffer<std::uint8_t>> matrices;
  for (std::size_t i = 0; i < copies; ++i) {
    weights.emplace_back(source, ops::cuda::DeviceWeightFormat::fp8, c.paired);
    matrices.emplace_back(size);
    ops::cuda::copy_codes(matrices.back().data(), weights.back().view(), 0, c.outputs,
                          stream.get());
  }
  constexpr auto kMost = static_cast<std::size_t>(ops::cuda::kMostFp8BatchRows);
  DeviceBuffer<std::uint8_t> codes(kMost * static_cast<std::size_t>(c.inputs));
  codes.fill(0x30);
  const DeviceBuffer<float> scales{std::span<const float>(std::vector<float>(kMost, 1.0F))};
  const DeviceBuffer<bf16> y(kMost * static_cast<std::size_t>(c.outputs));
  const DeviceBuffer<float> scratch(ops::cuda::fp8_batch_scratch(ops::cuda::kMostFp8BatchRows));
  const DeviceBuffer<std::uint8_t> rewritten(size);
  const Fp8Rows x{codes.data(), scales.data()};
  nlohmann::json result = nlohmann::json::array();
  for (const int rows : {96, 128, 192, 256}) {
    ops::cuda::Linear linear;
    linear.search(true);
    const auto by_library = [&](const std::uint8_t* matrix, std::size_t i) {
      linear.multiply(y.data(), x, {matrix, weights[i].view().row_scales}, rows, c.outputs,
                      c.inputs, stream.get());
    };
    by_library(matrices[0].data(), 0);  // the first call tries algorithms
    const auto microseconds = [&](const auto& multiply) {
      const double ms = time_graph(stream, [&] {
        for (std::size_t i = 0; i < copies; ++i) {
          multiply(i);
        }
      });
      return ms * 1e3 / static_cast<double>(copies);
    };
    const double in_place = microseconds([&](std::size_t i) {
      ops::cuda::fp8_batch_gemm(y.data(), x, weights[i].view(), rows, scratch.data(), stream.get());
    });
    const double library = microseconds([&](std::size_t i) { by_library(matrices[i].data(), i); });
    const double rewriting = microseconds([&](std::size_t i) {
      ops::cuda::copy_codes(rewritten.data(), weights[i].view(), 0, c.outputs, stream.get());
      by_library(rewritten.data(), i);
    });
    const double floor = static_cast<double>(size) / bandwidth * 1e6;
    fmt::print("{:20} {:12} {:>5} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", c.model, c.name, rows,
               in_place, library, rewriting, floor);
    result.push_back({{"model", c.model},
                      {"product", c.name},
                      {"outputs", c.outputs},
                      {"inputs", c.inputs},
                      {"rows", rows},
                      {"in_place_us", in_place},
                      {"cublaslt_us", library},
                      {"rewritten_and_cublaslt_us", rewriting},
                      {"floor_us", floor}});
  }
  return result;
}

nlohmann::json run() {
  const cuda::Stream stream;
  const double bandwidth = cuda::measure_read_bandwidth();
  fmt::print("{}, {:.2f} TB/s\n\n{:33} {:>5} {:>9} {:>9} {:>9} {:>9}\n", device_name(),
             bandwidth * 1e-12, "microseconds", "rows", "in place", "cuBLASLt", "rewritten",
             "floor");
  nlohmann::json results = nlohmann::json::array();
  for (const Case& c : kCases) {
    for (auto& row : run_case(c, stream, bandwidth)) {
      results.push_back(std::move(row));
    }
  }
  return {{"device", device_name()}, {"bytes_per_second", bandwidth}, {"results", results}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

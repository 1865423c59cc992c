// Linear layers of a few rows, compared with the bandwidth of simply reading the same memory.
//
//     skinny_gemm_benchmark [--json FILE]
//
// First the linear layers of whole decode steps (no attention), every layer with its own weights:
// a kernel for each, kernels that overlap, and kernels of the four layers from one attention to the
// next. Then each shape alone, over copies that are larger than the cache.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/read_bandwidth.h"
#include "cuda/benchmark_main.h"
#include "cuda/random_weights.h"
#include "cuda/time_graph.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow {
namespace {

using cuda::DeviceBuffer;
using ops::cuda::DeviceWeightFormat;
using ops::cuda::DeviceWeightLayout;
using ops::cuda::DeviceWeightView;
using ops::cuda::SkinnyLaunch;

constexpr DeviceWeightFormat kFormats[] = {DeviceWeightFormat::bf16, DeviceWeightFormat::fp8,
                                           DeviceWeightFormat::int8, DeviceWeightFormat::int4};
constexpr int kMostParts = 1024;

/// The kernels' inputs and outputs, large enough for every shape.
struct Activations {
  static constexpr int kWidest = 32768;
  static constexpr std::size_t kRows = ops::cuda::kMostSkinnyRows;

  Activations() {
    std::vector<bf16> values(kRows * kWidest);
    std::mt19937 random(2);
    std::normal_distribution<float> draw;
    for (bf16& x : values) {
      x = to_bf16(draw(random));
    }
    attended = DeviceBuffer<bf16>(values);
    normed = DeviceBuffer<bf16>(values);
    sums.fill(0x3F);
    hidden.fill(0);
    tokens.fill(0);
  }

  [[nodiscard]] ops::cuda::ResidualStream residual() const {
    return {hidden.data(), gain.data(), normed.data(), sums.data()};
  }

  DeviceBuffer<bf16> attended;
  DeviceBuffer<bf16> normed;
  DeviceBuffer<bf16> inner{kRows * kWidest};
  DeviceBuffer<float> hidden{kRows * kWidest};
  DeviceBuffer<float> gain{std::vector<float>(kWidest, 1.0F)};
  DeviceBuffer<float> sums{kRows * kMostParts};
  DeviceBuffer<float> out{kRows * 160000};
  DeviceBuffer<std::int32_t> tokens{kRows};
  ops::cuda::SkinnyScratch scratch{2 * kWidest};
};

enum class Use { qkv, o, gate_up, down, head };

ops::cuda::SkinnyGemm layer_of(Use use, const DeviceWeightView& weight, int parts,
                               const Activations& a) {
  const ops::cuda::SkinnyInput normed{a.normed.data(), a.sums.data(), parts, 1e-5F};
  switch (use) {
    case Use::qkv:
      return stored({weight}, normed, a.out.data());
    case Use::o:
      return added({weight}, {a.attended.data()}, a.residual());
    case Use::gate_up:
      return gated({weight}, normed, a.inner.data());
    case Use::down:
      return added({weight}, {a.inner.data()}, a.residual());
    case Use::head:
      return chosen({weight}, normed, a.tokens.data(), nullptr);
  }
  return {};
}

struct Shape {
  const char* name;
  Use use;
  int rows;
  int cols;
};

constexpr Shape kShapes[] = {{"1B qkv", Use::qkv, 3072, 2048},
                             {"1B o", Use::o, 2048, 2048},
                             {"1B gate-up", Use::gate_up, 16384, 2048},
                             {"1B down", Use::down, 2048, 8192},
                             {"1B head", Use::head, 128256, 2048},
                             {"8B qkv", Use::qkv, 6144, 4096},
                             {"8B o", Use::o, 4096, 4096},
                             {"8B gate-up", Use::gate_up, 24576, 4096},
                             {"8B down", Use::down, 4096, 12288},
                             {"8B head", Use::head, 151936, 4096}};

constexpr int kRowCounts[] = {1, 8, 16};

nlohmann::json time_shapes(DeviceWeightFormat format, const cuda::Stream& stream,
                           const Activations& activations, double bandwidth) {
  constexpr std::size_t kMemory = std::size_t{5} << 29;
  const RandomWeights random(format);
  const DeviceBuffer<std::byte> memory(kMemory);  // two heads at most
  nlohmann::json results = nlohmann::json::array();
  for (const Shape& shape : kShapes) {
    const DeviceWeightLayout layout{format, shape.rows, shape.cols, shape.use == Use::gate_up};
    const std::size_t copies =
        std::clamp<std::size_t>((std::size_t{256} << 20) / layout.bytes() + 1, 2, 64);
    for (std::size_t i = 0; i < copies; ++i) {
      random.fill(layout, memory.data() + i * layout.bytes());
    }
    fmt::print("{:5} {:11}", format_name(format), shape.name);
    for (const int rows : kRowCounts) {
      const double us =
          1e3 *
          time_graph(stream,
                     [&] {
                       for (std::size_t i = 0; i < copies; ++i) {
                         const auto layer =
                             layer_of(shape.use, {layout, memory.data() + i * layout.bytes()}, 128,
                                      activations);
                         skinny_gemm({&layer, 1}, rows, activations.scratch, {stream.get()});
                       }
                     }) /
          static_cast<double>(copies);
      const double share = static_cast<double>(layout.bytes()) / (us * 1e-6) / bandwidth;
      fmt::print(" {:>8.2f} us {:>3.0f} %", us, 100 * share);
      results.push_back({{"format", format_name(format)},
                         {"shape", shape.name},
                         {"rows", rows},
                         {"bytes", layout.bytes()},
                         {"microseconds", us},
                         {"share_of_read_bandwidth", share}});
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return results;
}

enum class Mode { single, overlapped, chained };
constexpr std::pair<Mode, const char*> kModes[] = {
    {Mode::single, "single"}, {Mode::overlapped, "overlapped"}, {Mode::chained, "chained"}};

/// The linear layers of a decode step. Attention would precede each `o`.
void step(const ModelShape& model, const ModelWeights& weights, int rows, const Activations& a,
          Mode mode, cudaStream_t stream) {
  constexpr Use kUses[] = {Use::qkv, Use::o, Use::gate_up, Use::down};
  const std::size_t head = weights.size() - 1;
  const SkinnyLaunch launch{stream, mode != Mode::single};
  const int parts = ops::cuda::residual_parts(model.width);
  embed_rows(weights.view(head), a.tokens.data(), rows, a.residual(), launch);
  std::vector<ops::cuda::SkinnyGemm> layers;
  for (std::size_t i = 0; i <= head; ++i) {
    layers.push_back(
        layer_of(i == head ? Use::head : kUses[i % 4], weights.view(i), i == 0 ? 1 : parts, a));
    if (mode < Mode::chained || i % 4 == 0) {
      skinny_gemm(layers, rows, a.scratch, launch);
      layers.clear();
    }
  }
}

nlohmann::json time_steps(const ModelShape& model, DeviceWeightFormat format,
                          const cuda::Stream& stream, const Activations& activations,
                          double bandwidth) {
  const ModelWeights weights(model, format);
  const double floor = static_cast<double>(weights.bytes()) / bandwidth * 1e6;
  nlohmann::json results = nlohmann::json::array();
  for (const int rows : kRowCounts) {
    fmt::print("{:12} {:5} {:>2} {:>8.0f}", model.name, format_name(format), rows, floor);
    for (const auto& [mode, mode_name] : kModes) {
      constexpr int kReplays = 10;
      const double ms = time_graph(
          stream, [&, mode = mode] { step(model, weights, rows, activations, mode, stream.get()); },
          kReplays);
      const double us = 1e3 * ms;
      fmt::print(" {:>8.1f} us {:>3.0f} %", us, 100 * floor / us);
      results.push_back({{"model", model.name},
                         {"format", format_name(format)},
                         {"rows", rows},
                         {"mode", mode_name},
                         {"bytes", weights.bytes()},
                         {"microseconds", us},
                         {"share_of_read_bandwidth", floor / us}});
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return results;
}

nlohmann::json run() {
  const cuda::Stream stream;
  const Activations activations;
  const double bandwidth = cuda::measure_read_bandwidth();
  nlohmann::json results{{"device", device_name()}, {"read_bytes_per_second", bandwidth}};
  fmt::print("{}, reading {:.0f} GB/s\n\nsteps: floor, single, overlapped, chained\n",
             device_name(), bandwidth * 1e-9);
  for (const ModelShape& model : kModels) {
    for (const DeviceWeightFormat format : kFormats) {
      for (const auto& result : time_steps(model, format, stream, activations, bandwidth)) {
        results["steps"].push_back(result);
      }
    }
  }
  fmt::print("\nalone: 1, 8 and 16 rows\n");
  for (const DeviceWeightFormat format : kFormats) {
    for (const auto& result : time_shapes(format, stream, activations, bandwidth)) {
      results["shapes"].push_back(result);
    }
  }
  return results;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

// Matrix products at the shapes of SmolLM2-135M, compared with this machine's limits: weights read
// once at the speed of a plain sum over the same bytes (few rows), and the arithmetic rate of a
// large square sgemm (many rows). Each iteration times the product and its yardstick in turn, under
// the same load of the machine; the counters come from the best of each.
#include <benchmark/benchmark.h>
#include <dnnl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/tensor.h"
#include "base/threads.h"
#include "ops/amx_packed_weights.h"
#include "ops/linear.h"
#include "read_memory.h"

namespace winnow::ops {
namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
};

/// The products of one layer that share an input.
using Layer = std::vector<std::vector<Shape>>;

const Layer kLayer = {
    {{576, 576}, {192, 576}, {192, 576}}, {{576, 576}}, {{1536, 576}, {1536, 576}}, {{576, 1536}}};
const Layer kHead = {{{49152, 576}}};
constexpr std::size_t kLayers = 30;

/// The demo model's products: few enough for a server's last-level cache.
const Layer kSmallLayer = {
    {{384, 384}, {128, 384}, {128, 384}}, {{384, 384}}, {{896, 384}, {896, 384}}, {{384, 896}}};
constexpr std::size_t kSmallLayers = 8;

const char* format_name(WeightFormat format) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8", "int4"};
  return kNames[static_cast<int>(format)];
}

std::size_t packed_bytes(WeightFormat format, std::size_t count) {
  constexpr std::size_t kBits[] = {32, 16, 16, 8, 4};
  return count * kBits[static_cast<int>(format)] / 8;
}

/// `copies` layers of random weights in one block of memory, like a checkpoint.
class Model {
 public:
  Model(const Layer& layer, std::size_t copies, WeightFormat format) {
    std::size_t count = 0;
    for (const auto& group : layer) {
      for (const Shape shape : group) {
        count += static_cast<std::size_t>(shape.rows * shape.cols);
      }
    }
    count *= copies;
    flops_per_row_ = 2.0 * static_cast<double>(count);
    scales_ = Buffer<bf16>(count / QuantizedWeight::kGroup);
    const bool scaled = is_quantized(format);
    // As large as all the data that is read, so that reading it is a fair yardstick.
    data_ = Buffer<std::uint8_t>(packed_bytes(format, count) + (scaled ? scales_.bytes() : 0));
    fill(format, count);
    std::size_t offset = 0;
    for (std::size_t i = 0; i < copies; ++i) {
      for (const auto& group : layer) {
        groups_.emplace_back();
        for (const Shape shape : group) {
          groups_.back().push_back(at(format, shape, offset));
          offset += static_cast<std::size_t>(shape.rows * shape.cols);
        }
      }
    }
  }

  [[nodiscard]] const std::vector<std::vector<Weight>>& groups() const { return groups_; }
  [[nodiscard]] const Buffer<std::uint8_t>& data() const { return data_; }
  [[nodiscard]] double flops_per_row() const { return flops_per_row_; }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t total = 0;
    for (const auto& group : groups_) {
      for (const Weight& weight : group) {
        total += weight.bytes();
      }
    }
    return total;
  }

 private:
  void fill(WeightFormat format, std::size_t count) {
    std::fill(scales_.begin(), scales_.end(), to_bf16(0.01F));
    const auto put = [&](auto convert) {
      using T = decltype(convert(0.0F));
      auto* out = reinterpret_cast<T*>(data_.data());
      parallel_ranges(count, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t i = begin; i < end; ++i) {
          out[i] = convert(static_cast<float>(mix64(i) >> 40) * 0x1p-24F - 0.5F);
        }
      });
    };
    switch (format) {
      case WeightFormat::f32:
        return put([](float x) { return x; });
      case WeightFormat::f16:
        return put([](float x) { return to_f16(x); });
      case WeightFormat::bf16:
        return put([](float x) { return to_bf16(x); });
      case WeightFormat::int8:
      case WeightFormat::int4:
      case WeightFormat::mxfp4:
        for (std::size_t i = 0; i < data_.size(); ++i) {
          data_[i] = static_cast<std::uint8_t>(mix64(i));
        }
    }
  }

  [[nodiscard]] Weight at(WeightFormat format, Shape shape, std::size_t offset) const {
    return {.format = format,
            .rows = shape.rows,
            .cols = shape.cols,
            .data = data_.data() + packed_bytes(format, offset),
            .scales = scales_.data() + offset / QuantizedWeight::kGroup,
            .group = QuantizedWeight::kGroup};
  }

  Buffer<std::uint8_t> data_;
  Buffer<bf16> scales_;
  std::vector<std::vector<Weight>> groups_;
  double flops_per_row_ = 0;
};

std::vector<float> random_floats(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(mix64(i) >> 40) * 0x1p-24F - 0.5F;
  }
  return values;
}

/// Every product of the model with `rows` inputs.
class Step {
 public:
  Step(const Model& model, std::size_t rows, bool deterministic, DType compute,
       const AmxPackedWeights* tiled = nullptr)
      : model_(model), rows_(rows), x_(random_floats(rows * 1536)) {
    context_ = {.compute = compute,
                .deterministic = deterministic,
                .workspace = &workspace_,
                .tiled = tiled};
    std::size_t widest = 0;
    for (const auto& group : model.groups()) {
      widest = std::max(widest, width(group));
    }
    out_.resize(rows * widest);
  }

  void operator()() {
    std::vector<LinearTarget> targets;
    for (const auto& group : model_.groups()) {
      targets.clear();
      float* out = out_.data();
      for (const Weight& weight : group) {
        const auto cols = static_cast<std::size_t>(weight.rows);
        targets.push_back({Matrix<float>(out, rows_, cols), &weight});
        out += rows_ * cols;
      }
      const auto cols = static_cast<std::size_t>(group.front().cols);
      linear(context_, targets, Matrix<const float>(x_.data(), rows_, cols));
    }
  }

 private:
  static std::size_t width(const std::vector<Weight>& group) {
    std::size_t total = 0;
    for (const Weight& weight : group) {
      total += static_cast<std::size_t>(weight.rows);
    }
    return total;
  }

  const Model& model_;
  std::size_t rows_;
  std::vector<float> x_;
  std::vector<float> out_;
  Workspace workspace_;
  Context context_;
};

/// read_memory() of each product's bytes: includes the cost of starting threads for each of them.
void read_by_product(const Model& model, std::span<const std::byte> memory) {
  for (const auto& group : model.groups()) {
    std::size_t bytes = 0;
    for (const Weight& weight : group) {
      bytes += weight.bytes();
    }
    bytes = std::min(bytes, memory.size());
    read_memory(memory.first(bytes));
    memory = memory.subspan(bytes);
  }
}

/// A square sgemm: the yardstick of arithmetic speed.
class Square {
 public:
  void operator()() {
    dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1, a_.data(), kSize, b_.data(), kSize, 0, c_.data(),
               kSize);
  }
  static constexpr dnnl_dim_t kSize = 1536;
  static constexpr double kFlops = 2.0 * kSize * kSize * kSize;

 private:
  std::vector<float> a_ = random_floats(kSize * kSize);
  std::vector<float> b_ = random_floats(kSize * kSize);
  std::vector<float> c_ = std::vector<float>(kSize * kSize);
};

template <class Function>
double seconds(Function&& function) {
  const auto start = Clock::now();
  function();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs the functions in turn; the best time of each. The first is what the benchmark reports.
template <class... Functions>
std::array<double, sizeof...(Functions)> compare(benchmark::State& state,
                                                 Functions&&... functions) {
  std::array<double, sizeof...(Functions)> best;
  best.fill(std::numeric_limits<double>::infinity());
  (functions(), ...);
  for (auto _ : state) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(20));  // OpenMP's threads keep spinning for a while
    const std::array<double, sizeof...(Functions)> times = {seconds(functions)...};
    state.SetIterationTime(times.front());
    for (std::size_t i = 0; i < times.size(); ++i) {
      best[i] = std::min(best[i], times[i]);
    }
  }
  return best;
}

AmxPackedWeights amx_packed_weights(const Model& model) {
  std::vector<Weight> weights;
  for (const auto& group : model.groups()) {
    weights.insert(weights.end(), group.begin(), group.end());
  }
  return AmxPackedWeights(weights);
}

void few_rows(benchmark::State& state, const Layer& layer, std::size_t copies, WeightFormat format,
              std::size_t rows, bool in_tiles = false) {
  const Model model(layer, copies, format);
  const std::optional<AmxPackedWeights> tiled =
      in_tiles ? std::optional(amx_packed_weights(model)) : std::nullopt;
  Step step(model, rows, false, DType::bf16, tiled ? &*tiled : nullptr);
  const auto bytes = static_cast<double>(model.bytes());
  // The copy that is multiplied: otherwise both copies would not stay in the cache.
  const auto memory = tiled ? std::as_bytes(tiled->memory()) : std::as_bytes(model.data().span());
  const auto [time, one_pass, by_product] = compare(
      state, step, [&] { read_memory(memory); }, [&] { read_by_product(model, memory); });
  const double peak = static_cast<double>(memory.size()) / one_pass;
  state.counters["GB/s"] = bytes / time * 1e-9;
  state.counters["read GB/s"] = peak * 1e-9;
  state.counters["share"] = bytes / time / peak;
  state.counters["share of reading by product"] = by_product / time;
}

void many_rows(benchmark::State& state, WeightFormat format, std::size_t rows, bool deterministic,
               DType compute) {
  const Model model(kLayer, kLayers, format);
  Step step(model, rows, deterministic, compute);
  Square square;
  const auto [time, reference] = compare(state, step, square);
  const double rate = model.flops_per_row() * static_cast<double>(rows) / time;
  const double peak = Square::kFlops / reference;
  state.counters["GFLOP/s"] = rate * 1e-9;
  state.counters["peak GFLOP/s"] = peak * 1e-9;
  state.counters["share"] = rate / peak;
}

template <class Body>
void add(const std::string& name, int iterations, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Iterations(iterations)
      ->Unit(benchmark::kMillisecond);
}

void add_few_rows() {
  using enum WeightFormat;
  for (const WeightFormat format : {f32, f16, bf16, int8, int4}) {
    for (const std::size_t rows : {1, 2, 4, 8, 16}) {
      add(std::string("layers/") + format_name(format) + "/rows:" + std::to_string(rows), 15,
          [=](benchmark::State& state) { few_rows(state, kLayer, kLayers, format, rows); });
    }
  }
  for (const Shape shape :
       {Shape{576, 1536}, Shape{1536, 576}, Shape{576, 576}, Shape{192, 576}, Shape{49152, 576}}) {
    const auto copies = static_cast<std::size_t>(135'000'000 / (shape.rows * shape.cols));
    const std::string name = std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
    for (const WeightFormat format : {bf16, int8, int4}) {
      add(name + "/" + format_name(format) + "/rows:1", 15,
          [=](benchmark::State& state) { few_rows(state, {{shape}}, copies, format, 1); });
    }
  }
}

/// Weights that stay in the last-level cache, in storage order and (CPUs with tiles) in tiles.
void add_small_layers() {
  for (const bool tiled : {false, true}) {
    for (const std::size_t rows : {1, 2, 3, 4, 8, 16, 25, 32, 64}) {
      add((tiled ? "small/tiled/rows:" : "small/bf16/rows:") + std::to_string(rows), 100,
          [=](benchmark::State& state) {
            few_rows(state, kSmallLayer, kSmallLayers, WeightFormat::bf16, rows, tiled);
          });
    }
  }
}

void add_many_rows() {
  using enum WeightFormat;
  for (const WeightFormat format : {f32, bf16, int8, int4}) {
    for (const std::size_t rows : {16, 32, 64, 128, 512}) {
      const std::string name = std::string(format_name(format)) + "/rows:" + std::to_string(rows);
      add("prefill/" + name, 5,
          [=](benchmark::State& state) { many_rows(state, format, rows, false, DType::bf16); });
      add("prefill_f32/" + name, 5,
          [=](benchmark::State& state) { many_rows(state, format, rows, false, DType::f32); });
      add("prefill_deterministic/" + name, 5,
          [=](benchmark::State& state) { many_rows(state, format, rows, true, DType::bf16); });
    }
  }
}

}  // namespace
}  // namespace winnow::ops

int main(int argc, char** argv) {
  winnow::ops::add_few_rows();
  winnow::ops::add_small_layers();
  winnow::ops::add_many_rows();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

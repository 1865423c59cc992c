// Decode attention compared with a plain sum over the same bytes: rows of uneven length whose pages
// are scattered in memory. Each iteration times both in turn, under the same load of the machine.
//   decode_attention_cpu_benchmark
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "kvcache/page_pool.h"
#include "ops/attention.h"
#include "ops/kv_page.h"
#include "read_memory.h"

namespace winnow::ops {
namespace {

constexpr int kWindow = 65;

/// Channels of a head, and query heads that share a KV head.
struct HeadShape {
  int dim;
  int group;
};
constexpr HeadShape kSmall{64, 3};   // SmolLM2 135M
constexpr HeadShape kLarge{128, 4};  // Llama 3.1 8B

/// Calls of decode_attention() over a memory of random pages, like the layers of a model.
class Layers {
 public:
  Layers(EntryFormat format, HeadShape heads, std::size_t layers, std::size_t rows, int entries)
      : heads_(heads), layout_(format, heads.dim), rows_(layers) {
    std::vector<std::vector<int>> counts(layers * rows);
    std::size_t pages = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      // two of three rows have only a window, as in a retrofitted model
      const int archived = i % 3 == 0 ? 3 * (entries - kWindow) : 0;
      counts[i] = {archived, kWindow};
      pages += pages_of(archived) + pages_of(kWindow);
    }
    pool_.emplace(layout_, pages * layout_.page_bytes());
    for (std::size_t i = 0; i < pages; ++i) {
      page_numbers_.push_back(pool_->allocate());
      std::memset(pool_->page(page_numbers_.back()), 0x3C, layout_.page_bytes());
    }
    Random random(1);
    for (std::size_t i = pages; i > 1; --i) {
      std::swap(page_numbers_[i - 1], page_numbers_[random.bits() % i]);
    }
    const auto width = static_cast<std::size_t>(heads.group * heads.dim);
    values_.resize(width, 0.01F);
    out_.resize(rows * width);
    const std::uint32_t* next = page_numbers_.data();
    const auto span = [&](int count) {
      const EntrySpan result{pool_->base(), next, count};
      next += pages_of(count);
      return result;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
      float* out = &out_[i % rows * width];
      const EntrySpan archive = span(counts[i][0]);
      rows_[i / rows].push_back({values_.data(), out, archive, span(counts[i][1])});
    }
  }

  void operator()() {
    const AttentionShape shape{heads_.dim, heads_.group, 0.125F, layout_, layout_};
    for (const auto& rows : rows_) {
      decode_attention(context_, shape, rows);
    }
  }

  [[nodiscard]] std::span<const std::byte> memory() const {
    return {pool_->base(), page_numbers_.size() * layout_.page_bytes()};
  }

 private:
  static std::size_t pages_of(int count) {
    return static_cast<std::size_t>(count + kPageEntries - 1) / kPageEntries;
  }

  HeadShape heads_;
  PageLayout layout_;
  std::optional<kvcache::PagePool> pool_;
  std::vector<std::uint32_t> page_numbers_;
  std::vector<float> values_;
  std::vector<float> out_;
  std::vector<std::vector<DecodeRow>> rows_;
  Workspace workspace_;
  Context context_{.workspace = &workspace_};
};

template <class Function>
double seconds(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double>& values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void attention(benchmark::State& state, EntryFormat format, HeadShape heads, std::size_t layers) {
  constexpr std::size_t kRows = 50;
  constexpr int kEntries = 224;  // of a row, on average
  Layers model(format, heads, layers, kRows, kEntries);
  const auto bytes = static_cast<double>(model.memory().size());
  std::vector<double> times;
  std::vector<double> readings;
  for (auto _ : state) {
    times.push_back(seconds(model));
    readings.push_back(seconds([&] { read_memory(model.memory()); }));
    state.SetIterationTime(times.back());
  }
  const double time = median(times);
  state.counters["MB"] = bytes * 1e-6;
  state.counters["GB/s"] = bytes / time * 1e-9;
  state.counters["read GB/s"] = bytes / median(readings) * 1e-9;
}

void add_benchmarks() {
  for (const EntryFormat format : kEntryFormats) {
    for (const HeadShape heads : {kSmall, kLarge}) {
      for (const std::size_t layers : {1, 16}) {
        const std::string name = fmt::format("{}/dim:{}/group:{}/layers:{}", format_name(format),
                                             heads.dim, heads.group, layers);
        benchmark::RegisterBenchmark(
            name.c_str(), [=](benchmark::State& state) { attention(state, format, heads, layers); })
            ->UseManualTime()
            ->Iterations(300)
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace winnow::ops

int main(int argc, char** argv) {
  winnow::ops::add_benchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}

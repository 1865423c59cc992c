// Prefill attention on the device: microseconds of whole calls and useful floating-point operations
// per second, 4 head_dim for each query head and entry that it sees.
//
//     prefill_attention_benchmark [--json FILE]
//
// Medians over the replays of a graph of calls, each with entries of its own: those of all calls
// are larger than the cache.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "base/cuda/device.h"
#include "cuda/benchmark_main.h"
#include "cuda/time_graph.h"
#include "ops/cuda/prefill/prefill_attention.h"

namespace winnow {
namespace {

using cuda::DeviceBuffer;

constexpr int kHeads = 8;
constexpr int kHuge = std::numeric_limits<int>::max();

struct Case {
  const char* name;
  int head_dim;
  int group;
  int tokens;
  int past;  // tokens before the chunk
  int window;
  ops::EntryFormat format;
  bool archive;  // one in eight tokens on average, unless the window covers everything
};

template <class T>
DeviceBuffer<T> upload(const std::vector<T>& x) {
  return DeviceBuffer<T>(std::span<const T>(x));
}

/// The entries of a call.
struct Entries {
  DeviceBuffer<std::byte> band_keys;
  DeviceBuffer<std::byte> band_values;
  DeviceBuffer<std::byte> pool;
};

/// Calls in a graph, at least four, that have entries of `bytes` each.
int calls_of(std::size_t bytes) {
  constexpr std::size_t kMoreThanTheCache = std::size_t{160} << 20;
  constexpr std::size_t kMost = 64;
  return static_cast<int>(std::clamp(kMoreThanTheCache / bytes + 1, std::size_t{4}, kMost));
}

/// Codes that are numbers near one in every format, with both signs.
std::vector<std::byte> draw_codes(std::size_t bytes, ops::EntryFormat format) {
  std::mt19937_64 random(2);
  const bool wide = format == ops::EntryFormat::bf16;
  const std::uint64_t keep = wide ? 0x807F807F807F807FU : 0x8F8F8F8F8F8F8F8FU;
  const std::uint64_t set = wide ? 0x3F003F003F003F00U : 0x3030303030303030U;
  std::vector<std::byte> codes((bytes + 7) / 8 * 8);
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    const std::uint64_t x = (random() & keep) | set;
    std::memcpy(&codes[i], &x, 8);
  }
  return codes;
}

/// Heads keep different parts of the tokens that leave their windows, an eighth on average.
std::vector<std::int32_t> archive_counts(const Case& c) {
  constexpr double kKept[kHeads] = {0.02, 0.05, 0.08, 0.10, 0.13, 0.16, 0.20, 0.26};
  std::vector<std::int32_t> counts;
  for (const double kept : kKept) {
    for (int t = 0; t < c.tokens; ++t) {
      const int left = std::max(0, c.past + t - c.window);
      counts.push_back(c.archive ? static_cast<std::int32_t>(kept * left) : 0);
    }
  }
  return counts;
}

nlohmann::json run_case(const Case& c, ops::cuda::PrefillKernel kernel,
                        const cuda::Stream& stream) {
  const ops::cuda::DevicePageLayout layout(c.format, c.head_dim);
  const int lead = std::min(c.past, c.window == kHuge ? c.past : c.window + 1);
  const int band = lead + c.tokens;
  const std::vector<std::int32_t> counts = archive_counts(c);
  const int most = *std::ranges::max_element(counts);
  const std::size_t stride =
      static_cast<std::size_t>((most + ops::kPageEntries - 1) / ops::kPageEntries);
  std::vector<std::uint32_t> order(stride * kHeads + 1);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::shuffle(order, std::mt19937(1));

  const auto rows = static_cast<std::size_t>(kHeads) * static_cast<std::size_t>(band);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  const std::size_t width =
      static_cast<std::size_t>(c.tokens) * kHeads * static_cast<std::size_t>(c.group) * dim;
  const auto codes = draw_codes(rows * layout.row_bytes(), c.format);
  const auto pages = draw_codes(order.size() * layout.page_bytes(), c.format);
  const int calls = calls_of(2 * codes.size() + pages.size());
  std::vector<Entries> entries;
  for (int i = 0; i < calls; ++i) {
    entries.push_back({upload(codes), upload(codes), upload(pages)});
  }
  const auto scales = upload(std::vector<bf16>(2 * rows, to_bf16(1.0F)));
  const auto query_codes = draw_codes(width * sizeof(bf16), ops::EntryFormat::bf16);
  const auto query = upload(query_codes);
  const DeviceBuffer<bf16> out(width);
  const auto table = upload(order);
  const auto device_counts = upload(counts);
  const DeviceBuffer<std::byte> scratch(
      ops::cuda::prefill_scratch_bytes(layout, kHeads, band, stride));
  ops::cuda::PrefillChunk chunk{.query = reinterpret_cast<const bf16*>(query.data()),
                                .out = out.data(),
                                .tokens = c.tokens,
                                .lead = lead,
                                .window = c.window,
                                .band_scales = scales.data(),
                                .band_stride = band,
                                .archive_pages = table.data(),
                                .archive_stride = stride,
                                .archive_counts = device_counts.data(),
                                .scratch = scratch.data()};
  const double ms = time_graph(stream, [&] {
    for (const Entries& own : entries) {
      chunk.band_keys = own.band_keys.data();
      chunk.band_values = own.band_values.data();
      chunk.pool = own.pool.data();
      ops::cuda::prefill_attention(layout, kHeads, c.group, 0.125F, chunk, stream.get(), kernel);
    }
  });
  const double seconds = ms * 1e-3 / calls;
  double pairs = std::accumulate(counts.begin(), counts.end(), 0.0);
  for (int t = 0; t < c.tokens; ++t) {
    pairs += kHeads * (std::min<double>(lead + t, c.window) + 1.0);
  }
  const double operations = 4.0 * c.head_dim * pairs * c.group;
  const char* const name = kernel == ops::cuda::PrefillKernel::best       ? "best"
                           : kernel == ops::cuda::PrefillKernel::gathered ? "gathered"
                                                                          : "portable";
  fmt::print("{:44} {:8} {:>9.1f} {:>9.1f} {:>7.0f}\n", c.name, name, operations * 1e-9,
             seconds * 1e6, operations / seconds * 1e-12);
  return {{"case", c.name},
          {"kernel", name},
          {"format", ops::format_name(c.format)},
          {"head_dim", c.head_dim},
          {"group", c.group},
          {"tokens", c.tokens},
          {"past", c.past},
          {"window", c.window},
          {"operations", operations},
          {"microseconds", seconds * 1e6}};
}

constexpr Case kCases[] = {
    {"Llama-3.2-1B, 8K, DMS, fp8", 64, 4, 8192, 0, 256, ops::EntryFormat::f8e4m3, true},
    {"Llama-3.2-1B, 8K, DMS, int8", 64, 4, 8192, 0, 256, ops::EntryFormat::i8, true},
    {"Llama-3.2-1B, 8K, DMS, q4", 64, 4, 8192, 0, 256, ops::EntryFormat::q4, true},
    {"Llama-3.2-1B, 8K, DMS, bf16", 64, 4, 8192, 0, 256, ops::EntryFormat::bf16, true},
    {"Qwen3-8B, 8K, DMS, fp8", 128, 4, 8192, 0, 256, ops::EntryFormat::f8e4m3, true},
    {"Qwen3-8B, 8K, DMS, int8", 128, 4, 8192, 0, 256, ops::EntryFormat::i8, true},
    {"Qwen3-8B, 8K, DMS, bf16", 128, 4, 8192, 0, 256, ops::EntryFormat::bf16, true},
    {"Qwen3-8B, 2K after 30K, DMS, fp8", 128, 4, 2048, 30720, 256, ops::EntryFormat::f8e4m3, true},
    {"D 64, 8K, dense, bf16", 64, 4, 8192, 0, kHuge, ops::EntryFormat::bf16, false},
    {"D 80, 8K, dense, bf16", 80, 4, 8192, 0, kHuge, ops::EntryFormat::bf16, false},
    {"D 96, 8K, dense, bf16", 96, 4, 8192, 0, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 8K, dense, bf16", 128, 4, 8192, 0, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 8K, dense, fp8", 128, 4, 8192, 0, kHuge, ops::EntryFormat::f8e4m3, false},
    {"D 128, 4 after 1K, dense, bf16", 128, 4, 4, 1024, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 4 after 8K, dense, bf16", 128, 4, 4, 8192, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 4 after 32K, dense, bf16", 128, 4, 4, 32768, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 4 after 8K, DMS, fp8", 128, 4, 4, 8192, 256, ops::EntryFormat::f8e4m3, true},
    {"D 128, 32 after 8K, dense, bf16", 128, 4, 32, 8192, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 64 after 8K, dense, bf16", 128, 4, 64, 8192, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 128 after 8K, dense, bf16", 128, 4, 128, 8192, kHuge, ops::EntryFormat::bf16, false},
    {"D 128, 128 after 8K, DMS, fp8", 128, 4, 128, 8192, 256, ops::EntryFormat::f8e4m3, true},
    {"D 64, 4 after 8K, dense, bf16", 64, 4, 4, 8192, kHuge, ops::EntryFormat::bf16, false},
    {"D 64, 128 after 8K, dense, bf16", 64, 4, 128, 8192, kHuge, ops::EntryFormat::bf16, false},
    {"D 64, 4 after 8K, DMS, q4", 64, 4, 4, 8192, 256, ops::EntryFormat::q4, true},
};

nlohmann::json run() {
  const cuda::Stream stream;
  fmt::print("{}\n\n{:44} {:8} {:>9} {:>9} {:>7}\n", device_name(), "", "kernel", "GFLOP", "us",
             "TFLOP/s");
  nlohmann::json results = nlohmann::json::array();
  for (const Case& c : kCases) {
    for (const auto kernel : {ops::cuda::PrefillKernel::best, ops::cuda::PrefillKernel::gathered,
                              ops::cuda::PrefillKernel::portable}) {
      results.push_back(run_case(c, kernel, stream));
    }
  }
  return {{"device", device_name()}, {"results", results}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

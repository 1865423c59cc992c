// Decode attention on the device, compared with the bandwidth of simply reading as much memory, in
// one run.
//
//     decode_attention_benchmark [--json FILE]
//
// Each case draws uneven rows, lays their pages in random order, and takes the median over the
// replays of a graph of launches, one after another like the layers of a model, over memory larger
// than the cache. Launches are programmatic: one begins while the previous one ends.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/read_bandwidth.h"
#include "base/error.h"
#include "cuda/benchmark_main.h"
#include "cuda/time_graph.h"
#include "ops/cuda/decode/decode_attention.h"

namespace winnow {
namespace {

using cuda::DeviceBuffer;

constexpr std::size_t kMemory = std::size_t{3}
                                << 30;  // read one after another: many times the cache

/// Bytes per second of reading kMemory bytes.
double read_bandwidth(const cuda::Stream& stream, const DeviceBuffer<std::byte>& memory) {
  const DeviceBuffer<unsigned> out(1);
  const double ms = time_graph(stream, [&] {
    for (int i = 0; i < 4; ++i) {
      cuda::launch_read({memory.data(), kMemory}, out.data(), stream.get());
    }
  });
  return 4.0 * kMemory / (ms * 1e-3);
}

struct Case {
  const char* name;
  ops::EntryFormat format;
  int head_dim;
  int group;
  int batch;  // sequences, of 8 KV heads
  int least;  // live entries per row, drawn evenly from [least, most]
  int most;
  int window = 257;  // entries of each row; 0: all are in the archive
  int padding = 0;   // sequences without entries after the others
};

struct Tables {
  std::vector<std::int32_t> archive_counts;
  std::vector<std::uint32_t> archive_pages;
  std::vector<std::uint32_t> window_pages;
  std::size_t archive_stride;
  std::size_t window_stride;
  std::size_t pages;
  std::size_t entries;
};

constexpr int kHeads = 8;
constexpr std::int32_t kLength = 8192;

Tables draw_tables(const Case& c) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> live(c.least, c.most);
  Tables t{};
  t.archive_stride = static_cast<std::size_t>(c.most / ops::kPageEntries + 1);
  t.window_stride = static_cast<std::size_t>(c.window / ops::kPageEntries + 1);
  for (int row = 0; row < c.batch * kHeads; ++row) {
    t.archive_counts.push_back(live(random) - c.window);
    t.entries += static_cast<std::size_t>(t.archive_counts.back() + c.window);
  }
  const auto pages_of = [](int entries) {
    return static_cast<std::size_t>((entries + ops::kPageEntries - 1) / ops::kPageEntries);
  };
  for (const int count : t.archive_counts) {
    t.pages += pages_of(count) + pages_of(c.window);
  }
  std::vector<std::uint32_t> order(t.pages);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::shuffle(order, random);
  t.archive_pages.resize(t.archive_stride * t.archive_counts.size());
  t.window_pages.resize(t.window_stride * t.archive_counts.size());
  std::size_t next = 0;
  for (std::size_t row = 0; row < t.archive_counts.size(); ++row) {
    for (std::size_t p = 0; p < pages_of(t.archive_counts[row]); ++p) {
      t.archive_pages[row * t.archive_stride + p] = order[next++];
    }
    for (std::size_t p = 0; p < pages_of(c.window); ++p) {
      t.window_pages[row * t.window_stride + p] = order[next++];
    }
  }
  return t;
}

/// Codes that are finite numbers in every format (exponents in mid-range), scales near one.
std::vector<std::byte> draw_memory() {
  std::mt19937_64 random(2);
  std::vector<std::byte> memory(kMemory);
  for (std::size_t i = 0; i < kMemory; i += 8) {
    const std::uint64_t codes = (random() & 0xBF8FBF8FBF8FBF8FU) | 0x3030303030303030U;
    std::memcpy(&memory[i], &codes, 8);
  }
  return memory;
}

nlohmann::json run_case(const Case& c, const cuda::Stream& stream,
                        const DeviceBuffer<std::byte>& memory, double bandwidth) {
  const Tables tables = draw_tables(c);
  const ops::cuda::DevicePageLayout layout(c.format, c.head_dim);
  const DeviceBuffer<std::int32_t> archive_counts(tables.archive_counts);
  std::vector<std::int32_t> all_slots(static_cast<std::size_t>(c.batch));
  std::iota(all_slots.begin(), all_slots.end(), 0);
  all_slots.resize(all_slots.size() + static_cast<std::size_t>(c.padding), -1);
  const int batch = c.batch + c.padding;
  const DeviceBuffer<std::int32_t> slots(all_slots);
  const DeviceBuffer<std::int32_t> lengths(std::vector<std::int32_t>(all_slots.size(), kLength));
  const DeviceBuffer<std::uint32_t> archive_pages(tables.archive_pages);
  const DeviceBuffer<std::uint32_t> window_pages(tables.window_pages);
  const std::size_t pool_bytes = tables.pages * layout.page_bytes();
  require(pool_bytes <= kMemory, "{}: {} bytes of pages, room for {}", c.name, pool_bytes, kMemory);
  const std::size_t copies = kMemory / pool_bytes;
  const std::size_t launches = std::clamp<std::size_t>(copies, 16, 64);
  const auto entries_of = [&](std::size_t launch) {
    return ops::cuda::DecodeEntries{.pool = memory.data() + launch % copies * pool_bytes,
                                    .archive_pages = archive_pages.data(),
                                    .archive_stride = tables.archive_stride,
                                    .archive_counts = archive_counts.data(),
                                    .window_pages = window_pages.data(),
                                    .window_stride = tables.window_stride,
                                    .lengths = lengths.data(),
                                    .window = c.window - 1,
                                    .slots = slots.data(),
                                    .kv_heads = kHeads};
  };
  const auto width = static_cast<std::size_t>(batch * kHeads * c.group * c.head_dim);
  const DeviceBuffer<float> query(std::vector<float>(width, 0.01F));
  const DeviceBuffer<bf16> out(width);
  ops::cuda::DecodePlan plan(layout, c.group, kHeads, batch, 1);
  plan.make(entries_of(0), 0, batch, stream.get());
  const double ms = time_graph(stream, [&] {
    for (std::size_t i = 0; i < launches; ++i) {
      plan.attend(0, entries_of(i), 0.125F, query.data(), out.data(), stream.get());
    }
  });
  const double seconds = ms * 1e-3 / static_cast<double>(launches);
  const double bytes = static_cast<double>(tables.entries * layout.entry_bytes());
  const double share = bytes / seconds / bandwidth;
  fmt::print("{:34} {:>9.1f} {:>9.2f} {:>8.0f} {:>6.0f} %\n", c.name, bytes * 1e-6, seconds * 1e6,
             bytes / seconds * 1e-9, 100 * share);
  return {{"case", c.name},
          {"format", ops::format_name(c.format)},
          {"head_dim", c.head_dim},
          {"group", c.group},
          {"sequences", c.batch},
          {"padding", c.padding},
          {"entries", tables.entries},
          {"entry_bytes", layout.entry_bytes()},
          {"microseconds", seconds * 1e6},
          {"share_of_read_bandwidth", share}};
}

constexpr Case kCases[] = {
    {"64 sequences, D 64, fp8", ops::EntryFormat::f8e4m3, 64, 4, 64, 1024, 4096},
    {"64 sequences, D 128, fp8", ops::EntryFormat::f8e4m3, 128, 4, 64, 1024, 4096},
    {"64 sequences, D 64, int8", ops::EntryFormat::i8, 64, 4, 64, 1024, 4096},
    {"64 sequences, D 128, int8", ops::EntryFormat::i8, 128, 4, 64, 1024, 4096},
    {"64 sequences, D 64, q4", ops::EntryFormat::q4, 64, 4, 64, 1024, 4096},
    {"64 sequences, D 128, q4", ops::EntryFormat::q4, 128, 4, 64, 1024, 4096},
    {"64 sequences, D 64, bf16", ops::EntryFormat::bf16, 64, 4, 64, 1024, 4096},
    {"64 sequences, D 128, bf16", ops::EntryFormat::bf16, 128, 4, 64, 1024, 4096},
    {"860 sequences, dense, fp8", ops::EntryFormat::f8e4m3, 128, 4, 860, 1152, 1152, 0},
    {"the same, padded to 896", ops::EntryFormat::f8e4m3, 128, 4, 860, 1152, 1152, 0, 36},
    {"1000 sequences, CR 8, fp8", ops::EntryFormat::f8e4m3, 128, 4, 1000, 144, 272, 65},
    {"the same, padded to 1024", ops::EntryFormat::f8e4m3, 128, 4, 1000, 144, 272, 65, 24},
    {"Llama-3.2-1B at 8K, c = 1, fp8", ops::EntryFormat::f8e4m3, 64, 4, 1, 1000, 2072},
    {"Llama-3.2-1B at 8K, c = 8, fp8", ops::EntryFormat::f8e4m3, 64, 4, 8, 1000, 2072},
    {"Llama-3.2-1B at 8K, c = 1, q4", ops::EntryFormat::q4, 64, 4, 1, 1000, 2072},
    {"Llama-3.2-1B at 8K, c = 8, q4", ops::EntryFormat::q4, 64, 4, 8, 1000, 2072},
    {"Qwen3-8B at 8K, c = 1, fp8", ops::EntryFormat::f8e4m3, 128, 4, 1, 1000, 2072},
    {"Qwen3-8B at 8K, c = 8, fp8", ops::EntryFormat::f8e4m3, 128, 4, 8, 1000, 2072},
    {"Qwen3-8B at 8K, c = 1, q4", ops::EntryFormat::q4, 128, 4, 1, 1000, 2072},
    {"Qwen3-8B at 8K, c = 8, q4", ops::EntryFormat::q4, 128, 4, 8, 1000, 2072},
    {"Llama-3.2-1B at 128K, c = 1, fp8", ops::EntryFormat::f8e4m3, 64, 4, 1, 16000, 33000},
    {"Llama-3.2-1B at 128K, c = 8, fp8", ops::EntryFormat::f8e4m3, 64, 4, 8, 16000, 33000},
};

nlohmann::json run() {
  const cuda::Stream stream;
  const DeviceBuffer<std::byte> memory(draw_memory());
  const double bandwidth = read_bandwidth(stream, memory);
  fmt::print("{}, reading {:.0f} GB/s\n\n{:34} {:>9} {:>9} {:>8} {:>8}\n", device_name(),
             bandwidth * 1e-9, "", "MB live", "us", "GB/s", "share");
  nlohmann::json results = nlohmann::json::array();
  for (const Case& c : kCases) {
    results.push_back(run_case(c, stream, memory, bandwidth));
  }
  return {{"device", device_name()}, {"read_bytes_per_second", bandwidth}, {"results", results}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  return winnow::benchmark_main(argc, argv, winnow::run);
}

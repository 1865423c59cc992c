// Decode attention on the device: one new token per sequence over the sequence's live entries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "ops/cuda/pages/kv_page.h"

namespace winnow::ops::cuda {

/// The entries of one layer, in device memory. Batch element b is the sequence in slot slots[b].
/// Row r = b * kv_heads + h is its KV head h, whose row in the tables below, its state row, is
/// slots[b] * table_heads + h. The entry of token t is in slot t % (window + 1) of its window's
/// pages; archived entries fill the slots of the archive's pages in order. Slots without an entry
/// may contain anything.
struct DecodeEntries {
  const std::byte* pool = nullptr;               // page p is at pool + p * page_bytes
  const std::uint32_t* archive_pages = nullptr;  // [state rows, archive_stride]
  std::size_t archive_stride = 0;
  const std::int32_t* archive_counts = nullptr;  // [state rows] entries
  const std::uint32_t* window_pages = nullptr;   // [state rows, window_stride]
  std::size_t window_stride = 0;
  const std::int32_t* lengths = nullptr;  // [slots] tokens of each sequence before this step
  int window = -1;                        // -1: no window, tokens go directly to the archive
  const std::int32_t* rings = nullptr;    // [slots] each sequence's window + 1, or null: the same
  /// For make(): [layers] window + 1 of layers with a window of their own, 0: as above. Null:
  /// no layer has one.
  const std::int32_t* reaches = nullptr;
  /// Layers' own windows are chunks: a token sees the tokens since the last multiple of window + 1.
  bool chunked = false;
  const std::int32_t* slots = nullptr;  // [batch]; negative ones have no entries and come last
  int kv_heads = 0;
  /// For layers with head counts of their own (general attention only): KV heads that the tables
  /// have rows for, and query heads per KV head. 0: kv_heads, and the group passed at construction.
  int table_heads = 0;
  int group = 0;
  /// Whether kernels between make() and attend() do not touch what attend() reads early. If false,
  /// attend() begins when they are complete.
  bool settled = true;
  /// One more entry per row, outside all pages and in float (DMC's open entry), or null: its value
  /// [state rows, head_dim], and the queries' products with its key [batch, kv_heads * group]. Both
  /// are read after attend()'s predecessors are complete.
  const float* open_values = nullptr;
  const float* open_scores = nullptr;
};

/// Decode attention of a step, all layers. The rows' pages (window, then archive) are concatenated
/// and divided into equal runs, one per warp, so that heads of very different lengths cost only in
/// proportion to their entries. A second kernel reduces the parts of rows that several warps have
/// (split-K). The division is computed on the device, once per step.
///
/// Order of a step: make(); for each layer, the kernel that handles the new token (appends its
/// entry, writes the query), then attend(); last, lengths advance. So `lengths` are the values
/// before the step throughout, while archive_counts advance layer by layer, by at most one per row.
///
/// Kernels are captured in graphs with programmatic dependent launch. Before its predecessor is
/// complete, attend() already reads the plan, the tables, and all pages except the two
/// that the new token may modify: the window page of its slot and the last planned archive page.
/// Therefore the kernel directly before the first attend() must call release_successor() after
/// wait_for_predecessor(): then all before it are complete, as each ends after its predecessor.
/// Kernels between make() and that one may release first. Between two calls of attend() no kernel
/// need wait before it releases: attend() does.
class DecodePlan {
 public:
  /// For up to `most_batch` sequences of kv_heads heads with `group` query heads each. Requires
  /// has_own_kernels().
  DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch, int layers);

  /// Pages in the last planned step that has finished, averaged over the layers. Both count whole
  /// tiles, so they round up to tile_pages() pages per row.
  struct RowPages {
    double longest = 0.0;  // of one row
    double all = 0.0;      // of all rows together
  };
  [[nodiscard]] RowPages row_pages() const;

  /// Plans a step of `batch` sequences, each row for one entry more than it has: pages for
  /// min(length + 1, window + 1) entries of the window, and for archive_count + 1 entries of the
  /// archive if the window is full (else for archive_count). Layer l's counts are at
  /// first_layer.archive_counts + l * layer_counts; pages are not accessed.
  void make(const DecodeEntries& first_layer, std::size_t layer_counts, int batch,
            cudaStream_t stream);

  /// out = softmax(scale * query . keys) values. If entries are rotated (q4), queries must already
  /// be rotated, and outputs are rotated back. query and out [batch, kv_heads * group *
  /// head_dim]. Planned pages that hold no entry are not read, nor are their numbers. A row
  /// without entries gets zeros. Reads the live entries once. Sums and exponentials are in float,
  /// and operands are split into two 16-bit numbers (high and low part), so that only the rounding
  /// of the entries and of bf16 output matters.
  void attend(int layer, const DecodeEntries& entries, float scale, const float* query, bf16* out,
              cudaStream_t stream) const;
  void attend(int layer, const DecodeEntries& entries, float scale, const float* query, float* out,
              cudaStream_t stream) const;

  /// A row's pages: window pages, then archive pages. A tile is one or two of them (the last one of
  /// a row may lack its second page); `begin` counts the tiles of the rows before it. The rows of
  /// negative slots have no tiles, and cost no warp anything; all others have at least one.
  struct alignas(16) Row {
    std::int32_t begin;
    std::int32_t tiles;
    std::int32_t window_entries;
    std::int32_t archive_pages;
    std::int32_t state_row;       // -1: there is none
    std::int32_t new_token_page;  // the window page with the new token's slot; -1: no window
    std::int32_t first_run;       // the first run that holds tiles of the row
    std::int32_t runs;
  };
  /// Tiles [begin, begin + count) of all rows' tiles; the first of them belongs to row `row`.
  struct alignas(16) Run {
    std::int32_t row;
    std::int32_t begin;
    std::int32_t count;
  };
  /// A layer's plan, as kernels see it.
  struct View {
    int batch_rows;
    int workers;  // warps, in full blocks: one run each
    Row* rows;    // [batch_rows]
    Run* runs;    // [workers]
    float*
        partial_out;  // [workers + batch_rows], each [head_dim / 16, group, 4] quads: part_place()
    float2* partial_sums;  // [workers + batch_rows, group]: reference, sum of exponentials
  };
  [[nodiscard]] View view(int layer) const;
  /// The host's report on a planned layer.
  struct Report {
    std::int32_t tiles;
    std::int32_t longest;  // largest number of tiles of a row
  };

 private:
  template <class Out>
  void attend_to(int layer, const DecodeEntries& entries, float scale, const float* query, Out* out,
                 cudaStream_t stream) const;
  [[nodiscard]] std::size_t most_rows() const;

  DevicePageLayout layout_;
  int group_;
  int kv_heads_;
  int most_batch_;
  int layers_;
  int batch_ = 0;
  int workers_;
  winnow::cuda::PinnedBuffer<Report> reports_;  // [layers]
  winnow::cuda::DeviceBuffer<Row> rows_;        // [layers, most rows]
  winnow::cuda::DeviceBuffer<Run> runs_;        // [layers, workers]
  winnow::cuda::DeviceBuffer<float> partial_out_;
  winnow::cuda::DeviceBuffer<float2> partial_sums_;
};

}  // namespace winnow::ops::cuda

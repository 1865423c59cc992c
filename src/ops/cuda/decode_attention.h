// Decode attention on the device: one new token per sequence over the sequence's live entries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "ops/cuda/kv_page.h"

namespace winnow::ops::cuda {

/// The entries of one layer, in device memory. Batch row b is sequence slot slots[b]; row
/// r = b * kv_heads + h reads row slots[b] * kv_heads + h of the tables below ("state row"). The
/// entry of token t lies in slot t % (window + 1) of its window's pages; archived entries fill the
/// slots of the archive's pages in order. Slots that hold no entry may hold anything.
struct DecodeEntries {
  const std::byte* pool = nullptr;               // page p lies at pool + p * page_bytes
  const std::uint32_t* archive_pages = nullptr;  // [state rows, archive_stride]
  std::size_t archive_stride = 0;
  const std::int32_t* archive_counts = nullptr;  // [state rows] entries
  const std::uint32_t* window_pages = nullptr;   // [state rows, window_stride]
  std::size_t window_stride = 0;
  const std::int32_t* lengths = nullptr;  // [slots] tokens of each sequence before this step
  int window = -1;                        // -1: no window, tokens go to the archive at once
  const std::int32_t* rings = nullptr;    // [slots] each sequence's window + 1, or null: the same
  const std::int32_t* slots = nullptr;    // [batch]; a negative one has no entries
  int kv_heads = 0;
  /// Whether the kernels between make() and attend() leave alone what attend() reads early. If not,
  /// it begins when they are complete.
  bool settled = true;
};

struct DecodeArguments;

/// Decode attention of a step, all layers. The rows' pages (of the window, then of the archive),
/// one row after another, are cut into equal runs, one per warp, so that heads of very different
/// lengths cost what their entries cost. The cut is made on the device, once per step.
///
/// A plan is of the entries that the step's tokens find and leave where they are: all of the
/// archive, and those of the window but the one in slot length % (window + 1) of a full window,
/// whose place the token takes. So a layer's token may be taken while its runs are read. What the
/// token itself adds to a row, attention to it and to the entry that leaves, can be one more part
/// of the row, written by who takes the token (`takes_tokens`; token_part_of() in
/// decode_attention_kernels.h).
///
/// Order of a step: make(); for each layer, attend(), or the kernel that takes the tokens and
/// attends (arguments()), and merge(); last, lengths advance. `lengths` are those before the step
/// throughout.
///
/// What runs is captured in graphs and launched as programmatic. Before its predecessor is
/// complete, attention already reads the plan, `slots`, the tables and all pages planned: what the
/// kernels before make() and make() itself have left. Therefore of the kernels between make() and
/// the first attention at least one must let its successor begin only when it has waited for its
/// predecessor (release_successor() after wait_for_predecessor()): what begins after it may rely on
/// make(). No kernel after make() may write what is read early.
class DecodePlan {
 public:
  /// For up to `most_batch` sequences of kv_heads heads with `group` query heads each, 1 to 8.
  DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch, int layers);
  /// The same for a kernel that takes the tokens as well, a block of kDecodeWarps per row in front
  /// of the runs', and of which the device holds `resident` warps at once.
  DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch, int layers,
             int resident);

  /// Plans a step of `batch` sequences. Layer l's counts lie at first_layer.archive_counts + l *
  /// layer_counts; pages are not looked at.
  void make(const DecodeEntries& first_layer, std::size_t layer_counts, int batch,
            cudaStream_t stream);

  /// out = softmax(scale * query . keys) values over what is planned; where entries are rotated
  /// (q4), queries come rotated and outputs are turned back. query and out [batch, kv_heads * group
  /// * head_dim]. A row without entries gives zeros. Reads the entries once; sums and exponentials
  /// are in float, and operands keep twice 16 bits (high and low part), so that only the rounding
  /// of the entries themselves shows, and that of bf16 output.
  void attend(int layer, const DecodeEntries& entries, float scale, const float* query, bf16* out,
              cudaStream_t stream) const;
  void attend(int layer, const DecodeEntries& entries, float scale, const float* query, float* out,
              cudaStream_t stream) const;

  /// For a kernel in attend()'s place, and what follows it. The batch must not be empty.
  [[nodiscard]] DecodeArguments arguments(int layer, const DecodeEntries& entries, float scale,
                                          bf16* out) const;
  void merge(const DecodeArguments& arguments, cudaStream_t stream) const;
  [[nodiscard]] int batch() const { return batch_; }

  /// A row's pages: window pages, then archive pages. A tile is one or two of them (the last one of
  /// a row may lack its second page); `begin` counts the tiles of the rows before it.
  struct alignas(16) Row {
    std::int32_t begin;
    std::int32_t tiles;
    std::int32_t window_entries;
    std::int32_t archive_entries;
    std::int32_t state_row;  // -1: there is none
    std::int32_t leaving;    // the slot of a full window that the token takes, else -1
    std::int32_t first_run;  // that holds tiles of the row
    std::int32_t runs;
    // For who takes the token:
    std::int32_t length;
    std::uint32_t leaving_page;  // that holds the slot `leaving`
  };
  /// Tiles [begin, begin + count) of all rows', the first of them row `row`'s.
  struct alignas(16) Run {
    std::int32_t row;
    std::int32_t begin;
    std::int32_t count;
  };
  /// A page of a run.
  struct alignas(8) Page {
    std::uint32_t number;
    std::uint32_t tag;  // its visible entries, and whether the row ends with its tile
  };
  /// Pages of a run that its plan names.
  static constexpr int kFirstPages = 8;
  /// What the kernels see of a layer's plan.
  struct View {
    int batch_rows;
    int workers;           // warps, of full blocks: one run each
    bool takes_tokens;     // rows have one part more than runs
    Row* rows;             // [batch_rows]
    Run* runs;             // [workers]
    Page* first_pages;     // [workers, kFirstPages], with takes_tokens; else null
    float* partial_out;    // [workers + 2 batch_rows, group, head_dim]
    float2* partial_sums;  // [workers + 2 batch_rows, group]: reference, sum of exponentials
  };
  [[nodiscard]] View view(int layer) const;

 private:
  template <class Out>
  void attend_to(int layer, const DecodeEntries& entries, float scale, const float* query, Out* out,
                 cudaStream_t stream) const;
  template <class Out>
  [[nodiscard]] DecodeArguments arguments_of(int layer, const DecodeEntries& entries, float scale,
                                             const float* query, Out* out) const;
  DecodePlan(const DevicePageLayout& layout, int group, int kv_heads, int most_batch, int layers,
             int resident, bool takes_tokens);
  [[nodiscard]] std::size_t most_rows() const;
  [[nodiscard]] int workers() const;

  DevicePageLayout layout_;
  int group_;
  int kv_heads_;
  int most_batch_;
  int layers_;
  int batch_ = 0;
  int resident_;
  bool takes_tokens_;
  winnow::cuda::DeviceBuffer<Row> rows_;          // [layers, most rows]
  winnow::cuda::DeviceBuffer<Run> runs_;          // [layers, resident]
  winnow::cuda::DeviceBuffer<Page> first_pages_;  // [layers, resident, kFirstPages]
  winnow::cuda::DeviceBuffer<float> partial_out_;
  winnow::cuda::DeviceBuffer<float2> partial_sums_;
};

}  // namespace winnow::ops::cuda

// The device's cache as kernels see it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace winnow::kvcache::cuda {

/// Pointers to device memory. A row is one KV head of one layer of one sequence: row(layer, slot,
/// head). Tables have rows for the most KV heads of any layer; a row stays empty if its layer has
/// fewer heads. Archive and window are lists of page numbers; page p is at pool + p *
/// page_bytes.
struct CacheView {
  int layers = 0;
  int slots = 0;     // capacity in sequences
  int kv_heads = 0;  // the most of any layer
  int head_dim = 0;
  const std::int32_t* layer_heads = nullptr;  // [layers] KV heads; null: all have kv_heads

  // The rule (docs/method.md): the last `ring` entries are always kept. An entry that leaves
  // them is archived unless it was marked (DMS), or if it is one of the first `sinks` (streaming).
  // 0: entries are archived at once.
  int ring = 0;
  /// [layers] entries in a layer's sliding window (CacheShape), which drops what leaves it; 0: the
  /// layer follows the rule. Null: no layer has a sliding window. Kernels of one layer need not
  /// read it: DeviceCache::view(layer) is the layer's own view.
  const std::int32_t* reaches = nullptr;
  /// In a layer's own view: the window is a chunk of chunked attention. It is emptied at each
  /// position that is a multiple of `ring`, but keeps its pages.
  bool chunked = false;
  int shift = 1;  // the decision at token t concerns key t - shift
  /// Rules with a budget: values that follow from each sequence's limits. Null for other rules.
  const std::int32_t* rings = nullptr;    // [slots] streaming: instead of `ring`
  const std::int32_t* sinks = nullptr;    // [slots] streaming
  const std::int32_t* budgets = nullptr;  // [slots] entries per head
  const std::int32_t* prompts = nullptr;  // [slots] Quest: tokens whose queries see everything
  const std::int32_t* spared = nullptr;   // [2, slots] Spared: first and newest tokens that stay

  std::byte* pool = nullptr;
  std::size_t page_bytes = 0;
  std::uint32_t* free_pages = nullptr;  // a stack of page numbers
  std::int32_t* free_count = nullptr;   // [1] its height
  /// [pages] the number of sequences that hold a page besides the first one. Only full pages of
  /// append-only archives are shared. They never change, so no copy-on-write is needed.
  std::uint32_t* sharers = nullptr;

  std::uint32_t* archive_pages = nullptr;  // [rows, archive_stride]
  std::int32_t* archive_counts = nullptr;  // [rows] entries
  std::uint32_t* window_pages = nullptr;   // [rows, window_stride]; position p in slot p % ring
  std::uint32_t* marks = nullptr;          // [rows, mark_words] a bit per slot of the ring
  std::int32_t* lengths = nullptr;         // [slots] tokens that all layers have taken
  /// [slots] DMS, DMC: the most pages that the archives of a sequence take for its next token, in
  /// page-locked host memory. Written together with `lengths`.
  std::int32_t* next_pages = nullptr;
  std::size_t archive_stride = 0;
  std::size_t window_stride = 0;
  std::size_t mark_words = 0;

  // Rules that score entries (null for other rules), by archive slot.
  std::int32_t* positions = nullptr;  // [rows, entry_stride]
  float* received = nullptr;  // [rows, entry_stride] attention so far, or the decision's logit
  std::size_t entry_stride = 0;
  /// Each token over the budget drops an entry. A row that has exceeded its budget keeps the pages
  /// of budget + 1 entries, because each token needs them.
  bool drops_each = false;
  /// Limited archives (RuleTraits::limits_archive; null for other rules): the logits of the
  /// decisions about the window's entries.
  float* window_logits = nullptr;  // [rows, ring]

  // Quest (null for other rules): the minimum and the maximum of each channel of a page's keys. A
  // page of the method is one or more of these pages.
  float* bounds = nullptr;  // [pages, 2, head_dim]

  // DMC (null for other rules): the open entry, a running average in float.
  float* open_keys = nullptr;     // [rows, head_dim]
  float* open_values = nullptr;   // [rows, head_dim]
  float* open_weights = nullptr;  // [rows] z

  /// Entries that the window holds before it takes the token at position `length`, including the
  /// one that leaves then.
  [[nodiscard]] constexpr int held_before(int length) const {
    return chunked ? length % ring : length < ring ? length : ring;
  }
  [[nodiscard]] constexpr std::size_t row(int layer, int slot, int head) const {
    return (static_cast<std::size_t>(layer) * slots + slot) * kv_heads + head;
  }
};

}  // namespace winnow::kvcache::cuda

// The page: the memory layout and the format of cached keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace winnow::ops {

/// Entries per page: the number of scores that attention computes in parallel.
inline constexpr int kPageEntries = 16;

/// The largest supported number of channels of a head.
inline constexpr int kMostEntryChannels = 1024;

/// The number of pages that hold `entries` entries.
constexpr std::size_t pages_for(int entries) {
  return static_cast<std::size_t>((entries + kPageEntries - 1) / kPageEntries);
}

/// How a key or a value is stored.
enum class EntryFormat : std::uint8_t { f32, bf16, f8e4m3, i8, q4 };

inline constexpr EntryFormat kEntryFormats[] = {
    EntryFormat::f32, EntryFormat::bf16, EntryFormat::f8e4m3, EntryFormat::i8, EntryFormat::q4};

/// The name used in messages and on the command line: "fp32", "bf16", "fp8", "int8" or "q4".
std::string_view format_name(EntryFormat format);

/// Layout of a page of kPageEntries entries of one KV head, for one format. In this order, each
/// part contiguous:
///   keys    [head_dim][kPageEntries]   channel-major: one channel of all entries is one vector
///   values  [kPageEntries][head_dim]   (q4: rows padded to a multiple of 16 codes)
///   scales  [2][kPageEntries] bf16     of keys, then of values; absent in f32 and bf16
/// An entry of a scaled format represents code * scale, with one scale for each key and for each
/// value: decode attention scales scores and softmax weights, not the operands of its products. A
/// scale per block of channels would need another layout, and readers that scale operands. The
/// codes of q4 index the levels of a codebook (codebook.h); 16 codes are two 32-bit words: code i
/// is nibble i / 2 of word i % 2, so that one shift per lane brings all of them to the low bits.
///
/// An entry of a joint layout is one vector, which is both key and value (multi-head latent
/// attention): its pages hold only keys and their scales.
class PageLayout {
 public:
  PageLayout() = default;
  PageLayout(EntryFormat format, int head_dim, bool joint = false);

  [[nodiscard]] EntryFormat format() const { return format_; }
  [[nodiscard]] int head_dim() const { return head_dim_; }
  [[nodiscard]] bool joint() const { return joint_; }
  [[nodiscard]] bool scaled() const {
    return format_ != EntryFormat::f32 && format_ != EntryFormat::bf16;
  }
  /// Whether entries are rotated (rotation.h). The caller then rotates keys, values and queries,
  /// and rotates outputs back.
  [[nodiscard]] bool rotated() const { return format_ == EntryFormat::q4; }
  /// Bytes of the codes of one key or value.
  [[nodiscard]] std::size_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::size_t values_offset() const { return values_offset_; }
  [[nodiscard]] std::size_t scales_offset() const {
    return values_offset_ + (joint_ ? 0 : kPageEntries * row_bytes_);
  }
  /// The index of the first value's scale in the scales.
  [[nodiscard]] std::size_t first_value_scale() const { return joint_ ? 0 : kPageEntries; }
  /// A multiple of 64.
  [[nodiscard]] std::size_t page_bytes() const { return page_bytes_; }
  /// Bytes per entry, including its share of the scales.
  [[nodiscard]] std::size_t entry_bytes() const { return page_bytes_ / kPageEntries; }

  friend bool operator==(const PageLayout&, const PageLayout&) = default;

 private:
  EntryFormat format_ = EntryFormat::f32;
  int head_dim_ = 0;
  bool joint_ = false;
  std::size_t row_bytes_ = 0;
  std::size_t values_offset_ = 0;
  std::size_t page_bytes_ = 0;
};

/// One quantised key or value: row_bytes() of codes in the layout's format and their scale (1 when
/// the format has none).
struct QuantizedRow {
  std::span<std::byte> codes;
  bf16 scale;
};

/// Rounds x [head_dim] to the layout's format, to nearest even. The 8-bit scale is the smallest
/// normal bf16 that keeps every code in range; q4's is the root mean square, or zero.
void quantize_row(const PageLayout& layout, std::span<const float> x, QuantizedRow& row);

/// x = the value that `row` represents.
void dequantize_row(const PageLayout& layout, const QuantizedRow& row, std::span<float> x);

/// Writes a key and a value into slot `slot` of `page`; a joint layout stores only the key.
void store_entry(const PageLayout& layout, std::byte* page, int slot, const QuantizedRow& key,
                 const QuantizedRow& value);

/// Reads the entry in slot `slot` back to float.
void load_entry(const PageLayout& layout, const std::byte* page, int slot, std::span<float> key,
                std::span<float> value);

/// Copies an entry bit by bit, without rounding again.
void copy_entry(const PageLayout& layout, const std::byte* from, int from_slot, std::byte* to,
                int to_slot);

/// Entries [0, count) in slots 0, 1, 2 ... of a list of pages.
struct EntrySpan {
  const std::byte* base = nullptr;       // page p is at base + p * page_bytes
  const std::uint32_t* pages = nullptr;  // [ceil(count / kPageEntries)]
  int count = 0;
};

}  // namespace winnow::ops

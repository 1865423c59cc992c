// Entries without gaps: the form in which a sequence's entries are saved.
#pragma once

#include <cstddef>
#include <span>

#include "ops/kv_page.h"

namespace winnow::kvcache {

// Entries 0, 1, 2 ... in consecutive page slots of a layout, as raw codes and scales of any storage
// format.

/// Bytes that `count` entries take.
inline std::size_t packed_bytes(const ops::PageLayout& layout, std::size_t count) {
  return (count + ops::kPageEntries - 1) / ops::kPageEntries * layout.page_bytes();
}

/// Copies an entry of a page to place `index`.
inline void pack_entry(const ops::PageLayout& layout, const std::byte* page, int slot,
                       std::span<std::byte> packed, std::size_t index) {
  ops::copy_entry(layout, page, slot,
                  packed.data() + index / ops::kPageEntries * layout.page_bytes(),
                  static_cast<int>(index % ops::kPageEntries));
}

/// The inverse of pack_entry.
inline void unpack_entry(const ops::PageLayout& layout, std::span<const std::byte> packed,
                         std::size_t index, std::byte* page, int slot) {
  ops::copy_entry(layout, packed.data() + index / ops::kPageEntries * layout.page_bytes(),
                  static_cast<int>(index % ops::kPageEntries), page, slot);
}

}  // namespace winnow::kvcache

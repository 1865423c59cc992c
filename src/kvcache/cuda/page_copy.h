// A sequence outside of the device's cache, with its pages as they are in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvcache/saved_sequence.h"

namespace winnow::kvcache::cuda {

/// A KV head's pages in a copy: those of its archive, then those of its window.
struct CopiedRow {
  std::int32_t first = 0;          // its first page
  std::int32_t archive_pages = 0;  // may be more than its entries need
  std::int32_t archived = 0;       // entries
  std::int32_t windowed = 0;       // entries

  bool operator==(const CopiedRow&) const = default;
};

/// Everything but the pages themselves.
struct PageCopy {
  SavedSequence tables;         // without entries
  std::vector<CopiedRow> rows;  // KV heads, layer by layer
  std::size_t pages = 0;        // of all rows
  std::uint64_t sum = 0;        // checksum() of the tables
};

/// A sequence that was copied back.
struct CopiedIn {
  std::optional<int> slot;  // nullopt: there was no room, or the copy is damaged
  bool damaged = false;
};

}  // namespace winnow::kvcache::cuda

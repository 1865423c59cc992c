// A growing list of entries over pages of a pool.
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

#include "kvcache/page_pool.h"

namespace winnow::kvcache {

/// Entries in slots 0, 1, 2 ... Copies share the pages; a page that is shared is copied before it
/// is written ("copy on write"), so owners never see each other's later entries.
class EntryList {
 public:
  explicit EntryList(PagePool& pool) : pool_(&pool) {}
  EntryList(const EntryList& other);
  EntryList(EntryList&& other) noexcept;
  EntryList& operator=(EntryList other) noexcept;
  ~EntryList() { clear(); }

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] PagePool& pool() const { return *pool_; }
  [[nodiscard]] const std::vector<PageId>& pages() const { return pages_; }
  [[nodiscard]] ops::EntrySpan span() const { return {pool_->base(), pages_.data(), size_}; }

  /// Where an entry lies in memory.
  struct Place {
    std::byte* page;
    int slot;
  };
  /// For reading.
  [[nodiscard]] Place at(int index) const {
    assert(index >= 0 && index < size_);
    const auto position = static_cast<std::size_t>(index);
    return {pool_->page(pages_[position / ops::kPageEntries]), index % ops::kPageEntries};
  }
  /// For writing: afterwards only this list owns the page.
  Place writable(int index);
  /// A new entry at the end, for writing.
  Place push();
  /// Drops the last entry.
  void pop();
  void clear();

  /// Bytes of the list itself, without the pages.
  [[nodiscard]] std::size_t table_bytes() const { return pages_.capacity() * sizeof(PageId); }

 private:
  PagePool* pool_;
  std::vector<PageId> pages_;
  int size_ = 0;
};

}  // namespace winnow::kvcache

// The memory of the cache: pages of one layout from one reserved address range.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ops/kv_page.h"

namespace winnow::kvcache {

using PageId = std::uint32_t;

/// Allocates reference-counted pages. Reserves address space for `max_bytes` at once; memory is
/// taken when a page is first written. Reuses freed pages first. Many threads may call allocate,
/// share and release.
class PagePool {
 public:
  PagePool(const ops::PageLayout& layout, std::size_t max_bytes);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  [[nodiscard]] const ops::PageLayout& layout() const { return layout_; }

  /// A page with one owner. Throws an Error when no page is left; callers check for room before a
  /// step.
  PageId allocate();
  void share(PageId page);
  /// Releases one ownership; the last release frees the page.
  void release(PageId page);
  /// Safe while other threads allocate, share and release. False stays correct until the
  /// caller, the only owner, shares the page. True may be outdated.
  [[nodiscard]] bool is_shared(PageId page) const { return owners(page).load() > 1; }

  [[nodiscard]] std::byte* page(PageId id) { return base_ + id * layout_.page_bytes(); }
  [[nodiscard]] const std::byte* base() const { return base_; }

  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] std::size_t live_pages() const { return live_pages_; }
  [[nodiscard]] std::size_t peak_pages() const { return peak_pages_; }
  /// Bytes of the allocated pages, of all pages, or of `pages`, with their reference counts.
  [[nodiscard]] std::size_t bytes() const { return bytes_of(live_pages_); }
  [[nodiscard]] std::size_t capacity_bytes() const { return bytes_of(capacity_); }
  [[nodiscard]] std::size_t bytes_of(std::size_t pages) const {
    return pages * (layout_.page_bytes() + sizeof(owners_[0]));
  }

 private:
  [[nodiscard]] std::atomic_ref<std::uint32_t> owners(PageId page) const {
    return std::atomic_ref(const_cast<std::uint32_t&>(owners_[page]));
  }

  ops::PageLayout layout_;
  std::size_t capacity_ = 0;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  // By page. Never reallocated: is_shared() reads it without the lock.
  std::vector<std::uint32_t> owners_;
  std::vector<PageId> free_;
  std::size_t live_pages_ = 0;
  std::size_t peak_pages_ = 0;
};

}  // namespace winnow::kvcache

#include "kvcache/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/error.h"
#include "base/huge_pages.h"

namespace winnow::kvcache {

PagePool::PagePool(const ops::PageLayout& layout, std::size_t max_bytes) : layout_(layout) {
  capacity_ =
      std::min<std::size_t>(max_bytes / layout.page_bytes(), std::numeric_limits<PageId>::max());
  require(capacity_ > 0, "a cache of {} bytes does not hold one page of {} bytes", max_bytes,
          layout.page_bytes());
  void* range = ::mmap(nullptr, capacity_ * layout.page_bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(range != MAP_FAILED, "cannot reserve {} bytes of address space for the cache",
          capacity_ * layout.page_bytes());
  base_ = static_cast<std::byte*>(range);
  // A head's pages are scattered, so address translation dominates the cost of reading small pages.
  // The system may refuse the advice.
  in_huge_pages({base_, capacity_ * layout.page_bytes()});
  owners_.reserve(capacity_);
}

PagePool::~PagePool() {
  ::munmap(base_, capacity_ * layout_.page_bytes());
}

PageId PagePool::allocate() {
  const std::scoped_lock lock(mutex_);
  require(live_pages_ < capacity_, "the cache is full: all {} pages of {} bytes are in use",
          capacity_, layout_.page_bytes());
  PageId page;
  if (free_.empty()) {
    page = static_cast<PageId>(owners_.size());
    owners_.push_back(1);
  } else {
    page = free_.back();
    free_.pop_back();
    owners(page) = 1;
  }
  ++live_pages_;
  peak_pages_ = std::max(peak_pages_, live_pages_);
  return page;
}

void PagePool::share(PageId page) {
  const std::scoped_lock lock(mutex_);
  assert(owners_[page] > 0);
  ++owners(page);
}

void PagePool::release(PageId page) {
  const std::scoped_lock lock(mutex_);
  assert(owners_[page] > 0);
  if (--owners(page) == 0) {
    free_.push_back(page);
    --live_pages_;
  }
}

}  // namespace winnow::kvcache

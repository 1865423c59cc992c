#include "kvcache/entry_list.h"

#include <algorithm>
#include <utility>

namespace winnow::kvcache {

EntryList::EntryList(const EntryList& other)
    : pool_(other.pool_), pages_(other.pages_), size_(other.size_) {
  for (const PageId page : pages_) {
    pool_->share(page);
  }
}

EntryList::EntryList(EntryList&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      size_(std::exchange(other.size_, 0)) {}

EntryList& EntryList::operator=(EntryList other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  std::swap(size_, other.size_);
  return *this;
}

EntryList::Place EntryList::writable(int index) {
  assert(index >= 0 && index < size_);
  PageId& page = pages_[static_cast<std::size_t>(index) / ops::kPageEntries];
  if (pool_->is_shared(page)) {
    const PageId copy = pool_->allocate();
    std::copy_n(pool_->page(page), pool_->layout().page_bytes(), pool_->page(copy));
    pool_->release(page);
    page = copy;
  }
  return {pool_->page(page), index % ops::kPageEntries};
}

EntryList::Place EntryList::push() {
  if (size_ % ops::kPageEntries == 0) {
    pages_.push_back(pool_->allocate());
  }
  ++size_;
  return writable(size_ - 1);
}

void EntryList::pop() {
  assert(size_ > 0);
  --size_;
  if (size_ % ops::kPageEntries == 0) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
}

void EntryList::clear() {
  for (const PageId page : pages_) {
    pool_->release(page);
  }
  pages_.clear();
  size_ = 0;
}

}  // namespace winnow::kvcache

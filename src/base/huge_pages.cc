#include "base/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

namespace winnow {

void in_huge_pages(std::span<std::byte> memory) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* begin = memory.data();
  std::size_t size = memory.size();
  if (std::align(page, page, begin, size) != nullptr) {
    ::madvise(begin, size / page * page, MADV_HUGEPAGE);
  }
}

}  // namespace winnow

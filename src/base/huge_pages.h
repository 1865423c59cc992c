// Backs memory with huge pages.
#pragma once

#include <cstddef>
#include <span>

namespace winnow {

/// Asks the system to back `memory` with huge pages, which need far fewer TLB entries. For memory
/// that has not been touched yet; no effect if the system has no huge pages.
void in_huge_pages(std::span<std::byte> memory);

}  // namespace winnow

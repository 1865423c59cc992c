// Huge pages.
#pragma once

#include <cstddef>
#include <span>

namespace winnow {

/// Asks the system to back `memory` with huge pages, which need far fewer TLB entries. For memory
/// that was not touched yet; without effect if the system has no huge pages.
void in_huge_pages(std::span<std::byte> memory);

}  // namespace winnow

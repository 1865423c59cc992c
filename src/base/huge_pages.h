// Memory in large pages.
#pragma once

#include <cstddef>
#include <span>

namespace winnow {

/// Asks the system to back what lies in `memory` by huge pages, whose addresses a core looks up far
/// more rarely. For memory that was not touched yet; without effect where the system has none.
void in_huge_pages(std::span<std::byte> memory);

}  // namespace winnow

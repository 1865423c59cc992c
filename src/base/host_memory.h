// The machine's memory.
#pragma once

#include <cstddef>

namespace winnow {

/// Bytes of memory that the machine has.
std::size_t total_host_memory();

/// Bytes that programs can still take without swapping; all of them where the system does not say.
std::size_t available_host_memory();

}  // namespace winnow

// The memory that this process may use.
#pragma once

#include <cstddef>
#include <filesystem>

namespace winnow {

/// Bytes of memory: those of a process, and how many of them it can still take.
struct HostMemory {
  std::size_t total = 0;
  std::size_t available = 0;
};

/// What the machine has and what the control groups of this process (cgroup v1 and v2) allow,
/// whichever is less. `root` holds the files that tell: proc/meminfo, proc/self/cgroup and
/// sys/fs/cgroup.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

/// Bytes of memory that this process may use.
std::size_t total_host_memory();

/// Those of them that it can still take without swapping.
std::size_t available_host_memory();

}  // namespace winnow

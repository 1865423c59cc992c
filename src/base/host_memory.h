// The memory that this process may use.
#pragma once

#include <cstddef>
#include <filesystem>

namespace winnow {

/// Bytes of memory that a process may use, and how many of them it can still take.
struct HostMemory {
  std::size_t total = 0;
  std::size_t available = 0;
};

/// The smaller of the machine's memory and the limits of this process's control groups (cgroup v1
/// and v2). `root` is the root of the files that are read: proc/meminfo, proc/self/cgroup and
/// sys/fs/cgroup.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

/// Bytes of memory that this process may use.
std::size_t total_host_memory();

/// Bytes that it can still take without swapping.
std::size_t available_host_memory();

}  // namespace winnow

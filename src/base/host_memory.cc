#include "base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

// The number at the beginning of `text`, after blanks.
std::optional<std::size_t> parse_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::size_t number = 0;
  const auto [_, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// The number after `key` in the file's lines; key "": at the beginning of the first line. nullopt
// if the file or the number is missing.
std::optional<std::size_t> read_number(const fs::path& path, std::string_view key = {}) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      return parse_number(std::string_view(line).substr(key.size()));
    }
  }
  return std::nullopt;
}

// The files of a version of control groups.
struct GroupFiles {
  std::string_view mount;  // of the memory controller, below the root
  std::string_view limit;
  std::string_view usage;
  std::array<std::string_view, 2> cached;  // page cache in the usage, which is reclaimed on demand
};
constexpr GroupFiles kVersion1{"sys/fs/cgroup/memory",
                               "memory.limit_in_bytes",
                               "memory.usage_in_bytes",
                               {"total_inactive_file ", "total_active_file "}};
constexpr GroupFiles kVersion2{
    "sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}};

void limit_to(HostMemory& memory, const fs::path& group, const GroupFiles& files) {
  const std::size_t limit = read_number(group / files.limit).value_or(kUnlimited);  // or "max"
  const std::size_t usage = read_number(group / files.usage).value_or(0);
  std::size_t cached = 0;
  for (const std::string_view key : files.cached) {
    cached += read_number(group / "memory.stat", key).value_or(0);
  }
  const std::size_t used = usage - std::min(usage, cached);
  memory.total = std::min(memory.total, limit);
  memory.available = std::min(memory.available, limit - std::min(limit, used));
}

// Applies the limits of a group and of all groups above it. In a container the path may be the
// host's; the walk then still ends at the container's own group, which is mounted at the top.
void limit_to_groups(HostMemory& memory, const fs::path& root, fs::path group,
                     const GroupFiles& files) {
  for (group = group.relative_path(); !group.empty(); group = group.parent_path()) {
    limit_to(memory, root / files.mount / group, files);
  }
  limit_to(memory, root / files.mount, files);
}

std::size_t installed_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "memory") {
      return true;
    }
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

}  // namespace

HostMemory read_host_memory(const fs::path& root) {
  HostMemory memory;
  const fs::path machine = root / "proc/meminfo";
  memory.total = read_number(machine, "MemTotal:").value_or(installed_memory() / 1024) * 1024;
  memory.available = read_number(machine, "MemAvailable:").value_or(memory.total / 1024) * 1024;
  std::ifstream groups(root / "proc/self/cgroup");  // ID:CONTROLLERS:PATH
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      limit_to_groups(memory, root, line.substr(second + 1), kVersion2);
    } else if (names_memory(controllers)) {
      limit_to_groups(memory, root, line.substr(second + 1), kVersion1);
    }
  }
  memory.available = std::min(memory.available, memory.total);
  return memory;
}

std::size_t total_host_memory() {
  return read_host_memory().total;
}

std::size_t available_host_memory() {
  return read_host_memory().available;
}

}  // namespace winnow

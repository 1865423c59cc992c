#include "base/host_memory.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace winnow {

std::size_t total_host_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t available_host_memory() {
  constexpr std::string_view kKey = "MemAvailable:";
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) {
      return static_cast<std::size_t>(std::stoull(line.substr(kKey.size()))) * 1024;
    }
  }
  return total_host_memory();
}

}  // namespace winnow

// The CPU of this machine.
#pragma once

#include <string>
#include <vector>

namespace winnow {

struct Processor {
  std::string name = "unknown";
  std::vector<std::string> instruction_sets;  // that winnow's kernels use, best last
};

/// Reads the kernel's description of the CPU.
Processor read_processor();

}  // namespace winnow

#include "base/processor.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <fstream>

#include "base/aarch64/features.h"

namespace winnow {
namespace {

std::vector<std::string> instruction_sets() {
  const aarch64::Features& has = aarch64::features();
  std::vector<std::string> sets{"NEON"};
  const auto add = [&sets](bool there, std::string name) {
    if (there) {
      sets.push_back(std::move(name));
    }
  };
  add(has.dot_products, "DotProd");
  add(has.byte_matrices, "I8MM");
  add(has.bf16, "BF16");
  if (has.sve) {
    const int bytes = ::prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK;
    sets.push_back(fmt::format("{} of {} bits", has.sve2 ? "SVE2" : "SVE", 8 * bytes));
  }
  return sets;
}

}  // namespace

// The kernel gives no name, only two numbers: the designer of the core and its part number.
Processor read_processor() {
  Processor processor{.instruction_sets = instruction_sets()};
  std::string implementer;
  std::string part;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && part.empty();) {
    const auto value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("CPU implementer")) {
      implementer = value;
    } else if (line.starts_with("CPU part")) {
      part = value;
    }
  }
  if (!part.empty()) {
    processor.name = fmt::format("aarch64, implementer {}, part {}", implementer, part);
  }
  return processor;
}

}  // namespace winnow

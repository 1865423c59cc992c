#include "base/processor.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <utility>

namespace winnow {
namespace {

std::vector<std::string> sets_in(std::string_view flags) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSets{{
      {" avx2 ", "AVX2"},
      {" avx512f ", "AVX-512"},
      {" avx512_bf16 ", "AVX512_BF16"},
      {" amx_bf16 ", "AMX"},
  }};
  std::vector<std::string> sets;
  for (const auto& [flag, name] : kSets) {
    if (flags.find(flag) != std::string_view::npos) {
      sets.emplace_back(name);
    }
  }
  return sets;
}

}  // namespace

Processor read_processor() {
  Processor processor;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) {
      processor.name = value;
    } else if (line.starts_with("flags")) {
      processor.instruction_sets = sets_in(" " + value + " ");
      break;
    }
  }
  return processor;
}

}  // namespace winnow

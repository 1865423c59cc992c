#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "parallel/mpi_ranks.h"

namespace winnow::parallel {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return std::nullopt;
  }
  const std::string_view digits = text;
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(number)
                                                                      : std::nullopt;
}

}  // namespace

std::optional<LaunchedAs> launched_as() {
  constexpr std::array<std::pair<const char*, const char*>, 3> kLaunchers{{
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},  // MPICH, Intel MPI
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
  }};
  for (const auto& [rank, size] : kLaunchers) {
    const auto at = number_in(rank);
    const auto of = number_in(size);
    if (at && of && *of > 1) {
      return LaunchedAs{*at, *of};
    }
  }
  return std::nullopt;
}

}  // namespace winnow::parallel

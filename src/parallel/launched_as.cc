#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "parallel/mpi_ranks.h"

namespace winnow::parallel {
namespace {

// The variables that a launcher sets.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
};

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
  constexpr std::array<Launcher, 3> kLaunchers{{
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},  // MPICH, Intel MPI
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
  }};
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = number_in(launcher.rank);
    const auto size = number_in(launcher.size);
    if (rank && size && *size > 1) {
      return LaunchedAs{*rank, *size, number_in(launcher.local_rank)};
    }
  }
  return std::nullopt;
}

}  // namespace winnow::parallel

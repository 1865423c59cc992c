#include "parallel/launched_as.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "parallel/mpi_ranks.h"

namespace winnow::parallel {
namespace {

// The variables of one launcher.
struct Launcher {
  const char* rank;
  const char* size;
  std::array<const char*, 2> local_rank;  // the first that is set counts
  Transport transport;
};

constexpr std::array<Launcher, 3> kMpiLaunchers{{
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_RANK", ""},
     Transport::mpi},
    // MPICH, Intel MPI
    {"PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, Transport::mpi},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_LOCALID", ""}, Transport::mpi},
}};
constexpr Launcher kTorch{"RANK", "WORLD_SIZE", {"LOCAL_RANK", ""}, Transport::tcp};
constexpr const char* kSetByTorchrun = "TORCHELASTIC_RUN_ID";

std::optional<int> number_in(const Environment& environment, const char* variable) {
  const char* text = environment(variable);
  if (text == nullptr) {
    return std::nullopt;
  }
  const std::string_view digits = text;
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(number)
                                                                      : std::nullopt;
}

std::optional<LaunchedAs> started_by(const Launcher& launcher, const Environment& environment) {
  const auto rank = number_in(environment, launcher.rank);
  const auto size = number_in(environment, launcher.size);
  if (!rank || !size || *size < 2) {
    return std::nullopt;
  }
  LaunchedAs result{.rank = *rank, .size = *size, .transport = launcher.transport};
  for (const char* variable : launcher.local_rank) {
    if (!result.local_rank) {
      result.local_rank = number_in(environment, variable);
    }
  }
  return result;
}

std::optional<LaunchedAs> started_by_mpi(const Environment& environment) {
  for (const Launcher& launcher : kMpiLaunchers) {
    if (const auto found = started_by(launcher, environment)) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<LaunchedAs> launched_as(const Environment& environment, bool has_mpi) {
  const auto torch = started_by(kTorch, environment);
  const bool torch_first = !has_mpi || environment(kSetByTorchrun) != nullptr;
  if (torch && torch_first) {
    return torch;
  }
  const auto mpi = started_by_mpi(environment);
  return mpi ? mpi : torch;
}

std::optional<LaunchedAs> launched_as() {
  return launched_as([](const char* variable) { return std::getenv(variable); }, has_mpi());
}

}  // namespace winnow::parallel

#include "base/threads.h"

#include <omp.h>

#include <algorithm>

namespace winnow {
namespace {

int team_size = 0;  // 0: not chosen yet

}  // namespace

void set_threads(int count) {
  team_size = count > 0 ? count : omp_get_num_procs();
  omp_set_num_threads(team_size);  // oneDNN runs on the same team
}

int thread_count() {
  if (team_size == 0) {
    set_threads(0);
  }
  return team_size;
}

namespace detail {

void run_static(std::size_t count, RangeFunction function, const void* context) {
  const auto threads = std::min<std::size_t>(static_cast<std::size_t>(thread_count()), count);
  if (threads <= 1) {
    if (count > 0) {
      function(context, 0, count, 0);
    }
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    const auto team = static_cast<std::size_t>(omp_get_num_threads());
    const std::size_t begin = count * thread / team;
    const std::size_t end = count * (thread + 1) / team;
    if (begin < end) {
      function(context, begin, end, static_cast<int>(thread));
    }
  }
}

void run_dynamic(std::size_t count, RangeFunction function, const void* context) {
  const auto threads = std::min<std::size_t>(static_cast<std::size_t>(thread_count()), count);
  if (threads <= 1) {
    if (count > 0) {
      function(context, 0, count, 0);
    }
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(static_cast <int>(threads))
  for (std::size_t i = 0; i < count; ++i) {
    function(context, i, i + 1, omp_get_thread_num());
  }
}

}  // namespace detail
}  // namespace winnow

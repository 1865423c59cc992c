// Parallel loops over a fixed team of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>

namespace winnow {

/// Sets how many threads parallel_for uses (at least 1); 0 means one per available core.
void set_threads(int count);
int thread_count();

namespace detail {
using RangeFunction = void (*)(const void* context, std::size_t begin, std::size_t end, int thread);
void run_static(std::size_t count, RangeFunction function, const void* context);
void run_dynamic(std::size_t count, RangeFunction function, const void* context);
}  // namespace detail

/// Splits [0, count) into one contiguous range per thread: body(begin, end, thread). For work that
/// costs the same everywhere. `body` must not throw.
template <class Body>
void parallel_ranges(std::size_t count, const Body& body) {
  detail::run_static(
      count,
      [](const void* context, std::size_t begin, std::size_t end, int thread) {
        (*static_cast<const Body*>(context))(begin, end, thread);
      },
      &body);
}

/// Hands out [0, count) one index at a time: body(index, thread). For uneven work. `body` must not
/// throw.
template <class Body>
void parallel_each(std::size_t count, const Body& body) {
  detail::run_dynamic(
      count,
      [](const void* context, std::size_t begin, std::size_t end, int thread) {
        for (std::size_t i = begin; i < end; ++i) {
          (*static_cast<const Body*>(context))(i, thread);
        }
      },
      &body);
}

}  // namespace winnow

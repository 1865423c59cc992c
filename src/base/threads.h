// Parallel loops over a fixed team of threads.
#pragma once

#include <cstddef>
#include <shared_mutex>

namespace winnow {

/// Sets the number of threads of a loop, including the calling one (at least 1); 0 means one per
/// core that this process may use. Waits until no FixedThreads are left.
void set_threads(int count);
int thread_count();

/// While an instance lives, the number of threads does not change, so buffers sized by
/// thread_count() fit the following loops. Use it for work during which others may call
/// set_threads(). At most one per thread.
class FixedThreads {
 public:
  FixedThreads();

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

namespace detail {
using RangeFunction = void (*)(const void* context, std::size_t begin, std::size_t end, int thread);
/// How a loop is cut: one index at a time, or into ranges that shrink towards the end.
enum class Cut : unsigned char { single, shrinking };
void run_loop(std::size_t count, Cut cut, RangeFunction function, const void* context);
}  // namespace detail

/// Splits [0, count) into contiguous ranges that threads take when they are free: body(begin, end,
/// thread), thread < thread_count(). Loops inside a body run on its own thread. Rethrows the first
/// exception of a body once no body runs any more; other ranges may or may not have run.
template <class Body>
void parallel_ranges(std::size_t count, const Body& body) {
  detail::run_loop(
      count, detail::Cut::shrinking,
      [](const void* context, std::size_t begin, std::size_t end, int thread) {
        (*static_cast<const Body*>(context))(begin, end, thread);
      },
      &body);
}

/// Runs body(index, thread) for [0, count), one index at a time. For few, large or uneven pieces of
/// work; otherwise like parallel_ranges().
template <class Body>
void parallel_each(std::size_t count, const Body& body) {
  detail::run_loop(
      count, detail::Cut::single,
      [](const void* context, std::size_t begin, std::size_t, int thread) {
        (*static_cast<const Body*>(context))(begin, thread);
      },
      &body);
}

}  // namespace winnow

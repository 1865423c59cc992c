#include "parallel/on_ranks.h"

#include <exception>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/error_text.h"
#include "parallel/process_ranks.h"
#include "parallel/single_rank.h"
#include "parallel/thread_ranks.h"

namespace winnow::parallel {
namespace {

using Work = std::function<void(Communicator&)>;

// The message of an error of a rank other than 0, which includes the rank.
std::string message_from(const Communicator& ranks, const std::exception& error) {
  const std::string rank = fmt::format("rank {}: ", ranks.rank());
  const std::string what = error_text(error);
  return ranks.rank() == 0 || what.starts_with(rank) ? what : rank + what;
}

// If this process fails, an MPI launcher ends the others. TCP ranks tell each other.
void as_process(const LaunchedAs& launched, int count, const char* flag, const Work& work) {
  require(launched.size == count, "{} {}: {} ranks were started", flag, count, launched.size);
  const auto ranks = join_process_ranks(launched);
  std::string why;
  try {
    return work(*ranks);
  } catch (const Error& error) {
    why = message_from(*ranks, error);
  } catch (const std::bad_alloc& error) {
    why = message_from(*ranks, error);
  }
  if (launched.transport == Transport::tcp) {
    ranks->fail(why);
  }
  throw Error(why);
}

void on_thread(Communicator& ranks, const Work& work) noexcept {
  try {
    work(ranks);
  } catch (const std::exception& error) {
    ranks.fail(message_from(ranks, error));
  } catch (...) {
    ranks.fail(fmt::format("rank {} has failed", ranks.rank()));
  }
}

void on_threads(int count, const Work& work) {
  const auto all = make_thread_ranks(count);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    threads.emplace_back([&, rank] { on_thread(*all[rank], work); });
  }
  try {
    work(*all.front());
  } catch (...) {
    all.front()->fail("rank 0 has failed");
    throw;
  }
}

}  // namespace

void on_ranks(int count, const char* flag, const Work& work) {
  if (count == 1) {
    return work(single_rank());
  }
  if (const auto launched = launched_as()) {
    return as_process(*launched, count, flag, work);
  }
  on_threads(count, work);
}

}  // namespace winnow::parallel

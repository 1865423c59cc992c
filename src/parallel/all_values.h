// One value from every rank, for every rank.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "parallel/communicator.h"

namespace winnow::parallel {

/// What the ranks pass, by rank. Waits for the host threads of all ranks.
template <class T>
std::vector<T> all_values(Communicator& host, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(host.size()));
  const auto shown = host.gather(std::as_bytes(std::span(&own, 1)));
  for (std::size_t i = 0; i < shown.size(); ++i) {
    require(shown[i].size() == sizeof(T), "rank {} does something else than rank 0", i);
    std::memcpy(&all[i], shown[i].data(), sizeof(T));
  }
  host.broadcast(std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace winnow::parallel

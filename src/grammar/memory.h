// Counts the memory of what is learnt about a grammar.
#pragma once

#include <cstddef>
#include <vector>

namespace winnow::grammar {

/// What an allocation costs beyond its contents, about.
inline constexpr std::size_t kBlock = 16;
/// What an entry of a hash table costs beyond its value, about.
inline constexpr std::size_t kHashed = 16 + kBlock;

/// What a list has allocated, without what its elements have.
template <class T>
std::size_t bytes_in(const std::vector<T>& list) {
  return list.capacity() == 0 ? 0 : list.capacity() * sizeof(T) + kBlock;
}

}  // namespace winnow::grammar

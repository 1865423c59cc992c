// Sets of stacks: what an ambiguous grammar may have to come back to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace winnow::grammar {

/// A set of stacks, by its number.
using Stacks = std::int32_t;

/// A node of the grammar, with each stack of a set below it.
struct Place {
  std::int32_t node = 0;
  Stacks stacks = 0;
  auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): misread
};

/// Sets of stacks of nodes. An ambiguous text has exponentially many stacks, so no stack is kept on
/// its own: a set is a list of top nodes, each with the set of what is below it. Every set exists
/// once, so that equal sets have equal numbers. Not thread-safe.
class StackSets {
 public:
  struct Set {
    std::vector<Place> tops = {};  // in order, each node once
    bool bottom = false;           // the empty stack on kBottom is one of them
    bool open = false;             // and that on kOpen
    bool operator==(const Set&) const = default;
  };

  /// The one stack that holds nothing: below is the text's end (kBottom), or something unknown
  /// (kOpen).
  static constexpr Stacks kBottom = 0;
  static constexpr Stacks kOpen = 1;

  StackSets();

  Stacks intern(Set set);
  /// Every stack of `below`, with `node` on top.
  Stacks push(std::int32_t node, Stacks below);
  /// The stacks of both.
  Stacks unite(Stacks a, Stacks b);

  /// Valid until the next set is made.
  [[nodiscard]] const Set& at(Stacks stacks) const {
    return sets_[static_cast<std::size_t>(stacks)];
  }
  /// Sets that are kept, and unions that are known.
  [[nodiscard]] std::size_t size() const { return sets_.size() + unions_.size(); }

 private:
  Stacks known_union(Stacks a, Stacks b) const;
  bool merge(Stacks a, Stacks b, Set& merged);

  std::vector<Set> sets_;
  std::unordered_multimap<std::size_t, Stacks> by_hash_;
  std::unordered_map<std::uint64_t, Stacks> unions_;  // by both numbers, the smaller one first
  std::vector<std::uint64_t> missing_;                // of unite(): unions to be made first
};

}  // namespace winnow::grammar

// Sets of stacks: the nodes to which an ambiguous grammar may have to return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace winnow::grammar {

/// The number of a set of stacks.
using Stacks = std::int32_t;

/// A node of the grammar, and the set of stacks below it.
struct Place {
  std::int32_t node = 0;
  Stacks stacks = 0;
  auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): misread
};

/// Sets of stacks of nodes. An ambiguous text may have exponentially many stacks, so they are not
/// stored one by one: a set is a list of top nodes, each with the set of stacks below it. Equal
/// sets have one number. Not thread-safe.
class StackSets {
 public:
  struct Set {
    std::vector<Place> tops = {};  // sorted, each node once
    bool bottom = false;           // contains the empty stack kBottom
    bool open = false;             // contains the empty stack kOpen
    bool operator==(const Set&) const = default;
  };

  /// Sets of one empty stack, with the text's end below it (kBottom) or something unknown
  /// (kOpen).
  static constexpr Stacks kBottom = 0;
  static constexpr Stacks kOpen = 1;

  StackSets();

  Stacks intern(Set set);
  /// All stacks of `below`, with `node` on top.
  Stacks push(std::int32_t node, Stacks below);
  /// The union of two sets.
  Stacks unite(Stacks a, Stacks b);

  /// Valid until the next set is made.
  [[nodiscard]] const Set& at(Stacks stacks) const {
    return sets_[static_cast<std::size_t>(stacks)];
  }
  /// The number of stored sets and unions.
  [[nodiscard]] std::size_t size() const { return sets_.size() + unions_.size(); }
  /// The memory of all sets and unions.
  [[nodiscard]] std::size_t bytes() const;

 private:
  Stacks known_union(Stacks a, Stacks b) const;
  bool merge(Stacks a, Stacks b, Set& merged);

  std::vector<Set> sets_;
  std::size_t tops_ = 0;  // of all sets
  std::unordered_multimap<std::size_t, Stacks> by_hash_;
  std::unordered_map<std::uint64_t, Stacks> unions_;  // by both numbers, the smaller first
  std::vector<std::uint64_t> missing_;                // unite(): unions to make first
};

}  // namespace winnow::grammar

#include "grammar/stack_sets.h"

#include <algorithm>
#include <utility>

#include "grammar/memory.h"

namespace winnow::grammar {
namespace {

std::uint64_t pair_of(Stacks a, Stacks b) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(std::min(a, b))) << 32 |
         static_cast<std::uint32_t>(std::max(a, b));
}

Stacks first_of(std::uint64_t pair) {
  return static_cast<Stacks>(pair >> 32);
}
Stacks second_of(std::uint64_t pair) {
  return static_cast<Stacks>(pair & 0xFFFFFFFFU);
}

std::size_t hash_of(const StackSets::Set& set) {
  std::uint64_t hash = (set.bottom ? 1 : 0) | (set.open ? 2 : 0);
  for (const Place& top : set.tops) {
    const auto value = static_cast<std::uint64_t>(static_cast<std::uint32_t>(top.node)) << 32 |
                       static_cast<std::uint32_t>(top.stacks);
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

std::size_t StackSets::bytes() const {
  constexpr std::size_t kEntry = kHashed + 16;  // of by_hash_ or unions_
  return bytes_in(sets_) + tops_ * sizeof(Place) + sets_.size() * (kBlock + kEntry) +
         unions_.size() * kEntry;
}

StackSets::StackSets() {
  intern({.bottom = true});
  intern({.open = true});
}

Stacks StackSets::push(std::int32_t node, Stacks below) {
  return intern({.tops = {{node, below}}});
}

// A union needs the unions of the stacks below equal tops. They are made first, from a list, not by
// recursion: a stack may be as deep as a text is long.
Stacks StackSets::unite(Stacks a, Stacks b) {
  if (const Stacks known = known_union(a, b); known >= 0) {
    return known;
  }
  missing_.assign(1, pair_of(a, b));
  while (!missing_.empty()) {
    const std::uint64_t pair = missing_.back();
    Set merged;
    if (unions_.contains(pair)) {
      missing_.pop_back();
    } else if (merge(first_of(pair), second_of(pair), merged)) {
      missing_.pop_back();
      unions_.emplace(pair, intern(std::move(merged)));
    }
  }
  return known_union(a, b);
}

Stacks StackSets::known_union(Stacks a, Stacks b) const {
  if (a == b) {
    return a;
  }
  const auto known = unions_.find(pair_of(a, b));
  return known == unions_.end() ? -1 : known->second;
}

// Returns false, and adds to missing_, if unions of stacks below are not known yet.
bool StackSets::merge(Stacks a, Stacks b, Set& merged) {
  const Set& left = at(a);
  const Set& right = at(b);
  merged.bottom = left.bottom || right.bottom;
  merged.open = left.open || right.open;
  merged.tops.resize(left.tops.size() + right.tops.size());
  std::ranges::merge(left.tops, right.tops, merged.tops.begin());
  const std::size_t open = missing_.size();
  auto last = merged.tops.begin();
  for (auto top = merged.tops.begin(); top != merged.tops.end(); ++top) {
    if (top == merged.tops.begin()) {
      continue;
    }
    if (top->node != last->node) {
      *++last = *top;
    } else if (const Stacks below = known_union(last->stacks, top->stacks); below >= 0) {
      last->stacks = below;
    } else {
      missing_.push_back(pair_of(last->stacks, top->stacks));
    }
  }
  merged.tops.erase(merged.tops.empty() ? merged.tops.end() : last + 1, merged.tops.end());
  return missing_.size() == open;
}

Stacks StackSets::intern(Set set) {
  const std::size_t hash = hash_of(set);
  for (auto [known, end] = by_hash_.equal_range(hash); known != end; ++known) {
    if (at(known->second) == set) {
      return known->second;
    }
  }
  const auto stacks = static_cast<Stacks>(sets_.size());
  tops_ += set.tops.capacity();
  sets_.push_back(std::move(set));
  by_hash_.emplace(hash, stacks);
  return stacks;
}

}  // namespace winnow::grammar

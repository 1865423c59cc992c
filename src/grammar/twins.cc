#include "grammar/twins.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "grammar/memory.h"

namespace winnow::grammar {
namespace {

constexpr std::size_t kMostTwinWork = 1'000'000;  // numbers that twin_states() may compare

// The least number of bytes in a text of an expression; rules count as 0.
std::size_t least_bytes(const Expression& expression) {
  switch (expression.kind) {
    case Expression::Kind::bytes:
      return expression.bytes.size();
    case Expression::Kind::characters:
      return 1;
    case Expression::Kind::sequence: {
      std::size_t sum = 0;
      for (const ExpressionPtr& part : expression.parts) {
        sum += least_bytes(*part);
      }
      return sum;
    }
    case Expression::Kind::choice: {
      std::size_t least = 0;
      for (const ExpressionPtr& part : expression.parts) {
        const std::size_t bytes = least_bytes(*part);
        least = part == expression.parts[0] ? bytes : std::min(least, bytes);
      }
      return least;
    }
    case Expression::Kind::repeat:
      return expression.least == 0 ? 0 : least_bytes(*expression.parts[0]);
    case Expression::Kind::regular:
      return expression.regular->states()[0].accepts ? 0 : 1;
    case Expression::Kind::rule:
      return 0;
  }
  return 0;
}

// The last copy that is like this one for the next `further` copies: after each of them, another
// copy must follow, or may follow, equally.
int twin_of_copy(const Expression& repeat, int copy, int further) {
  const int must_follow = repeat.least - copy - 1;
  const int may_follow = repeat.most - copy - 1;
  if (must_follow > 0) {
    return copy + std::max(must_follow - further - 1, 0);
  }
  return repeat.most < 0 ? copy : copy + std::max(may_follow - further - 1, 0);
}

struct HashNumbers {
  std::size_t operator()(const std::vector<std::uint32_t>& numbers) const {
    std::uint64_t hash = numbers.size();
    for (const std::uint32_t number : numbers) {
      hash = (hash ^ number) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

// Describes a state one character further than `classes`: its transitions, with classes as targets.
std::vector<std::uint32_t> ways_of(const Regular::State& state,
                                   const std::vector<std::uint32_t>& classes) {
  std::vector<std::uint32_t> ways{state.accepts ? 1U : 0U};
  for (const Regular::Transition& transition : state.transitions) {
    const std::uint32_t to = classes[static_cast<std::size_t>(transition.to)];
    const std::size_t size = ways.size();
    if (size > 1 && ways[size - 1] == to && ways[size - 2] + 1 == transition.low) {
      ways[size - 2] = transition.high;
    } else {
      ways.insert(ways.end(), {transition.low, transition.high, to});
    }
  }
  return ways;
}

// For each state, the last state of its class.
std::vector<int> last_alike(const std::vector<std::uint32_t>& classes, std::size_t count) {
  std::vector<int> last(count);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    last[classes[i]] = static_cast<int>(i);
  }
  std::vector<int> twins;
  twins.reserve(classes.size());
  for (const std::uint32_t of : classes) {
    twins.push_back(last[of]);
  }
  return twins;
}

}  // namespace

std::size_t Twins::bytes() const {
  std::size_t bytes = bytes_in(copies_);
  for (const auto& twins : by_depth_) {
    bytes += bytes_in(twins);
  }
  return bytes;
}

void Twins::add_copies(const Expression& repeat, int first, int copies, int end) {
  if (copies == 0) {
    return;
  }
  const int size = (static_cast<int>(by_depth_[0].size()) - first) / copies;
  if (repeat.most >= 0) {
    copies_.push_back({&repeat, first, size, copies, end});
  }
  const std::size_t bytes = least_bytes(*repeat.parts[0]);
  if (bytes == 0) {
    return;  // any number of copies may match without a byte
  }
  for (std::size_t depth = 0; depth < kDepths.size(); ++depth) {
    const auto further = static_cast<int>(kDepths[depth] / bytes);
    for (int copy = 0; copy < copies; ++copy) {
      const int begin = first + copy * size;
      const int ahead = (twin_of_copy(repeat, copy, further) - copy) * size;
      for (int node = begin; node < begin + size; ++node) {
        by_depth_[depth][static_cast<std::size_t>(node)] += ahead;
      }
    }
  }
}

void Twins::share_copies(const std::function<std::optional<std::string>(int node)>& rest_of_rule) {
  using Kind = std::pair<const Expression*, std::string>;  // the part, and the bytes after it
  std::vector<std::pair<Kind, const Copies*>> kinds;
  std::map<Kind, const Copies*> longest;
  for (const Copies& copies : copies_) {
    if (const auto rest = rest_of_rule(copies.end)) {
      const Kind kind{copies.repeat->parts[0].get(), *rest};
      kinds.emplace_back(kind, &copies);
      const Copies*& known = longest[kind];
      known = known == nullptr || known->count < copies.count ? &copies : known;
    }
  }
  for (const auto& [kind, copies] : kinds) {
    share(*copies, *longest[kind]);
  }
  copies_.clear();
}

// Shares all copies after which neither repetition needs another copy.
void Twins::share(const Copies& copies, const Copies& longest) {
  const int ahead = longest.count - copies.count;
  const int free = std::max({copies.repeat->least - 1, longest.repeat->least - 1 - ahead, 0});
  const auto take = [this](int to, int from, int nodes) {
    for (auto& twins : by_depth_) {
      std::copy_n(twins.begin() + from, nodes, twins.begin() + to);
    }
  };
  for (int copy = free; copy < copies.count; ++copy) {
    take(copies.first + copy * copies.size, longest.first + (copy + ahead) * longest.size,
         copies.size);
  }
  take(copies.end, longest.end, 1);
}

std::vector<std::int32_t> Twins::find(std::size_t depth,
                                      std::span<const std::int32_t> nodes) const {
  std::vector<std::int32_t> twins;
  twins.reserve(nodes.size());
  for (const std::int32_t node : nodes) {
    twins.push_back(find(depth, node));
  }
  std::ranges::sort(twins);
  twins.erase(std::unique(twins.begin(), twins.end()), twins.end());
  return twins;
}

std::vector<std::vector<int>> twin_states(const Regular& language) {
  const auto& states = language.states();
  std::vector<std::uint32_t> classes;  // of equivalent states
  classes.reserve(states.size());
  for (const Regular::State& state : states) {
    classes.push_back(state.accepts ? 1 : 0);
  }
  std::vector<std::vector<int>> twins;
  std::size_t work = 0;
  std::size_t count = 0;
  for (std::size_t characters = 1; twins.size() < kDepths.size(); ++characters) {
    std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, HashNumbers> known;
    std::vector<std::uint32_t> finer;
    for (const Regular::State& state : states) {
      std::vector<std::uint32_t> ways = ways_of(state, classes);
      work += ways.size();
      if (work > kMostTwinWork) {
        return twins;
      }
      finer.push_back(known.try_emplace(std::move(ways), static_cast<std::uint32_t>(known.size()))
                          .first->second);
    }
    classes = std::move(finer);
    const bool is_finest = std::exchange(count, known.size()) == known.size();
    while (twins.size() < kDepths.size() && (is_finest || characters == kDepths[twins.size()])) {
      twins.push_back(last_alike(classes, count));
    }
  }
  return twins;
}

}  // namespace winnow::grammar

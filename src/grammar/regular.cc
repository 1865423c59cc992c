#include "grammar/regular.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "grammar/thompson.h"

namespace winnow::grammar {
namespace {

using Kind = Expression::Kind;

constexpr std::size_t kMostStates = 20'000;
constexpr std::size_t kMostWork = 4'000'000;  // about a second

void check_size(std::size_t states) {
  require(states <= kMostStates, "the pattern is too large: more than {} states", kMostStates);
}
void check_work(std::size_t work) {
  require(work <= kMostWork, "the pattern is too large: it would take too long to compile");
}

class Nfa : public Thompson<Nfa> {
 public:
  struct Node {
    std::vector<std::pair<CodePointRange, int>> edges;
    std::vector<int> empty;
  };

  int add() {
    check_size(nodes_.size());
    nodes_.emplace_back();
    return static_cast<int>(nodes_.size()) - 1;
  }

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

 private:
  friend Thompson<Nfa>;

  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
  void join(int from, int to) { at(from).empty.push_back(to); }
  void copied(const Expression& /*repeat*/, int /*first*/, int /*copies*/, int /*end*/) {}
  int put_leaf(const Expression& expression, int from) {
    switch (expression.kind) {
      case Kind::bytes:
        for (const std::uint32_t c : code_points_of(expression.bytes)) {
          from = put_range({c, c}, from);
        }
        return from;
      case Kind::characters: {
        const int to = add();
        for (const CodePointRange& range : expression.characters) {
          at(from).edges.emplace_back(range, to);
        }
        return to;
      }
      default:
        fail("the expression is not regular");
    }
  }
  int put_range(CodePointRange range, int from) {
    const int to = add();
    at(from).edges.emplace_back(range, to);
    return to;
  }
  std::vector<Node> nodes_;
};

void close(const Nfa& nfa, std::set<int>& nodes) {
  std::vector<int> open(nodes.begin(), nodes.end());
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    for (const int next : nfa.nodes()[static_cast<std::size_t>(node)].empty) {
      if (nodes.insert(next).second) {
        open.push_back(next);
      }
    }
  }
}

// Splits the edges into ranges of characters, such that each edge has all of a range or none.
template <class Edges, class Take>
void each_range(const Edges& edges, Take take) {
  std::set<std::uint32_t> cuts;
  for (const auto& [range, _] : edges) {
    cuts.insert(range.low);
    cuts.insert(range.high + 1);
  }
  for (auto low = cuts.begin(); low != cuts.end() && std::next(low) != cuts.end(); ++low) {
    take(*low, *std::next(low) - 1);
  }
}

// Adds a transition; merges it with the last one if it continues that.
void append(Regular::State& state, std::uint32_t low, std::uint32_t high, int to) {
  if (!state.transitions.empty() && state.transitions.back().to == to &&
      state.transitions.back().high + 1 == low) {
    state.transitions.back().high = high;
  } else {
    state.transitions.push_back({low, high, to});
  }
}

std::optional<int> next_of(const Regular::State& state, std::uint32_t code_point) {
  for (const Regular::Transition& transition : state.transitions) {
    if (transition.low <= code_point && code_point <= transition.high) {
      return transition.to;
    }
  }
  return std::nullopt;
}

// Runs both automata in parallel. `wanted`: whether `b` must accept or must not; kLeft: `b` failed.
Regular::Ptr product(const Regular& a, const Regular& b, bool wanted) {
  constexpr int kLeft = -1;
  std::map<std::pair<int, int>, int> ids{{{0, 0}, 0}};
  std::vector<std::pair<int, int>> pairs{{0, 0}};
  std::vector<Regular::State> states;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    check_size(pairs.size());
    const auto [x, y] = pairs[i];
    const Regular::State& of_a = a.states()[static_cast<std::size_t>(x)];
    const Regular::State empty;
    const Regular::State& of_b = y == kLeft ? empty : b.states()[static_cast<std::size_t>(y)];
    Regular::State state;
    state.accepts = of_a.accepts && of_b.accepts == wanted;
    std::vector<std::pair<CodePointRange, int>> edges;
    for (const auto& transition : of_a.transitions) {
      edges.push_back({{transition.low, transition.high}, 0});
    }
    for (const auto& transition : of_b.transitions) {
      edges.push_back({{transition.low, transition.high}, 0});
    }
    each_range(edges, [&](std::uint32_t low, std::uint32_t high) {
      const auto to_a = next_of(of_a, low);
      const auto to_b = next_of(of_b, low);
      if (!to_a || (wanted && !to_b)) {
        return;
      }
      const auto [place, is_new] =
          ids.try_emplace({*to_a, to_b.value_or(kLeft)}, static_cast<int>(pairs.size()));
      if (is_new) {
        pairs.push_back(place->first);
      }
      append(state, low, high, place->second);
    });
    states.push_back(std::move(state));
  }
  return std::make_shared<const Regular>(std::move(states));
}

}  // namespace

// Drops states from which no state accepts.
Regular::Regular(std::vector<State> states) {
  std::vector<std::vector<int>> before(states.size());
  std::vector<int> open;
  std::vector<bool> alive(states.size(), false);
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (const Transition& transition : states[i].transitions) {
      before[static_cast<std::size_t>(transition.to)].push_back(static_cast<int>(i));
    }
    if (states[i].accepts) {
      alive[i] = true;
      open.push_back(static_cast<int>(i));
    }
  }
  while (!open.empty()) {
    const int state = open.back();
    open.pop_back();
    for (const int previous : before[static_cast<std::size_t>(state)]) {
      if (!alive[static_cast<std::size_t>(previous)]) {
        alive[static_cast<std::size_t>(previous)] = true;
        open.push_back(previous);
      }
    }
  }
  std::vector<int> ids(states.size(), -1);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (alive[i] || i == 0) {
      ids[i] = static_cast<int>(states_.size());
      states_.push_back(std::move(states[i]));
    }
  }
  for (State& state : states_) {
    std::erase_if(state.transitions,
                  [&](const Transition& t) { return !alive[static_cast<std::size_t>(t.to)]; });
    for (Transition& transition : state.transitions) {
      transition.to = ids[static_cast<std::size_t>(transition.to)];
    }
  }
}

Regular::Ptr Regular::of(const Expression& expression) {
  Nfa nfa;
  const int start = nfa.add();
  const int end = nfa.put(expression, start);
  std::map<std::set<int>, int> ids;
  std::vector<std::set<int>> sets{{start}};
  close(nfa, sets[0]);
  ids[sets[0]] = 0;
  std::vector<State> states;
  std::size_t work = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    check_size(sets.size());
    State state{.accepts = sets[i].contains(end)};
    std::vector<std::pair<CodePointRange, int>> edges;
    for (const int node : sets[i]) {
      const auto& more = nfa.nodes()[static_cast<std::size_t>(node)].edges;
      edges.insert(edges.end(), more.begin(), more.end());
    }
    each_range(edges, [&](std::uint32_t low, std::uint32_t high) {
      std::set<int> next;
      for (const auto& [range, to] : edges) {
        if (range.low <= low && high <= range.high) {
          next.insert(to);
        }
      }
      work += edges.size();
      if (next.empty()) {
        return;
      }
      close(nfa, next);
      work += next.size();
      check_work(work);
      const auto [place, is_new] = ids.try_emplace(next, static_cast<int>(sets.size()));
      if (is_new) {
        sets.push_back(next);
      }
      append(state, low, high, place->second);
    });
    states.push_back(std::move(state));
  }
  return std::make_shared<const Regular>(std::move(states));
}

Regular::Ptr Regular::of_length(int least, int most) {
  return of(*repeat(characters(all_code_points()), least, most));
}

Regular::Ptr Regular::of_texts(const std::vector<std::string>& texts) {
  std::vector<ExpressionPtr> parts;
  parts.reserve(texts.size());
  for (const std::string& text : texts) {
    parts.push_back(bytes(text));
  }
  return of(*choice(std::move(parts)));
}

Regular::Ptr Regular::intersection(const Regular& a, const Regular& b) {
  return product(a, b, /*wanted=*/true);
}

Regular::Ptr Regular::difference(const Regular& a, const Regular& b) {
  return product(a, b, /*wanted=*/false);
}

bool Regular::is_empty() const {
  return std::ranges::none_of(states_, &State::accepts);
}

bool Regular::accepts(const std::string& text) const {
  int state = 0;
  for (const std::uint32_t c : code_points_of(text)) {
    const auto next = next_of(states_[static_cast<std::size_t>(state)], c);
    if (!next) {
      return false;
    }
    state = *next;
  }
  return states_[static_cast<std::size_t>(state)].accepts;
}

}  // namespace winnow::grammar

#include "grammar/grammar.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "grammar/memory.h"
#include "grammar/regular.h"
#include "grammar/thompson.h"

namespace winnow::grammar {
namespace {

using Kind = Expression::Kind;

constexpr std::size_t kMostNodes = 500'000;

class Compiler : public Thompson<Compiler> {
 public:
  explicit Compiler(const RuleSet& rules) : rules_(rules) {}

  Grammar compile() {
    const std::size_t count = rules_.bodies.size();
    for (std::size_t i = 0; i < count; ++i) {
      require(rules_.bodies[i] != nullptr, "rule {} is not defined", rules_.names[i]);
      begins_.push_back(add());
    }
    for (std::size_t i = 0; i < count; ++i) {
      const int end = put(*rules_.bodies[i], begins_[i]);
      at(end).ends = true;
      ends_.push_back(end);
    }
    grammar_.root = begins_[static_cast<std::size_t>(rules_.root)];
    drop_dead_ends();
    mark_ends();
    grammar_.twins.share_copies([this](int node) { return rest_of_rule(node); });
    refuse_left_recursion();
    return std::move(grammar_);
  }

 private:
  friend Thompson<Compiler>;

  Grammar::Node& at(int node) { return grammar_.nodes[static_cast<std::size_t>(node)]; }

  int add() {
    require(grammar_.nodes.size() < kMostNodes, "the grammar is too large: more than {} nodes",
            kMostNodes);
    grammar_.nodes.emplace_back();
    grammar_.twins.add();
    return static_cast<int>(grammar_.nodes.size()) - 1;
  }

  void join(int from, int to) { at(from).empty.push_back(to); }
  void copied(const Expression& repeat, int first, int copies, int end) {
    grammar_.twins.add_copies(repeat, first, copies, end);
  }
  int put_bytes(const std::string& bytes, int from) {
    for (const char byte : bytes) {
      const int to = add();
      const auto value = static_cast<std::uint8_t>(byte);
      at(from).edges.push_back({value, value, to});
      from = to;
    }
    return from;
  }

  // A node and the byte ranges that lead from it to another node: the end of a path.
  using Tail = std::pair<int, std::vector<std::pair<int, int>>>;
  using Tails = std::map<Tail, int>;

  // Adds a path from one node to another. Paths that end with the same bytes share nodes.
  void put_path(const std::vector<ByteRange>& path, int from, int to, Tails& tails) {
    int next = to;
    Tail tail{to, {}};
    for (std::size_t i = path.size(); i-- > 1;) {
      tail.second.emplace_back(path[i].low, path[i].high);
      const auto [place, is_new] = tails.try_emplace(tail, -1);
      if (is_new) {
        place->second = add();
        at(place->second).edges.push_back({path[i].low, path[i].high, next});
      }
      next = place->second;
    }
    at(from).edges.push_back({path[0].low, path[0].high, next});
  }
  void put_path(const std::string& bytes, int from, int to, Tails& tails) {
    std::vector<ByteRange> path;
    for (const char byte : bytes) {
      path.push_back({static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte)});
    }
    put_path(path, from, to, tails);
  }

  void put_utf8(const CodePoints& set, int from, int to, Tails& tails) {
    for (const std::vector<ByteRange>& path : utf8_sequences(set)) {
      put_path(path, from, to, tails);
    }
  }

  void put_characters(const CodePoints& set, Spelling spelling, int from, int to, Tails& tails) {
    if (spelling == Spelling::plain) {
      put_utf8(set, from, to, tails);
      return;
    }
    static const CodePoints kEscaped{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    put_utf8(intersection(set, complement(kEscaped)), from, to, tails);
    static constexpr std::array kShort{
        std::pair{'"', '"'},  std::pair{'\\', '\\'}, std::pair{'\b', 'b'}, std::pair{'\f', 'f'},
        std::pair{'\n', 'n'}, std::pair{'\r', 'r'},  std::pair{'\t', 't'}};
    for (const CodePointRange& range : intersection(set, kEscaped)) {
      for (std::uint32_t c = range.low; c <= range.high; ++c) {
        bool is_short = false;
        for (const auto& [character, name] : kShort) {
          if (c == static_cast<std::uint32_t>(character)) {
            put_path(std::string{'\\', name}, from, to, tails);
            is_short = true;
          }
        }
        if (!is_short) {
          put_path(fmt::format("\\u{:04x}", c), from, to, tails);
        }
      }
    }
  }

  int put_leaf(const Expression& expression, int from) {
    switch (expression.kind) {
      case Kind::bytes:
        return put_bytes(expression.bytes, from);
      case Kind::characters: {
        const int to = add();
        Tails tails;
        put_characters(expression.characters, expression.spelling, from, to, tails);
        return to;
      }
      case Kind::rule: {
        const int to = add();
        at(from).calls.push_back({begins_[static_cast<std::size_t>(expression.rule)], to});
        return to;
      }
      case Kind::regular:
        return put_regular(expression, from);
      default:
        fail("put() takes the other kinds");
    }
  }

  int put_regular(const Expression& expression, int from) {
    const auto& states = expression.regular->states();
    const int first = static_cast<int>(grammar_.nodes.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      (void)add();
    }
    const int end = add();
    join(from, first);
    Tails tails;
    for (std::size_t i = 0; i < states.size(); ++i) {
      const int node = first + static_cast<int>(i);
      std::map<int, CodePoints> by_target;
      for (const Regular::Transition& transition : states[i].transitions) {
        by_target[transition.to].push_back({transition.low, transition.high});
      }
      for (const auto& [to, set] : by_target) {
        put_characters(normalized(set), expression.spelling, node, first + to, tails);
      }
      if (states[i].accepts) {
        join(node, end);
      }
    }
    set_twins(*expression.regular, first, tails);
    return end;
  }

  // Sets twins of the nodes of states, and of the nodes within characters: the latter are alike if
  // the same bytes lead to states that are alike.
  void set_twins(const Regular& language, int first, const Tails& tails) {
    const std::vector<std::vector<int>> twins = twin_states(language);
    for (std::size_t depth = 0; depth < twins.size(); ++depth) {
      for (std::size_t i = 0; i < twins[depth].size(); ++i) {
        grammar_.twins.set(depth, first + static_cast<int>(i), first + twins[depth][i]);
      }
      std::map<Tail, int> last;
      const auto twin_tail = [&](const Tail& tail) {
        return Tail{grammar_.twins.find(depth, tail.first), tail.second};
      };
      for (const auto& [tail, node] : tails) {
        last[twin_tail(tail)] = node;
      }
      for (const auto& [tail, node] : tails) {
        grammar_.twins.set(depth, node, last[twin_tail(tail)]);
      }
    }
  }

  // Drops nodes from which their rule's end cannot be reached, by bytes or by rules that match a
  // text.
  void drop_dead_ends() {
    std::vector<Grammar::Node>& nodes = grammar_.nodes;
    std::vector<bool> alive(nodes.size(), false);
    const auto lives = [&](int node) { return alive[static_cast<std::size_t>(node)]; };
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = nodes.size(); i-- > 0;) {
        if (alive[i]) {
          continue;
        }
        const Grammar::Node& node = nodes[i];
        bool is = node.ends;
        for (const auto& edge : node.edges) {
          is = is || lives(edge.to);
        }
        for (const int next : node.empty) {
          is = is || lives(next);
        }
        for (const auto& call : node.calls) {
          is = is || (lives(call.to) && lives(call.begin));
        }
        alive[i] = is;
        more = more || is;
      }
    }
    for (Grammar::Node& node : nodes) {
      std::erase_if(node.edges, [&](const auto& edge) { return !lives(edge.to); });
      std::erase_if(node.empty, [&](int next) { return !lives(next); });
      std::erase_if(node.calls,
                    [&](const auto& call) { return !lives(call.to) || !lives(call.begin); });
    }
    require(lives(grammar_.root), "no text fits the grammar");
  }

  void mark_ends() {
    for (bool more = true; more;) {
      more = false;
      for (Grammar::Node& node : grammar_.nodes) {
        if (node.only_ends || !node.edges.empty() || !node.calls.empty()) {
          continue;
        }
        node.only_ends =
            (node.ends || !node.empty.empty()) && std::ranges::all_of(node.empty, [this](int next) {
              return grammar_.nodes[static_cast<std::size_t>(next)].only_ends;
            });
        more = more || node.only_ends;
      }
    }
  }

  // The bytes from a node to its rule's end, if there is only one way.
  [[nodiscard]] std::optional<std::string> rest_of_rule(int node) const {
    std::string rest;
    for (;;) {
      const Grammar::Node& here = grammar_.nodes[static_cast<std::size_t>(node)];
      if (here.only_ends) {
        return rest;
      }
      if (here.ends || !here.empty.empty() || !here.calls.empty() || here.edges.size() != 1 ||
          here.edges[0].low != here.edges[0].high) {
        return std::nullopt;
      }
      rest += static_cast<char>(here.edges[0].low);
      node = here.edges[0].to;
    }
  }

  // Whether each rule matches the empty text.
  [[nodiscard]] std::vector<bool> nullable_rules() const {
    std::vector<bool> nullable(begins_.size(), false);
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < begins_.size(); ++i) {
        if (!nullable[i] && reaches(begins_[i], ends_[i], nullable, nullptr)) {
          nullable[i] = true;
          more = true;
        }
      }
    }
    return nullable;
  }

  // Whether `end` is reached from `begin` without a byte; `called` receives the rules on the way.
  bool reaches(int begin, int end, const std::vector<bool>& nullable,
               std::vector<std::size_t>* called) const {
    std::unordered_set<int> seen{begin};
    std::vector<int> open{begin};
    const auto visit = [&](int node) {
      if (seen.insert(node).second) {
        open.push_back(node);
      }
    };
    while (!open.empty()) {
      const Grammar::Node& node = grammar_.nodes[static_cast<std::size_t>(open.back())];
      open.pop_back();
      for (const int next : node.empty) {
        visit(next);
      }
      for (const auto& call : node.calls) {
        const auto rule = static_cast<std::size_t>(call.begin);  // rules' first nodes come first
        if (called != nullptr) {
          called->push_back(rule);
        }
        if (nullable[rule]) {
          visit(call.to);
        }
      }
    }
    return seen.contains(end);
  }

  void refuse_left_recursion() const {
    const std::vector<bool> nullable = nullable_rules();
    std::vector<std::vector<std::size_t>> called(begins_.size());
    for (std::size_t i = 0; i < begins_.size(); ++i) {
      reaches(begins_[i], ends_[i], nullable, &called[i]);
    }
    std::vector<int> state(begins_.size(), 0);  // 1: being followed, 2: not left-recursive
    std::vector<std::pair<std::size_t, std::size_t>> path;
    for (std::size_t start = 0; start < begins_.size(); ++start) {
      if (state[start] != 0) {
        continue;
      }
      path.emplace_back(start, 0);
      state[start] = 1;
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next == called[rule].size()) {
          state[rule] = 2;
          path.pop_back();
          continue;
        }
        const std::size_t callee = called[rule][next++];
        require(state[callee] != 1, "rule {} is left-recursive: it may begin with itself",
                rules_.names[callee]);
        if (state[callee] == 0) {
          state[callee] = 1;
          path.emplace_back(callee, 0);
        }
      }
    }
  }

  const RuleSet& rules_;
  Grammar grammar_;
  std::vector<int> begins_;  // node i is the first node of rule i
  std::vector<int> ends_;
};

}  // namespace

std::size_t bytes_of(const Grammar& grammar) {
  std::size_t bytes = bytes_in(grammar.nodes) + grammar.twins.bytes();
  for (const Grammar::Node& node : grammar.nodes) {
    bytes += bytes_in(node.edges) + bytes_in(node.calls) + bytes_in(node.empty);
  }
  return bytes;
}

Grammar compile(const RuleSet& rules) {
  return Compiler(rules).compile();
}

}  // namespace winnow::grammar

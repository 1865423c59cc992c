// Nodes of a grammar that look alike for the next few bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "grammar/expression.h"
#include "grammar/regular.h"

namespace winnow::grammar {

/// For how many bytes nodes are compared. Few tokens are longer than the last.
inline constexpr std::array<std::size_t, 5> kDepths{4, 8, 16, 32, 128};

/// The twin of a node at a depth takes the same texts of up to so many bytes, and ends its rule
/// behind the same of them; all nodes that are known to be alike have one twin. It is the last of
/// them, so that the way on from twins leads to what differs.
class Twins {
 public:
  /// A new node, its own twin.
  void add() {
    for (auto& twins : by_depth_) {
      twins.push_back(static_cast<std::int32_t>(twins.size()));
    }
  }
  void set(std::size_t depth, int node, int twin) {
    by_depth_[depth][static_cast<std::size_t>(node)] = twin;
  }

  /// Of a repetition: all nodes from `first` on are copies of its part, alike in all but what may
  /// follow them; texts go on at `end`.
  void add_copies(const Expression& repeat, int first, int copies, int end);
  /// When all nodes are there: repetitions of the very same part that the same bytes follow, and
  /// then their rules' ends, share twins from their ends backwards. `rest_of_rule`: these bytes, if
  /// nothing else may follow a node.
  void share_copies(const std::function<std::optional<std::string>(int node)>& rest_of_rule);

  /// `depth`: an index of kDepths.
  [[nodiscard]] std::int32_t find(std::size_t depth, std::int32_t node) const {
    return by_depth_[depth][static_cast<std::size_t>(node)];
  }
  /// In order, each once.
  [[nodiscard]] std::vector<std::int32_t> find(std::size_t depth,
                                               std::span<const std::int32_t> nodes) const;

 private:
  struct Copies {
    const Expression* repeat;
    int first;
    int size;  // of one copy
    int count;
    int end;
  };

  void share(const Copies& copies, const Copies& longest);

  std::vector<Copies> copies_;
  std::array<std::vector<std::int32_t>, kDepths.size()> by_depth_;
};

/// For each depth: of each state the last one that takes the same texts of up to so many
/// characters. Depths that would take too long to look at have no row.
std::vector<std::vector<int>> twin_states(const Regular& language);

}  // namespace winnow::grammar

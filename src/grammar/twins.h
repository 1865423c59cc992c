// Finds nodes of a grammar that are alike for the next few bytes.
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

/// The numbers of bytes for which nodes are compared. Few tokens are longer than the last.
inline constexpr std::array<std::size_t, 5> kDepths{4, 8, 16, 32, 128};

/// At a depth, a node and its twin accept the same texts of up to that many bytes, and end their
/// rule after the same of these. All nodes that are known to be alike have the same twin, which is
/// the last of them, so that from a twin the text moves on to nodes that differ.
class Twins {
 public:
  /// Adds a node, which is its own twin.
  void add() {
    for (auto& twins : by_depth_) {
      twins.push_back(static_cast<std::int32_t>(twins.size()));
    }
  }
  void set(std::size_t depth, int node, int twin) {
    by_depth_[depth][static_cast<std::size_t>(node)] = twin;
  }

  /// For a repetition: all nodes from `first` on are copies of its part, which differ only in what
  /// may follow them; texts continue at `end`.
  void add_copies(const Expression& repeat, int first, int copies, int end);
  /// Call it when all nodes exist. Repetitions of the same part share twins, from their ends
  /// backwards, if the same bytes follow them and then their rules' ends. `rest_of_rule`: these
  /// bytes, if nothing else may follow a node.
  void share_copies(const std::function<std::optional<std::string>(int node)>& rest_of_rule);

  [[nodiscard]] std::size_t bytes() const;
  /// The twin of a node. `depth`: an index of kDepths.
  [[nodiscard]] std::int32_t find(std::size_t depth, std::int32_t node) const {
    return by_depth_[depth][static_cast<std::size_t>(node)];
  }
  /// The twins of `nodes`, sorted, each once.
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

/// For each depth and state: the last state that accepts the same texts of up to that many
/// characters. Depths that would take too long have no row.
std::vector<std::vector<int>> twin_states(const Regular& language);

}  // namespace winnow::grammar

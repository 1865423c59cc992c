// Answers that think before they say something: for how long, and what holds behind the thought.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/token_constraint.h"
#include "server/openai/reasoning/thought_format.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

/// Lets a thought be any text of at most `budget` tokens, ends it then, and holds what follows to
/// another constraint. In channels a model may think several times; the budget is of all of it.
class ThoughtConstraint : public engine::TokenConstraint {
 public:
  struct Rules {
    ThoughtFormat format;
    std::optional<int> budget;             // tokens; none: any number
    std::vector<std::int32_t> end_tokens;  // that end an answer: none within a thought
    std::shared_ptr<const engine::TokenConstraint> answer;  // null: any text
  };

  /// `tokenizer` must outlive this.
  ThoughtConstraint(Rules rules, const Tokenizer& tokenizer, ThoughtStart start);

  [[nodiscard]] std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<ThoughtConstraint>(*this);
  }
  void allow(std::span<std::uint64_t> allowed) const override;
  void accept(std::int32_t token) override;

  ThoughtConstraint(const ThoughtConstraint& other);
  ThoughtConstraint& operator=(const ThoughtConstraint&) = delete;

 private:
  enum class Place : std::uint8_t { start, thought, forced, answer };

  void accept_first(std::int32_t token);
  void watch(std::int32_t token);
  void think(int tokens);
  void force(const std::vector<std::int32_t>& tokens);

  std::shared_ptr<const Rules> rules_;
  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> closing_;  // what ends a thought
  std::vector<std::int32_t> behind_;   // what follows one that has ended
  std::vector<std::int32_t> begin_;    // what begins one
  std::vector<std::int32_t> final_;    // what ends one that came when no budget was left
  std::unique_ptr<engine::TokenConstraint> answer_;
  Place place_;
  std::size_t begun_ = 0;             // tokens of begin_ that have come
  int spent_ = 0;                     // tokens of the thought
  std::vector<std::int32_t> forced_;  // that come next, the next one last
  std::string text_;                  // of the beginning, or the last bytes
};

}  // namespace winnow::server

// Constraints on reasoning: a budget for the thought, and a constraint for the answer after it.
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

/// Allows a thought of any text up to `budget` tokens, then ends it, and applies another constraint
/// to the answer. With channels, a model may think several times; the budget is for all together.
class ThoughtConstraint : public engine::TokenConstraint {
 public:
  struct Rules {
    ThoughtFormat format;
    std::optional<int> budget;             // tokens; none: any number
    std::vector<std::int32_t> end_tokens;  // that end an answer: not allowed in a thought
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
  std::vector<std::int32_t> closing_;  // ends a thought
  std::vector<std::int32_t> behind_;   // follows a thought
  std::vector<std::int32_t> begin_;    // begins a thought
  std::vector<std::int32_t> final_;    // ends a thought that begins when no budget is left
  std::unique_ptr<engine::TokenConstraint> answer_;
  Place place_;
  std::size_t begun_ = 0;             // tokens of begin_ seen so far
  int spent_ = 0;                     // tokens of thoughts so far
  std::vector<std::int32_t> forced_;  // the next tokens, in reverse order
  std::string text_;                  // of the beginning, or the last bytes
};

}  // namespace winnow::server

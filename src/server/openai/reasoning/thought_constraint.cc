#include "server/openai/reasoning/thought_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace winnow::server {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void leave_only(std::int32_t token, std::span<float> logits) {
  const float logit = logits[static_cast<std::size_t>(token)];
  std::ranges::fill(logits, kNever);
  logits[static_cast<std::size_t>(token)] = std::max(logit, 0.0F);
}

}  // namespace

ThoughtConstraint::ThoughtConstraint(Rules rules, const Tokenizer& tokenizer, ThoughtStart start)
    : rules_(std::make_shared<const Rules>(std::move(rules))),
      tokenizer_(&tokenizer),
      closing_(tokenizer.encode(fmt::format("\n{}\n\n", rules_->format.end),
                                {.add_special = false, .parse_special = true})),
      begin_(tokenizer.find(rules_->format.begin)),
      answer_(rules_->answer ? rules_->answer->fork() : nullptr),
      place_(start == ThoughtStart::closed ? Place::answer : Place::start) {
  if (start == ThoughtStart::open) {
    think(0);
  }
}

ThoughtConstraint::ThoughtConstraint(const ThoughtConstraint& other)
    : engine::TokenConstraint(other),
      rules_(other.rules_),
      tokenizer_(other.tokenizer_),
      closing_(other.closing_),
      begin_(other.begin_),
      answer_(other.answer_ ? other.answer_->fork() : nullptr),
      place_(other.place_),
      spent_(other.spent_),
      closed_(other.closed_),
      text_(other.text_) {}

void ThoughtConstraint::mask(std::span<float> logits) const {
  switch (place_) {
    case Place::start:
      if (answer_) {
        const float thought = begin_ ? logits[static_cast<std::size_t>(*begin_)] : kNever;
        answer_->mask(logits);
        if (begin_) {
          logits[static_cast<std::size_t>(*begin_)] = thought;
        }
      }
      break;
    case Place::thought:
      for (const std::int32_t token : rules_->end_tokens) {
        logits[static_cast<std::size_t>(token)] = kNever;
      }
      break;
    case Place::closing:
      leave_only(closing_[closed_], logits);
      break;
    case Place::answer:
      if (answer_) {
        answer_->mask(logits);
      }
      break;
  }
}

void ThoughtConstraint::accept(std::int32_t token) {
  switch (place_) {
    case Place::start:
      accept_first(token);
      break;
    case Place::thought:
      if (tokenizer_->has_token(token)) {
        text_ += tokenizer_->token_bytes(token, /*skip_special=*/false);
      }
      if (text_.find(rules_->format.end) != std::string::npos) {
        place_ = Place::answer;
        break;
      }
      text_.erase(0, text_.size() - std::min(text_.size(), rules_->format.end.size()));
      think(1);
      break;
    case Place::closing:
      place_ = ++closed_ == closing_.size() ? Place::answer : Place::closing;
      break;
    case Place::answer:
      if (answer_) {
        answer_->accept(token);
      }
      break;
  }
}

// Whether the answer begins with a thought shows with its first tokens.
void ThoughtConstraint::accept_first(std::int32_t token) {
  if (answer_ && token != begin_) {
    place_ = Place::answer;
    answer_->accept(token);
    return;
  }
  if (tokenizer_->has_token(token)) {
    text_ += tokenizer_->token_bytes(token, /*skip_special=*/false);
  }
  const std::string_view begin = rules_->format.begin;
  const std::string_view text =
      std::string_view(text_).substr(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  if (text.starts_with(begin)) {
    text_.clear();
    think(0);
  } else if (!begin.starts_with(text)) {
    place_ = Place::answer;
  }
}

// So many tokens of a thought more.
void ThoughtConstraint::think(int tokens) {
  spent_ += tokens;
  place_ = rules_->budget && spent_ >= *rules_->budget ? Place::closing : Place::thought;
}

}  // namespace winnow::server

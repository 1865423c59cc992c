#include "server/openai/reasoning/thought_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace winnow::server {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

std::uint64_t& word_of(std::int32_t token, std::span<std::uint64_t> allowed) {
  return allowed[static_cast<std::size_t>(token) / 64];
}

std::uint64_t bit_of(std::int32_t token) {
  return std::uint64_t{1} << (token % 64);
}

std::vector<std::int32_t> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

// The text that ends a thought whose budget is used up.
std::string closing_text(const ThoughtFormat& format) {
  return format.has_channels() ? fmt::format("{}{}", format.end, format.behind)
                               : fmt::format("\n{}\n\n", format.end);
}

}  // namespace

ThoughtConstraint::ThoughtConstraint(Rules rules, const Tokenizer& tokenizer, ThoughtStart start)
    : rules_(std::make_shared<const Rules>(std::move(rules))),
      tokenizer_(&tokenizer),
      closing_(tokens_of(tokenizer, closing_text(rules_->format))),
      behind_(tokens_of(tokenizer, rules_->format.behind)),
      begin_(tokens_of(tokenizer, rules_->format.begin)),
      final_(
          tokens_of(tokenizer, closing_text(rules_->format) + std::string(rules_->format.answer))),
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
      behind_(other.behind_),
      begin_(other.begin_),
      final_(other.final_),
      answer_(other.answer_ ? other.answer_->fork() : nullptr),
      place_(other.place_),
      begun_(other.begun_),
      spent_(other.spent_),
      forced_(other.forced_),
      text_(other.text_) {}

void ThoughtConstraint::allow(std::span<std::uint64_t> allowed) const {
  std::ranges::fill(allowed, place_ == Place::forced ? 0 : kAll);
  switch (place_) {
    case Place::start:
      if (answer_) {  // an answer, or the prefix of a thought
        answer_->allow(allowed);
        word_of(begin_[begun_], allowed) |= bit_of(begin_[begun_]);
      }
      break;
    case Place::thought:
      for (const std::int32_t token : rules_->end_tokens) {
        word_of(token, allowed) &= ~bit_of(token);
      }
      break;
    case Place::forced:
      word_of(forced_.back(), allowed) |= bit_of(forced_.back());
      break;
    case Place::answer:
      if (answer_) {
        answer_->allow(allowed);
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
        force(behind_);
        break;
      }
      text_.erase(0, text_.size() - std::min(text_.size(), rules_->format.end.size()));
      think(1);
      break;
    case Place::forced:
      forced_.pop_back();
      place_ = forced_.empty() ? Place::answer : Place::forced;
      break;
    case Place::answer:
      if (answer_) {
        answer_->accept(token);
      } else if (rules_->budget && rules_->format.has_channels()) {
        watch(token);
      }
      break;
  }
}

// The first tokens show whether the answer begins with a thought.
void ThoughtConstraint::accept_first(std::int32_t token) {
  if (answer_) {
    answer_->accept(token);
    if (token != begin_[begun_]) {
      place_ = Place::answer;
    } else if (++begun_ == begin_.size()) {
      answer_ = rules_->answer->fork();
      think(0);
    }
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

// Whether an answer with channels returns to thinking.
void ThoughtConstraint::watch(std::int32_t token) {
  if (tokenizer_->has_token(token)) {
    text_ += tokenizer_->token_bytes(token, /*skip_special=*/false);
  }
  const std::string_view begin = rules_->format.begin;
  if (text_.find(begin) == std::string::npos) {
    text_.erase(0, text_.size() - std::min(text_.size(), begin.size()));
    return;
  }
  text_.clear();
  if (spent_ < *rules_->budget) {
    think(0);
  } else {
    force(final_);
  }
}

// Allows this many more tokens of a thought.
void ThoughtConstraint::think(int tokens) {
  spent_ += tokens;
  place_ = Place::thought;
  if (rules_->budget && spent_ >= *rules_->budget) {
    force(closing_);
  }
}

// Forces these tokens, and then the answer.
void ThoughtConstraint::force(const std::vector<std::int32_t>& tokens) {
  text_.clear();
  forced_.assign(tokens.rbegin(), tokens.rend());
  place_ = forced_.empty() ? Place::answer : Place::forced;
}

}  // namespace winnow::server

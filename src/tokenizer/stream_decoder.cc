#include "tokenizer/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// Appends the replacement for `length` malformed bytes.
void append_replacement(std::size_t length, bool each_byte, std::string& out) {
  for (std::size_t i = 0; i < (each_byte ? length : 1); ++i) {
    out += kReplacementCharacter;
  }
}

}  // namespace

std::string StreamDecoder::push(std::int32_t id) {
  const bool skip = skip_special_ && std::ranges::find(marks_, id) == marks_.end();
  const bool first = begins_;
  std::string bytes =
      first ? tokenizer_->first_token_bytes(id, skip) : tokenizer_->token_bytes(id, skip);
  const bool skipped = skip && tokenizer_->is_special(id);
  begins_ = begins_ && skipped;
  if (skipped || (tokenizer_->drops_repeats() && std::exchange(previous_, id) == id)) {
    return {};
  }
  if (!tokenizer_->marks_last()) {
    return append(id, std::move(bytes));
  }
  std::optional<Held> before = std::exchange(held_, Held{id, first, std::move(bytes)});
  return before ? append(before->id, std::move(before->bytes)) : std::string();
}

std::string StreamDecoder::append(std::int32_t id, std::string bytes) {
  if (bytes.empty()) {
    return {};
  }
  const bool in_runs = tokenizer_->malformed() == Malformed::byte_run;
  if (in_runs && tokenizer_->is_byte(id)) {
    id_ = id;
    pending_ += bytes;
    return {};
  }
  std::string out = in_runs ? end_byte_run() : std::string();
  id_ = id;
  drop_first_space(bytes);
  bytes.insert(0, pending_);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::incomplete) {
      break;
    }
    if (step.kind == Utf8Step::Kind::character) {
      out += rest.substr(0, step.length);
    } else {
      append_replacement(step.length, tokenizer_->malformed() == Malformed::each_byte, out);
    }
    rest.remove_prefix(step.length);
  }
  pending_ = rest;
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  if (held_) {
    out = append(held_->id, tokenizer_->last_token_bytes(held_->id, held_->first));
  }
  if (tokenizer_->malformed() == Malformed::byte_run) {
    out += end_byte_run();
  } else if (!pending_.empty()) {
    append_replacement(pending_.size(), tokenizer_->malformed() == Malformed::each_byte, out);
  }
  pending_.clear();
  held_.reset();
  previous_.reset();
  begins_ = true;
  first_ = true;
  return out;
}

// The text of the current run of byte tokens.
std::string StreamDecoder::end_byte_run() {
  std::string text = std::exchange(pending_, {});
  if (!is_valid_utf8(text)) {
    std::string replaced;
    append_replacement(text.size(), /*each_byte=*/true, replaced);
    text = std::move(replaced);
  }
  drop_first_space(text);
  return text;
}

void StreamDecoder::drop_first_space(std::string& text) {
  if (!text.empty() && std::exchange(first_, false) && text.front() == ' ' &&
      tokenizer_->drops_first_space(id_)) {
    text.erase(0, 1);
  }
}

}  // namespace winnow

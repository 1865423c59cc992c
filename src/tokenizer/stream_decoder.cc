#include "tokenizer/stream_decoder.h"

#include <utility>

#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// Appends what stands for `length` malformed bytes.
void append_replacement(std::size_t length, bool each_byte, std::string& out) {
  for (std::size_t i = 0; i < (each_byte ? length : 1); ++i) {
    out += kReplacementCharacter;
  }
}

}  // namespace

std::string StreamDecoder::push(std::int32_t id) {
  std::string bytes = tokenizer_->token_bytes(id, skip_special_);
  if (bytes.empty()) {
    return {};
  }
  if (std::exchange(first_, false) && bytes.front() == ' ' && tokenizer_->drops_first_space(id)) {
    bytes.erase(0, 1);
  }
  bytes.insert(0, pending_);
  std::string out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::incomplete) {
      break;
    }
    if (step.kind == Utf8Step::Kind::character) {
      out += rest.substr(0, step.length);
    } else {
      append_replacement(step.length, tokenizer_->replaces_each_byte(), out);
    }
    rest.remove_prefix(step.length);
  }
  pending_ = rest;
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  if (!pending_.empty()) {
    append_replacement(pending_.size(), tokenizer_->replaces_each_byte(), out);
  }
  pending_.clear();
  first_ = true;
  return out;
}

}  // namespace winnow

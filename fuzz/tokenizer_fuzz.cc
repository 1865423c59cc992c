// Any bytes as tokenizer.json (what begins with "{", up to a zero byte; then a text) or as
// tokenizer.model (then a text, then one byte that is its length): an Error, or a tokenizer whose
// ids are tokens, decode to valid UTF-8, and stream to the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace {

using winnow::Tokenizer;

void check(bool ok) {
  if (!ok) {
    std::abort();
  }
}

void check_decoding(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                    bool skip_special) {
  winnow::StreamDecoder decoder(tokenizer, skip_special);
  std::string streamed;
  for (const std::int32_t id : ids) {
    const std::string delta = decoder.push(id);
    check(winnow::is_valid_utf8(delta));
    streamed += delta;
  }
  streamed += decoder.finish();
  check(streamed == tokenizer.decode(ids, skip_special));
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
    for (const std::int32_t id : ids) {
      check(id >= 0 && id < tokenizer.vocab_size());
    }
    check_decoding(tokenizer, ids, special);
  }
}

void check_json(std::string_view input) {
  const std::size_t end = input.find('\0');
  const auto tokenizer = winnow::parse_tokenizer_json(input.substr(0, end), "tokenizer.json");
  check_text(*tokenizer, end == std::string_view::npos ? "" : input.substr(end + 1));
}

void check_model(std::string_view input) {
  std::size_t length = static_cast<unsigned char>(input.back());
  input.remove_suffix(1);
  length = length < input.size() ? length : input.size();
  const std::string_view text = input.substr(input.size() - length);
  input.remove_suffix(length);
  const auto tokenizer = winnow::parse_sentencepiece(input, "tokenizer.model", {});
  check_text(*tokenizer, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) {
    return 0;
  }
  try {
    input.front() == '{' ? check_json(input) : check_model(input);
  } catch (const winnow::Error&) {
  }
  return 0;
}

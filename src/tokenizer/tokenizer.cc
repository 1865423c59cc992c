#include "tokenizer/tokenizer.h"

#include "tokenizer/stream_decoder.h"

namespace winnow {

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const std::int32_t id : ids) {
    text += decoder.push(id);
  }
  return text + decoder.finish();
}

}  // namespace winnow

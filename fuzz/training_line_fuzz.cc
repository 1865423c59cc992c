// Any text as a line of training data: an Error, or a document of known tokens with a weight each.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"
#include "train/document.h"

namespace {

constexpr const char* kModel = WINNOW_SOURCE_DIR "/assets/base";

bool is_sound(const winnow::train::Document& document, int vocab) {
  for (const std::int32_t token : document.tokens) {
    if (token < 0 || token >= vocab) {
      return false;
    }
  }
  for (const float weight : document.weights) {
    if (!(weight >= 0.0F && weight <= 1e6F)) {
      return false;
    }
  }
  return document.weights.empty() || document.weights.size() == document.tokens.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const winnow::model::ModelSpec config = winnow::model::read_spec(kModel);
  static const winnow::train::DocumentEncoder encoders[] = {{kModel, config, false},
                                                            {kModel, config, true}};
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  for (const winnow::train::DocumentEncoder& encoder : encoders) {
    try {
      if (!is_sound(encoder.encode(line), config.vocab)) {
        std::abort();
      }
    } catch (const winnow::Error&) {
      return 0;
    }
  }
  return 0;
}

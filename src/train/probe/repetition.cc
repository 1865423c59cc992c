#include "train/probe/repetition.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "tokenizer/chat_template.h"
#include "train/document.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

// The publication's words.
constexpr const char* kRequest = "\n\nRepeat the previous context exactly.";
// Stands for the text while the template is rendered. A template may trim it, not change it.
constexpr const char* kPlace = "THE-TEXT";

// What a chat has before the text and between it and its repetition.
std::pair<std::string, std::string> around_text(const ChatTemplate& chat,
                                                const std::filesystem::path& model) {
  const std::string place = kPlace;
  const ordered_json messages = {{{"role", "user"}, {"content", place + kRequest}},
                                 {{"role", "assistant"}, {"content", place}}};
  const std::string rendered = chat.render(messages, false);
  const std::size_t first = rendered.find(place);
  const std::size_t second = rendered.find(place, first + 1);
  require(first != std::string::npos && second != std::string::npos,
          "{}: the chat template does not render a user's text and the answer that repeats it",
          model.string());
  const std::size_t end = first + place.size();
  return {rendered.substr(0, first), rendered.substr(end, second - end)};
}

}  // namespace

Repeater::Repeater(const std::filesystem::path& model, const model::ModelSpec& spec) {
  const auto tokenizer = load_fitting_tokenizer(model, spec);
  const auto encode = [&](const std::string& text, bool parse_special) {
    return tokenizer->encode(text, {.add_special = false, .parse_special = parse_special});
  };
  if (const auto chat = ChatTemplate::load(model)) {
    const auto [before, between] = around_text(*chat, model);
    before_ = encode(before, true);
    between_ = encode(between, true);
    return;
  }
  if (spec.bos_token) {
    before_ = {*spec.bos_token};
  }
  between_ = encode(std::string(kRequest) + "\n\n", false);
}

Repetition Repeater::repeat(std::span<const std::int32_t> text) const {
  Repetition result{.tokens = before_, .text = before_.size(), .length = text.size()};
  result.tokens.insert(result.tokens.end(), text.begin(), text.end());
  result.tokens.insert(result.tokens.end(), between_.begin(), between_.end());
  result.again = result.tokens.size();
  result.tokens.insert(result.tokens.end(), text.begin(), text.end());
  return result;
}

std::vector<std::span<const std::int32_t>> draw_pieces(const Shards& shards, std::size_t length,
                                                       std::size_t count, std::uint64_t seed) {
  std::vector<std::span<const std::int32_t>> pieces;
  for (std::size_t i = 0; i < shards.documents(); ++i) {
    const auto tokens = shards.document(i).tokens;
    for (std::size_t first = 0; first + length <= tokens.size(); first += length) {
      pieces.push_back(tokens.subspan(first, length));
    }
  }
  Random random(seed);
  const std::size_t drawn = std::min(count, pieces.size());
  for (std::size_t i = 0; i < drawn; ++i) {
    std::swap(pieces[i], pieces[i + random.bits() % (pieces.size() - i)]);
  }
  pieces.resize(drawn);
  return pieces;
}

}  // namespace winnow::train

#include "tokenizer/token_text.h"

#include <array>
#include <charconv>
#include <utility>

#include "checkpoint/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/component_depth.h"

namespace winnow {
namespace {

// Reverses a WordPiece tokenizer's splitting of English: "do n't ." becomes "don't.".
std::string without_spaces_before_marks(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kMarks{
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [with_space, without] : kMarks) {
    text = replace_all(text, with_space, without);
  }
  return text;
}

}  // namespace

int byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) {
    return -1;
  }
  int byte = -1;
  const char* end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
  return error == std::errc() && stop == end && byte >= 0 ? byte : -1;
}

TokenText::TokenText(const JsonField& field) {
  if (field.is_null()) {
    steps_.emplace_back([](std::string_view token, Place place) {
      return std::string(place.first ? 0 : 1, ' ').append(token);
    });
  } else {
    add(field, 0);
  }
}

void TokenText::add(const JsonField& field, int depth) {
  check_depth(field, depth);
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& step : field["decoders"].elements()) {
      add(step, depth + 1);
    }
  } else if (type == "ByteLevel" && !fused_ && !byte_fallback_ && steps_.empty()) {
    byte_level_ = true;
    fused_ = true;
  } else if (type == "ByteFallback" && !fused_) {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip" && fused_) {
    add_strip(field);
  } else if (!fused_ && (!byte_fallback_ || type == "Metaspace")) {  // Metaspace ignores bytes
    add_step(field);
  } else {
    field.unsupported(fmt::format("decoder {} in this place", in_quotes(type)));
  }
}

void TokenText::add_strip(const JsonField& field) {
  const nlohmann::json start = field["start"].json();
  if (field["content"].as_string() != " " || (start != 0 && start != 1) ||
      field["stop"].json() != 0) {
    field.unsupported("a Strip of anything but the first space");
  }
  drop_first_space_ = start == 1;
}

void TokenText::add_step(const JsonField& field) {
  const std::string& type = field.type();
  if (type == "Replace") {
    steps_.emplace_back(
        [replacement = Replacement(field, growth_)](std::string_view token, Place /*place*/) {
          return replacement.apply(token);
        });
  } else if (type == "Metaspace") {
    const std::string space = field["replacement"].as_string();
    const JsonField scheme = field["prepend_scheme"];
    const bool prepends = scheme.is_null() ? field["add_prefix_space"].as_bool_or(true)
                                           : scheme.as_string() != "never";
    require(!space.empty(), "{}: replacement: expected a character", field.where());
    steps_.emplace_back([space, prepends](std::string_view token, Place place) {
      return replace_all(token, space, place.first && prepends ? "" : " ");
    });
  } else if (type == "WordPiece") {
    const std::string prefix = field["prefix"].as_string();
    const bool cleanup = field["cleanup"].as_bool_or(true);
    steps_.emplace_back([prefix, cleanup](std::string_view token, Place place) {
      std::string text = place.first                 ? std::string(token)
                         : token.starts_with(prefix) ? std::string(token.substr(prefix.size()))
                                                     : std::string(" ").append(token);
      return cleanup ? without_spaces_before_marks(text) : text;
    });
  } else if (type == "BPEDecoder") {
    add_bpe(field);
  } else if (type == "CTC" && steps_.empty()) {
    add_ctc(field);
  } else if (type == "Strip") {
    const std::string content = field["content"].as_string();
    const std::int32_t start = field["start"].as_id();
    const std::int32_t stop = field["stop"].as_id();
    require(!content.empty(), "{}: content: expected a character", field.where());
    steps_.emplace_back([=](std::string_view token, Place /*place*/) {
      for (std::int32_t i = 0; i < start && token.starts_with(content); ++i) {
        token.remove_prefix(content.size());
      }
      for (std::int32_t i = 0; i < stop && token.ends_with(content); ++i) {
        token.remove_suffix(content.size());
      }
      return std::string(token);
    });
  } else {
    field.unsupported(fmt::format("decoder {}", in_quotes(type)));
  }
}

// The marker of a word's end becomes a space, except at the end of the text.
void TokenText::add_bpe(const JsonField& field) {
  const std::string suffix = field["suffix"].is_null() ? "</w>" : field["suffix"].as_string();
  require(!suffix.empty(), "{}: suffix: expected a text, not an empty one", field.where());
  marks_last_ = true;
  steps_.emplace_back([suffix](std::string_view token, Place place) {
    return replace_all(token, suffix, place.last ? "" : " ");
  });
}

// Connectionist temporal classification: a token may come several times in a row.
void TokenText::add_ctc(const JsonField& field) {
  const std::string pad = field["pad_token"].as_string();
  const std::string delimiter = field["word_delimiter_token"].as_string();
  const bool cleanup = field["cleanup"].as_bool_or(true);
  require(!pad.empty() && !delimiter.empty(),
          "{}: expected a pad_token and a word_delimiter_token that are not empty", field.where());
  drops_repeats_ = true;
  steps_.emplace_back([=](std::string_view token, Place /*place*/) {
    const std::string text = replace_all(token, pad, "");
    return cleanup ? replace_all(without_spaces_before_marks(text), delimiter, " ") : text;
  });
}

std::string TokenText::bytes_of(std::string_view token, bool first, bool last) const {
  if (byte_level_) {
    return from_byte_alphabet(token).value_or(std::string(token));
  }
  if (const int byte = byte_fallback_ ? byte_token(token) : -1; byte >= 0) {
    return std::string(1, static_cast<char>(byte));
  }
  std::string text(token);
  for (const Step& step : steps_) {
    text = step(text, {first, last});
  }
  return text;
}

}  // namespace winnow

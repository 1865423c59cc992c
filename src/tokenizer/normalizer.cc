#include "tokenizer/normalizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/char_class.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/component_depth.h"
#include "tokenizer/unicode_forms.h"

namespace winnow {
namespace {

// Multiplies the growth of a chain of steps; Error when it becomes absurd.
void multiply_growth(double& growth, double factor, const JsonField& field) {
  constexpr double kMaxGrowth = 256;
  growth *= std::max(1.0, factor);
  require(growth <= kMaxGrowth, "{}: makes texts {:.0f} times as long; expected at most {:.0f}",
          field.where(), growth, kMaxGrowth);
}

std::string stripped(std::string_view text, bool left, bool right) {
  text.remove_prefix(left ? leading_space(text) : 0);
  text.remove_suffix(right ? trailing_space(text) : 0);
  return std::string(text);
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const std::size_t found = text.find(what);
    out += text.substr(0, found);
    if (found == std::string_view::npos) {
      return out;
    }
    out += with;
    text.remove_prefix(found + what.size());
  }
}

Replacement::Replacement(const JsonField& field, double& growth) {
  const JsonField pattern = field["pattern"];
  with_ = field["content"].as_string();
  double shortest = 1;
  if (const JsonField regex = pattern["Regex"]; !regex.is_null()) {
    regex_.emplace(regex.as_string(), regex.where());
  } else if (const JsonField what = pattern["String"]; !what.is_null()) {
    what_ = what.as_string();
    require(!what_.empty(), "{}: expected a string to replace, not an empty one", what.where());
    shortest = static_cast<double>(what_.size());
  } else {
    pattern.expected("{\"Regex\": \"...\"} or {\"String\": \"...\"}");
  }
  // A regular expression may also match between all characters.
  multiply_growth(growth, static_cast<double>(with_.size()) / shortest + (regex_ ? 1 : 0), field);
}

std::vector<TextRange> Replacement::find_all(std::string_view text) const {
  if (regex_) {  // an empty text stays empty, even if the expression matches it
    return text.empty() ? std::vector<TextRange>() : regex_->find_all(text);
  }
  std::vector<TextRange> matches;
  for (std::size_t at = text.find(what_); at != std::string_view::npos;
       at = text.find(what_, at + what_.size())) {
    matches.push_back({at, at + what_.size()});
  }
  return matches;
}

std::string Replacement::apply(std::string_view text) const {
  std::string out;
  std::size_t done = 0;
  for (const TextRange match : find_all(text)) {
    out.append(text.substr(done, match.begin - done)).append(with_);
    done = match.end;
  }
  return out.append(text.substr(done));
}

// Inserted text counts as coming from the last character that it replaces.
std::size_t Replacement::origin_after(std::string_view text, std::size_t origin) const {
  std::size_t after = 0;
  std::size_t done = 0;
  for (const TextRange match : find_all(text)) {
    if (match.end > origin) {
      return after + std::min(match.begin, origin) - done;
    }
    after += match.begin - done + with_.size();
    done = match.end;
  }
  return after + origin - done;
}

Normalizer::Normalizer(const JsonField& field) {
  if (!field.is_null()) {
    add(field, 0);
  }
}

void Normalizer::add_step(std::function<std::string(std::string_view)> apply) {
  steps_.push_back({std::move(apply), nullptr});
}

void Normalizer::add(const JsonField& field, int depth) {
  constexpr std::array<std::pair<std::string_view, UnicodeForm>, 4> kForms{
      {{"NFC", UnicodeForm::nfc},
       {"NFD", UnicodeForm::nfd},
       {"NFKC", UnicodeForm::nfkc},
       {"NFKD", UnicodeForm::nfkd}}};
  constexpr double kLongestDecomposition = 11;  // of U+FDFA, from 3 bytes to 33
  check_depth(field, depth);
  const std::string& type = field.type();
  const auto* form =
      std::ranges::find_if(kForms, [&](const auto& entry) { return entry.first == type; });
  if (type == "Sequence") {
    for (const JsonField& step : field["normalizers"].elements()) {
      add(step, depth + 1);
    }
  } else if (form != kForms.end()) {
    multiply_growth(growth_, type.size() == 4 ? kLongestDecomposition : 3, field);
    add_step([form = form->second](std::string_view text) { return to_form(form, text); });
  } else if (type == "Lowercase") {
    multiply_growth(growth_, 1.5, field);
    add_step(to_lower_case);
  } else if (type == "StripAccents") {
    add_step(without_marks);
  } else if (type == "Strip") {
    add_strip(field);
  } else if (type == "Prepend") {
    add_prepend(field);
  } else if (type == "Replace") {
    const Replacement replacement(field, growth_);
    steps_.push_back({[replacement](std::string_view text) { return replacement.apply(text); },
                      [replacement](std::string_view text, std::size_t origin) {
                        return replacement.origin_after(text, origin);
                      }});
  } else if (type == "ByteLevel") {
    multiply_growth(growth_, 2, field);
    add_step([](std::string_view text) {
      std::string out;
      append_in_byte_alphabet(text, out);
      return out;
    });
  } else if (type == "BertNormalizer") {
    add_bert(field);
  } else if (type == "Nmt") {
    add_step(normalize_nmt);
  } else if (type == "Precompiled") {
    const Charsmap charsmap(field["precompiled_charsmap"]);
    multiply_growth(growth_, charsmap.growth(), field);
    add_step([charsmap](std::string_view text) { return charsmap.apply(text); });
  } else {
    field.unsupported(fmt::format("normalizer {}", in_quotes(type)));
  }
}

void Normalizer::add_bert(const JsonField& field) {
  if (field["clean_text"].as_bool_or(true)) {
    add_step(without_controls);
  }
  if (field["handle_chinese_chars"].as_bool_or(true)) {
    multiply_growth(growth_, 2, field);
    add_step(with_chinese_apart);
  }
  const bool lower_case = field["lowercase"].as_bool_or(true);
  if (field["strip_accents"].as_bool_or(lower_case)) {
    multiply_growth(growth_, 3, field);
    add_step([](std::string_view text) {
      return without_nonspacing_marks(to_form(UnicodeForm::nfd, text));
    });
  }
  if (lower_case) {
    multiply_growth(growth_, 1.5, field);
    add_step(to_lower_case);
  }
}

void Normalizer::add_strip(const JsonField& field) {
  const bool left = field["strip_left"].as_bool();
  const bool right = field["strip_right"].as_bool();
  steps_.push_back({[=](std::string_view text) { return stripped(text, left, right); },
                    [=](std::string_view text, std::size_t origin) {
                      return origin - std::min(origin, left ? leading_space(text) : 0);
                    }});
}

void Normalizer::add_prepend(const JsonField& field) {
  constexpr std::size_t kMaxPrepend = 256;
  const std::string before = field["prepend"].as_string();
  require(before.size() <= kMaxPrepend, "{}: prepends {} bytes; expected at most {}", field.where(),
          before.size(), kMaxPrepend);
  steps_.push_back({[before](std::string_view text) {
                      return text.empty() ? std::string() : std::string(before).append(text);
                    },
                    [before](std::string_view /*text*/, std::size_t origin) {
                      return origin > 0 ? origin + before.size() : 0;
                    }});
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    out = step.apply(out);
  }
  return out;
}

TracedText Normalizer::trace(std::string_view text, std::size_t origin) const {
  std::string out(text);
  for (const Step& step : steps_) {
    origin = origin == 0         ? 0
             : step.origin_after ? step.origin_after(out, origin)
                                 : step.apply(std::string_view(out).substr(0, origin)).size();
    out = step.apply(out);
    origin = std::min(origin, out.size());
  }
  return {std::move(out), origin};
}

}  // namespace winnow

#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "checkpoint/json.h"
#include "tokenizer/component_depth.h"
#include "tokenizer/unicode_tables.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// utf8proc lets U+11A7 vanish after a Hangul syllable: it takes it for the first of the trailing
// consonants, which begin one later.
constexpr char32_t kBeforeTrailingConsonants = 0x11A7;

int combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Appends the full canonical decomposition of a character.
void decompose(char32_t code, std::vector<utf8proc_int32_t>& codes) {
  constexpr int kMost = 8;  // no canonical decomposition is longer than 4
  utf8proc_int32_t parts[kMost];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts, kMost,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  codes.insert(codes.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, kMost));
}

// Sorts each run of combining characters by class. utf8proc can do this too, but in quadratic time.
void reorder(std::vector<utf8proc_int32_t>& codes) {
  const auto combines = [](utf8proc_int32_t code) { return combining_class(code) != 0; };
  auto run = codes.begin();
  while ((run = std::find_if(run, codes.end(), combines)) != codes.end()) {
    const auto end = std::find_if_not(run, codes.end(), combines);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = end;
  }
}

// Appends what decomposed `codes` compose to, and empties them.
void compose(std::vector<utf8proc_int32_t>& codes, std::string& out) {
  reorder(codes);
  const auto count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(codes[static_cast<std::size_t>(i)]), out);
  }
  codes.clear();
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (is_ascii(text)) {
    return std::string(text);
  }
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (combines_since_unicode_10(step.code) || step.code == kBeforeTrailingConsonants) {
      compose(codes, out);
      append_utf8(step.code, out);
    } else {
      decompose(step.code, codes);
    }
    text.remove_prefix(step.length);
  }
  compose(codes, out);
  return out;
}

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
  const JsonField what = field["pattern"]["String"];
  if (what.is_null() || what.as_string().empty()) {
    field["pattern"].unsupported("a pattern other than {\"String\": \"...\"}");
  }
  what_ = what.as_string();
  with_ = field["content"].as_string();
  constexpr double kMaxGrowth = 256;
  growth *= std::max(1.0, static_cast<double>(with_.size()) / static_cast<double>(what_.size()));
  require(growth <= kMaxGrowth, "{}: makes texts {:.0f} times as long; expected at most {:.0f}",
          field.where(), growth, kMaxGrowth);
}

std::string Replacement::apply(std::string_view text) const {
  return replace_all(text, what_, with_);
}

Normalizer::Normalizer(const JsonField& field) {
  if (!field.is_null()) {
    add(field, 0);
  }
}

void Normalizer::add(const JsonField& field, int depth) {
  check_depth(field, depth);
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& step : field["normalizers"].elements()) {
      add(step, depth + 1);
    }
  } else if (type == "NFC") {
    steps_.emplace_back(Nfc{});
  } else if (type == "Prepend") {
    constexpr std::size_t kMaxPrepend = 256;
    const std::string text = field["prepend"].as_string();
    require(text.size() <= kMaxPrepend, "{}: prepends {} bytes; expected at most {}", field.where(),
            text.size(), kMaxPrepend);
    steps_.emplace_back(Prepend{text});
  } else if (type == "Replace") {
    steps_.emplace_back(Replacement(field, growth_));
  } else {
    field.unsupported(fmt::format("normalizer {}", in_quotes(type)));
  }
}

std::string Normalizer::apply(const Step& step, std::string_view text) {
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    std::string out = text.empty() ? "" : prepend->text;
    return out.append(text);
  }
  if (const auto* replace = std::get_if<Replacement>(&step)) {
    return replace->apply(text);
  }
  return to_nfc(text);
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    out = apply(step, out);
  }
  return out;
}

}  // namespace winnow

#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/char_class.h"
#include "tokenizer/component_depth.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/split.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// GPT-2's pattern: https://github.com/openai/gpt-2/blob/master/src/encoder.py
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// `piece` was split into `out`'s pieces from `from` on: how many bytes of these come from its first
// `origin` bytes.
std::size_t kept_origin(std::string_view piece, std::size_t origin, const Pieces& out,
                        std::size_t from) {
  std::size_t kept = 0;
  std::size_t at = 0;
  for (; from < out.size(); ++from) {
    at = piece.find(out[from], at);
    if (at >= origin) {
      break;
    }
    kept += std::min(out[from].size(), origin - at);
    at += out[from].size();
  }
  return kept;
}

// How many of the first `origin` bytes of all pieces are in the piece that begins at `begin`.
std::size_t origin_in(std::string_view piece, std::size_t begin, std::size_t origin) {
  return std::min(piece.size(), origin - std::min(origin, begin));
}

class Split : public PreTokenizer::Step {
 public:
  explicit Split(Splitter splitter) : splitter_(std::move(splitter)) {}

  [[nodiscard]] Pieces apply(const Pieces& pieces, std::size_t& origin) const override {
    Pieces out;
    out.reserve(pieces.bytes(), pieces.size() + pieces.bytes() / 4);
    std::size_t begin = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::size_t before = out.size();
      splitter_.split(pieces[i], out);
      if (begin < origin) {
        kept += kept_origin(pieces[i], origin_in(pieces[i], begin, origin), out, before);
      }
      begin += pieces[i].size();
    }
    origin = kept;
    return out;
  }
  [[nodiscard]] const Splitter* left_to_right() const override {
    return splitter_.goes_on() ? &splitter_ : nullptr;
  }

 private:
  Splitter splitter_;
};

// Replaces every byte by its character in GPT-2's alphabet.
class ByteLevel : public PreTokenizer::Step {
 public:
  explicit ByteLevel(const JsonField& field)
      : add_prefix_space_(field["add_prefix_space"].as_bool_or(true)) {
    if (field["use_regex"].as_bool_or(true)) {
      splitter_.emplace(Regex(kGpt2Pattern, field.where()), SplitBehavior::isolated);
    }
  }

  [[nodiscard]] Pieces apply(const Pieces& pieces, std::size_t& origin) const override {
    origin = origin_after(pieces, origin);
    if (!add_prefix_space_ && !splitter_) {
      return in_alphabet(pieces);
    }
    Pieces cut;
    cut.reserve(pieces.bytes() + pieces.size(), pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const bool prefix = wants_prefix(pieces[i]);
      std::string piece(prefix ? 1 : 0, ' ');
      piece += pieces[i];
      if (splitter_) {
        splitter_->split(piece, cut);
      } else {
        cut.add(piece);
      }
    }
    return in_alphabet(cut);
  }
  [[nodiscard]] bool rewrites() const override { return true; }

 private:
  [[nodiscard]] bool wants_prefix(std::string_view piece) const {
    return add_prefix_space_ && !piece.starts_with(' ');
  }
  [[nodiscard]] std::size_t origin_after(const Pieces& pieces, std::size_t origin) const {
    std::string text;
    std::size_t begin = 0;
    for (std::size_t i = 0; begin < origin && i < pieces.size(); ++i) {
      append_in_byte_alphabet(wants_prefix(pieces[i]) ? " " : "", text);
      append_in_byte_alphabet(pieces[i].substr(0, origin_in(pieces[i], begin, origin)), text);
      begin += pieces[i].size();
    }
    return text.size();
  }
  static Pieces in_alphabet(const Pieces& pieces) {
    Pieces out;
    out.reserve(pieces.bytes() + pieces.bytes() / 2, pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      out.add_written([&](std::string& text) { append_in_byte_alphabet(pieces[i], text); });
    }
    return out;
  }

  bool add_prefix_space_;
  std::optional<Splitter> splitter_;
};

// SentencePiece's method: spaces become a visible character, and one is put before the text.
class Metaspace : public PreTokenizer::Step {
 public:
  explicit Metaspace(const JsonField& field)
      : replacement_(field["replacement"].as_string()), scheme_(read_scheme(field)) {
    require(!replacement_.empty() && replacement_.size() == utf8_length(replacement_[0]),
            "{}: replacement {}; expected one character", field.where(), in_quotes(replacement_));
    require(scheme_ == "always" || scheme_ == "first" || scheme_ == "never",
            "{}: unknown prepend_scheme {}; expected always, first or never", field.where(),
            in_quotes(scheme_));
    if (field["split"].as_bool_or(true)) {
      splitter_.emplace(replacement_, SplitBehavior::merged_with_next);
    }
  }

  [[nodiscard]] Pieces apply(const Pieces& pieces, std::size_t& origin) const override {
    Pieces out;
    std::size_t begin = 0;
    std::size_t after = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string piece = replace_all(pieces[i], " ", replacement_);
      const std::size_t own = origin_in(pieces[i], begin, origin);
      begin += pieces[i].size();
      after += replace_all(pieces[i].substr(0, own), " ", replacement_).size();
      const bool wants = scheme_ == "always" || (scheme_ == "first" && own > 0);
      if (wants && !piece.starts_with(replacement_)) {
        piece.insert(0, replacement_);
        after += own > 0 ? replacement_.size() : 0;
      }
      if (splitter_) {
        splitter_->split(piece, out);
      } else {
        out.add(piece);
      }
    }
    origin = after;
    return out;
  }
  [[nodiscard]] bool rewrites() const override { return true; }
  // The first piece may get a prefix.
  [[nodiscard]] bool is_local() const override { return false; }

 private:
  // Older files use add_prefix_space.
  static std::string read_scheme(const JsonField& field) {
    if (!field["prepend_scheme"].is_null()) {
      return field["prepend_scheme"].as_string();
    }
    return field["add_prefix_space"].as_bool_or(true) ? "always" : "never";
  }

  std::string replacement_;
  std::string scheme_;
  std::optional<Splitter> splitter_;
};

// Pieces with a fixed number of characters.
class FixedLength : public PreTokenizer::Step {
 public:
  explicit FixedLength(const JsonField& field)
      : length_(static_cast<std::size_t>(field["length"].as_id())) {
    require(length_ > 0, "{}: length: expected at least 1", field.where());
  }

  [[nodiscard]] Pieces apply(const Pieces& pieces, std::size_t& /*origin*/) const override {
    Pieces out;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string_view rest = pieces[i];
      while (!rest.empty()) {
        std::size_t bytes = 0;
        for (std::size_t count = 0; count < length_ && bytes < rest.size(); ++count) {
          bytes += utf8_length(rest[bytes]);
        }
        out.add(rest.substr(0, bytes));
        rest.remove_prefix(bytes);
      }
    }
    return out;
  }

 private:
  std::size_t length_;
};

// A new piece begins at each change of script, except after characters that fit any script.
class UnicodeScripts : public PreTokenizer::Step {
 public:
  [[nodiscard]] Pieces apply(const Pieces& pieces, std::size_t& origin) const override {
    Pieces out;
    std::size_t begin = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::size_t before = out.size();
      split(pieces[i], out);
      kept += kept_origin(pieces[i], origin_in(pieces[i], begin, origin), out, before);
      begin += pieces[i].size();
    }
    origin = kept;
    return out;
  }

 private:
  // Text before the first script is dropped.
  static void split(std::string_view piece, Pieces& out) {
    std::string_view last;
    std::size_t begin = piece.size();
    for (std::size_t at = 0; at < piece.size();) {
      const Utf8Step step = utf8_step(piece.substr(at));
      const std::string_view script = script_of(step.code);
      if (!script.empty() && script != last) {
        out.add(piece.substr(begin, at - std::min(at, begin)));
        begin = at;
        last = script;
      }
      at += step.length;
    }
    out.add(piece.substr(begin));
  }
};

SplitBehavior behavior_or_isolated(const JsonField& field) {
  return field.is_null() ? SplitBehavior::isolated : parse_split_behavior(field);
}

// Words, and runs of characters that are neither word nor white space: "Whitespace".
Splitter word_splitter(const JsonField& field) {
  return {Regex("[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+", field.where()),
          SplitBehavior::removed, /*invert=*/true};
}

Splitter read_split(const JsonField& field) {
  const SplitBehavior behavior = parse_split_behavior(field["behavior"]);
  const bool invert = field["invert"].as_bool_or(false);
  const JsonField regex = field["pattern"]["Regex"];
  if (!regex.is_null()) {
    return {Regex(regex.as_string(), regex.where()), behavior, invert};
  }
  const JsonField literal = field["pattern"]["String"];
  if (literal.is_null() || literal.as_string().empty()) {
    field["pattern"].expected("{\"Regex\": \"...\"} or {\"String\": \"...\"}, not empty");
  }
  return {literal.as_string(), behavior, invert};
}

Splitter read_digits(const JsonField& field) {
  const bool each = field["individual_digits"].as_bool_or(false);
  return {Regex("\\p{N}", field.where()),
          each ? SplitBehavior::isolated : SplitBehavior::contiguous};
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonField& field) {
  if (!field.is_null()) {
    add(field, 0);
  }
}

void PreTokenizer::add(const JsonField& field, int depth) {
  check_depth(field, depth);
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& step : field["pretokenizers"].elements()) {
      add(step, depth + 1);
    }
  } else if (type == "Split") {
    add_split(read_split(field));
  } else if (type == "Digits") {
    add_split(read_digits(field));
  } else if (type == "Punctuation") {
    add_split({is_punctuation, behavior_or_isolated(field["behavior"])});
  } else if (type == "Whitespace") {
    add_split(word_splitter(field));
  } else if (type == "WhitespaceSplit") {
    add_split({is_space, SplitBehavior::removed});
  } else if (type == "BertPreTokenizer") {
    add_split({is_space, SplitBehavior::removed});
    add_split({is_punctuation, SplitBehavior::isolated});
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = field["delimiter"].as_string();
    require(!delimiter.empty(), "{}: delimiter: expected a character", field.where());
    add_split({delimiter, SplitBehavior::removed});
  } else if (type == "UnicodeScripts") {
    steps_.push_back(std::make_shared<UnicodeScripts>());
  } else if (type == "FixedLength") {
    steps_.push_back(std::make_shared<FixedLength>(field));
  } else if (type == "ByteLevel") {
    add_rewriting(std::make_shared<ByteLevel>(field), field);
  } else if (type == "Metaspace") {
    add_rewriting(std::make_shared<Metaspace>(field), field);
  } else {
    field.unsupported(fmt::format("pre_tokenizer {}", in_quotes(type)));
  }
}

void PreTokenizer::add_split(Splitter splitter) {
  steps_.push_back(std::make_shared<Split>(std::move(splitter)));
}

// Models do this once or twice; many steps, each doubling the text, would be an attack.
void PreTokenizer::add_rewriting(std::shared_ptr<const Step> step, const JsonField& field) {
  constexpr int kMost = 3;
  if (std::ranges::count_if(steps_, [](const auto& s) { return s->rewrites(); }) >= kMost) {
    field.unsupported(fmt::format("more than {} steps that rewrite the text", kMost));
  }
  steps_.push_back(std::move(step));
}

Pieces PreTokenizer::apply(std::string_view text, std::size_t origin) const {
  return apply_from(0, Pieces(text), origin);
}

Pieces PreTokenizer::apply_from(std::size_t step, Pieces pieces, std::size_t origin) const {
  for (; step < steps_.size(); ++step) {
    pieces = steps_[step]->apply(pieces, origin);
  }
  return pieces;
}

bool PreTokenizer::goes_on() const {
  return !steps_.empty() && steps_.front()->left_to_right() != nullptr &&
         std::ranges::all_of(steps_, &Step::is_local);
}

PreTokenizer::Cut PreTokenizer::cut_from(std::string_view text, std::size_t from, bool open) const {
  Pieces pieces;
  pieces.reserve(text.size() - from, (text.size() - from) / 4);
  const std::size_t end = steps_.front()->left_to_right()->split_from(text, from, open, pieces);
  return {apply_from(1, std::move(pieces), 0), end};
}

}  // namespace winnow

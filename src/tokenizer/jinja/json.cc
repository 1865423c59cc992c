// json.dumps, as the tojson filter of Hugging Face calls it.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/print.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

void append_unit(unsigned unit, std::string& out) {
  out += fmt::format("\\u{:04x}", unit);
}

void append_not_ascii(char32_t code, std::string& out) {
  if (code < 0x10000) {
    append_unit(static_cast<unsigned>(code), out);
  } else {
    const auto rest = static_cast<unsigned>(code) - 0x10000U;
    append_unit(0xD800U + (rest >> 10), out);
    append_unit(0xDC00U + (rest & 0x3FFU), out);
  }
}

void append_character(std::string_view character, char32_t code, bool ascii, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  const std::size_t at = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : std::string::npos;
  if (at != std::string_view::npos) {
    out += '\\';
    out += kLetters[at];
  } else if (code < 0x20) {
    append_unit(static_cast<unsigned>(code), out);
  } else if (ascii && code > 0x7E) {
    // Python does not escape DEL
    code == 0x7F ? static_cast<void>(out += '\x7F') : append_not_ascii(code, out);
  } else {
    out += character;
  }
}

std::string quoted(std::string_view text, bool ascii) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    append_character(text.substr(0, step.length), step.code, ascii, out);
    text.remove_prefix(step.length);
  }
  return out + '"';
}

std::string json_float(double value) {
  if (std::isfinite(value)) {
    return float_repr(value);
  }
  return std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void print(const Value& value) {
    const Sequence* sequence = value.sequence();
    if (const std::string* text = value.text()) {
      add(quoted(*text, style_.ascii));
    } else if (sequence != nullptr && sequence->indexable()) {
      print_list(*sequence);
    } else if (const Mapping* mapping = value.mapping()) {
      print_object(*mapping);
    } else {
      add(atom(value));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string atom(const Value& value) {
    if (value.is_none()) {
      return "null";
    }
    if (const bool* b = value.boolean()) {
      return *b ? "true" : "false";
    }
    if (const std::int64_t* i = value.integer()) {
      return fmt::format("{}", *i);
    }
    if (const double* d = value.real()) {
      return json_float(*d);
    }
    require_defined(value);
    fail("tojson: a {} is not JSON", type_name(value));
  }

  void add(std::string_view text) {
    runtime_.spend_text(text.size());
    out_ += text;
    require(out_.size() <= Runtime::kMaxText, "tojson: more than {} bytes", Runtime::kMaxText);
  }

  void new_line() {
    if (style_.indent) {
      add("\n");
      for (int i = 0; i < depth_; ++i) {
        add(*style_.indent);
      }
    }
  }

  void open(std::string_view bracket) {
    add(bracket);
    ++depth_;
    new_line();
  }
  void close(std::string_view bracket) {
    --depth_;
    new_line();
    add(bracket);
  }
  void separate(bool first) {
    if (!first) {
      add(style_.item_separator);
      new_line();
    }
  }

  void print_list(const Sequence& list) {
    if (list.items.empty()) {
      add("[]");
      return;
    }
    open("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separate(i == 0);
      print(list.items[i]);
    }
    close("]");
  }

  void print_object(const Mapping& object) {
    if (object.entries.empty()) {
      add("{}");
      return;
    }
    open("{");
    Mapping::Entries entries = object.entries;
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return less(a.first, b.first); });
    }
    bool first = true;
    for (const auto& [key, value] : entries) {
      separate(first);
      first = false;
      add(quoted(key.text() != nullptr ? *key.text() : atom(key), style_.ascii));
      add(style_.key_separator);
      print(value);
    }
    close("}");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(runtime, style);
  printer.print(value);
  return printer.take();
}

}  // namespace winnow::jinja

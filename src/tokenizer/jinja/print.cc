#include "tokenizer/jinja/print.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

/// str.isprintable() according to utf8proc.
bool is_printable(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

void append_escaped(char32_t code, char quote, std::string& out) {
  if (code == static_cast<unsigned char>(quote) || code == '\\') {
    out += '\\';
    out += static_cast<char>(code);
  } else if (code == '\n' || code == '\r' || code == '\t') {
    out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
  } else if (is_printable(code)) {
    append_utf8(code, out);
  } else if (code < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<unsigned>(code));
  }
}

std::string text_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    append_escaped(step.code, quote, out);
    text.remove_prefix(step.length);
  }
  return out + quote;
}

/// Scalars that str() and repr() print alike.
std::string scalar_text(const Value& value) {
  if (value.is_none()) {
    return "None";
  }
  if (const bool* b = value.boolean()) {
    return *b ? "True" : "False";
  }
  if (const std::int64_t* i = value.integer()) {
    return fmt::format("{}", *i);
  }
  if (const double* d = value.real()) {
    return float_repr(*d);
  }
  if (const Callable* callable = value.callable()) {
    return fmt::format("<function {}>", callable->name);
  }
  if (const Loop* loop = value.loop()) {
    return fmt::format("<LoopContext {}/{}>", loop->index + 1, loop->run->items.items.size());
  }
  return "Undefined";
}

class Printer {
 public:
  explicit Printer(Runtime& runtime) : runtime_(runtime) {}

  void print(const Value& value) {
    if (const std::string* text = value.text()) {
      add(text_repr(*text));
    } else if (const Sequence* sequence = value.sequence()) {
      print_sequence(*sequence, type_name(value));
    } else if (const Mapping* mapping = value.mapping()) {
      add("{");
      print_entries(mapping->entries);
      add("}");
    } else if (const Namespace* space = value.space()) {
      add("<Namespace {");
      Mapping::Entries entries;
      for (const auto& [name, attribute] : space->attributes) {
        entries.emplace_back(name, attribute);
      }
      print_entries(entries);
      add("}>");
    } else {
      add(scalar_text(value));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    runtime_.spend_text(text.size());
    out_ += text;
    require(out_.size() <= Runtime::kMaxText, "a string is longer than {} bytes",
            Runtime::kMaxText);
  }

  void print_sequence(const Sequence& sequence, std::string_view name) {
    if (sequence.kind == Sequence::Kind::lazy) {
      add("<generator object>");
      return;
    }
    const bool tuple = sequence.kind == Sequence::Kind::tuple;
    if (!sequence.indexable()) {
      add(fmt::format("{}(", name));
    }
    add(tuple ? "(" : "[");
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      add(i == 0 ? "" : ", ");
      print(sequence.items[i]);
    }
    add(tuple ? (sequence.items.size() == 1 ? ",)" : ")") : "]");
    if (!sequence.indexable()) {
      add(")");
    }
  }

  void print_entries(const Mapping::Entries& entries) {
    bool first = true;
    for (const auto& [key, value] : entries) {
      add(first ? "" : ", ");
      first = false;
      print(key);
      add(": ");
      print(value);
    }
  }

  Runtime& runtime_;
  std::string out_;
};

std::string with_exponent(std::string digits, int exponent) {
  if (digits.size() > 1) {
    digits.insert(1, 1, '.');
  }
  return fmt::format("{}e{}{:02}", digits, exponent < 0 ? '-' : '+', std::abs(exponent));
}

}  // namespace

std::string float_repr(double value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  }
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = scientific.find('e');
  std::string digits(1, scientific.front());
  if (e > 2) {
    digits += scientific.substr(2, e - 2);
  }
  int exponent = 0;
  std::from_chars(buffer + e + (buffer[e + 1] == '+' ? 2 : 1), end.ptr, exponent);
  std::string out;
  if (std::signbit(value)) {
    out += '-';
  }
  if (exponent < -4 || exponent >= 16) {
    return out + with_exponent(digits, exponent);
  }
  // Adds zeros before or after the digits to place the point.
  if (exponent < 0) {
    digits.insert(0, static_cast<std::size_t>(-exponent), '0');
  } else if (digits.size() < static_cast<std::size_t>(exponent) + 2) {
    digits.append(static_cast<std::size_t>(exponent) + 2 - digits.size(), '0');
  }
  digits.insert(static_cast<std::size_t>(std::max(exponent, 0)) + 1, 1, '.');
  return out + digits;
}

std::string repr(Runtime& runtime, const Value& value) {
  Printer printer(runtime);
  printer.print(value);
  return printer.take();
}

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) {
    return {};
  }
  if (const std::string* text = value.text()) {
    runtime.spend_text(text->size());
    return *text;
  }
  return repr(runtime, value);
}

}  // namespace winnow::jinja

// "{}: {x:>5}".format("a", x=1)
#include <charconv>
#include <optional>

#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

std::optional<std::int64_t> as_index(std::string_view text) {
  std::int64_t index = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool whole = error == std::errc() && end == text.data() + text.size() && index >= 0;
  return whole ? std::optional(index) : std::nullopt;
}

class FieldFormat {
 public:
  FieldFormat(Runtime& runtime, const std::vector<Value>& positional, const Value& named)
      : runtime_(runtime), positional_(positional), named_(named) {}

  /// `depth`: a field's spec may contain fields, whose specs may not.
  std::string run(std::string_view format, int depth) {
    std::string out;
    while (!format.empty()) {
      const std::size_t brace = format.find_first_of("{}");
      add(format.substr(0, brace), out);
      if (brace == std::string_view::npos) {
        break;
      }
      format.remove_prefix(brace);
      if (format.size() > 1 && format[1] == format[0]) {
        add(format.substr(0, 1), out);
        format.remove_prefix(2);
        continue;
      }
      require(format.front() == '{', "a format has a }} without {{");
      require(depth > 0, "the fields of a format nest too deeply");
      const std::size_t end = end_of_field(format);
      add(field(format.substr(1, end - 1), depth), out);
      format.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  void add(std::string_view text, std::string& out) {
    runtime_.spend_text(text.size());
    out += text;
    require(out.size() <= Runtime::kMaxText, "a string is longer than {} bytes", Runtime::kMaxText);
  }

  static std::size_t end_of_field(std::string_view format) {
    int open = 0;
    for (std::size_t i = 0; i < format.size(); ++i) {
      open += format[i] == '{' ? 1 : format[i] == '}' ? -1 : 0;
      if (open == 0) {
        return i;
      }
    }
    fail("a format has a {{ without }}");
  }

  std::string field(std::string_view text, int depth) {
    // A ! or : inside [ ] belongs to the name.
    std::size_t end = 0;
    for (bool bracket = false; end < text.size(); ++end) {
      bracket = text[end] == '[' || (bracket && text[end] != ']');
      if (!bracket && (text[end] == '!' || text[end] == ':')) {
        break;
      }
    }
    Value value = lookup(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with('!')) {
      require(text.size() >= 2 && (text.size() == 2 || text[2] == ':'),
              "a format has a conversion that is none of !s, !r, !a");
      value = converted(value, text[1]);
      text.remove_prefix(2);
    }
    if (text.starts_with(':')) {
      text.remove_prefix(1);
    }
    return format_value(runtime_, value, run(text, depth - 1));
  }

  Value converted(const Value& value, char conversion) {
    switch (conversion) {
      case 's':
        return to_text(runtime_, value);
      case 'r':
        return repr(runtime_, value);
      case 'a':
        return ascii(repr(runtime_, value));
      default:
        fail("a format has a conversion that is none of !s, !r, !a");
    }
  }

  Value lookup(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      const bool is_attribute = name.front() == '.';
      const std::size_t stop =
          is_attribute ? std::min(name.find_first_of(".[", 1), name.size()) : name.find(']');
      require(stop != std::string_view::npos && stop > 1, "a format has a field without an end");
      const std::string_view key = name.substr(1, stop - 1);
      if (is_attribute) {
        value = attribute_of(value, key);
      } else {
        const std::optional<std::int64_t> index = as_index(key);
        value = element_of(runtime_, value, index ? Value(*index) : Value(key));
      }
      name.remove_prefix(stop + (is_attribute ? 0 : 1));
    }
    return value;
  }

  Value argument(std::string_view name) {
    const std::optional<std::int64_t> index = as_index(name);
    if (!name.empty() && !index) {
      const Value* found = named_.mapping() != nullptr ? named_.mapping()->find(name) : nullptr;
      require(found != nullptr, "a format names '{}', which it is not given", name);
      return *found;
    }
    require(numbered_ == 0 || numbered_ == (index ? 1 : 2),
            "a format has fields with numbers and fields without");
    numbered_ = index ? 1 : 2;
    const auto at = index ? static_cast<std::size_t>(*index) : next_++;
    require(at < positional_.size(), "a format wants {} arguments, but is given {}", at + 1,
            positional_.size());
    return positional_[at];
  }

  Runtime& runtime_;
  const std::vector<Value>& positional_;
  const Value& named_;
  std::size_t next_ = 0;
  int numbered_ = 0;  // 1: by the format, 2: automatically
};

}  // namespace

std::string format_fields(Runtime& runtime, std::string_view format,
                          const std::vector<Value>& positional, const Value& named) {
  constexpr int kDeepest = 2;
  return FieldFormat(runtime, positional, named).run(format, kDeepest);
}

}  // namespace winnow::jinja

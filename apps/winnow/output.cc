#include "apps/winnow/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/note.h"
#include "base/whole_file.h"
#include "checkpoint/json_text.h"
#include "tokenizer/utf8.h"

namespace winnow::cli {

void print(std::string_view text) {
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  require_system(written == text.size(), "cannot write to standard output");
  wrote_to_output(text);
}

void print_now(std::string_view text) {
  print(text);
  require_system(std::fflush(stdout) == 0, "cannot write to standard output");
}

void print_note(std::string_view text) {
  end_open_line();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void print_json(const nlohmann::ordered_json& value) {
  print_now(json_text_replacing(value, 2) + "\n");
}

std::string grouped(long long number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::string read_file(const std::filesystem::path& path) {
  if (path == "-") {
    return read_standard_input();
  }
  return read_whole_file(path);
}

namespace {

// A text that was cut by bytes may end within a character.
void drop_cut_character(std::string& text) {
  constexpr std::size_t kMostBytes = 3;
  for (std::size_t i = std::min(kMostBytes, text.size()); i > 0; --i) {
    const Utf8Step last = utf8_step(std::string_view(text).substr(text.size() - i));
    if (last.kind == Utf8Step::Kind::incomplete) {
      text.resize(text.size() - i);
      return;
    }
  }
}

}  // namespace

void require_utf8(const std::string& name, std::string_view text) {
  require(is_valid_utf8(text), "{}: is no text in UTF-8{}", name,
          text.starts_with("\x28\xB5\x2F\xFD") || text.starts_with("\x1F\x8B")
              ? ": it is compressed"
              : "");
}

std::string read_utf8(const std::string& flag, const std::string& file) {
  std::string text = read_file(file);
  require_utf8(fmt::format("{} {}", flag, file), text);
  return text;
}

std::string read_text(const std::string& file) {
  std::string text = read_file(file);
  drop_cut_character(text);
  require_utf8("--text " + file, text);
  const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  require(!line.starts_with('{') || !nlohmann::json::accept(line),
          "--text {}: expected plain text, found lines of JSON: jq -r .text {} writes their texts",
          file, file);
  return text;
}

bool output_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

bool input_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

}  // namespace winnow::cli

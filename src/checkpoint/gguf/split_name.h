// Names of split GGUF models, as llama.cpp's gguf-split gives them: NAME-00001-of-00003.gguf.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow::gguf {

struct SplitName {
  std::string stem;  // the path before the numbers
  int number = 0;    // starts at 1
  int count = 0;

  /// The name of part `of_number`.
  [[nodiscard]] std::string file(int of_number) const;
};

/// nullopt if the name is not that of a split file.
std::optional<SplitName> parse_split_name(std::string_view name);

}  // namespace winnow::gguf

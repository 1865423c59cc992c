// A model in several GGUF files, as llama.cpp's gguf-split names them: NAME-00001-of-00003.gguf.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow::gguf {

struct SplitName {
  std::string stem;  // before the numbers, with its folders
  int number = 0;    // from 1 on
  int count = 0;

  /// The name of another of the files.
  [[nodiscard]] std::string file(int of_number) const;
};

/// nullopt if the name is not that of a split file.
std::optional<SplitName> parse_split_name(std::string_view name);

}  // namespace winnow::gguf

// From files of documents to shards of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "train/document.h"
#include "train/shards.h"

namespace winnow::train {

struct TokenizeOptions {
  std::vector<std::filesystem::path> files;  // JSONL, plain or zstd
  std::filesystem::path model;               // provides tokenizer and chat template
  bool mask_prompts = false;
  double max_malformed = 0.01;  // share of lines that may be skipped
  /// Called now and then with the bytes read so far and the total; false stops with an Error.
  std::function<bool(std::int64_t done, std::int64_t total)> on_progress;
};

struct TokenizeResult {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t malformed = 0;           // lines that were skipped
  std::vector<std::string> complaints;  // about the first of these: "file:line: what is wrong"
  std::set<std::string> ignored;        // keys of lines that have no effect, the first few
};

/// Everything that shards made with these options depend on: names, sizes and times of the files,
/// contents of the tokenizer's files, masking.
nlohmann::ordered_json data_origin(const TokenizeOptions& options);

/// Tokenises on all threads and writes shards to `directory`, in the order of the files. Throws
/// Error, naming file and line, when more than the allowed share of lines is malformed.
TokenizeResult tokenize_files(const TokenizeOptions& options, const model::ModelSpec& spec,
                              const std::filesystem::path& directory);

}  // namespace winnow::train

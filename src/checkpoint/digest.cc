#include "checkpoint/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <future>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "checkpoint/gguf/gguf_file.h"

namespace winnow {
namespace {

bool is_part_of_model(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 6> kNames{"config.json",       "dms_metadata.json",
                                                   "quant_config.json", "quantize_config.json",
                                                   "tokenizer.json",    "tokenizer.model"};
  return file.extension() == ".safetensors" ||
         std::ranges::find(kNames, file.filename().string()) != kNames.end();
}

std::string file_digest(const std::filesystem::path& path) {
  const MappedFile file(path);
  Sha256 hash;
  hash.update(file.bytes());
  return hash.finish();
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file() && is_part_of_model(entry.path())) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string checkpoint_digest(const std::filesystem::path& directory) {
  const bool is_file = std::filesystem::is_regular_file(directory);  // a GGUF file
  const auto files = is_file ? gguf::split_files(directory) : files_of(directory);
  if (is_file && files.size() == 1) {
    return file_digest(directory);
  }
  std::vector<std::future<std::string>> digests;
  digests.reserve(files.size());
  for (const auto& file : files) {
    digests.push_back(std::async(std::launch::async, file_digest, file));
  }
  Sha256 all;
  for (std::size_t i = 0; i < files.size(); ++i) {
    all.update(fmt::format("{}  {}\n", digests[i].get(), files[i].filename().string()));
  }
  return all.finish();
}

}  // namespace winnow

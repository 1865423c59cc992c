// Tokenised documents on disk, memory-mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "train/document.h"

namespace winnow::train {

/// A folder of safetensors files, each with tokens [N] i32, offsets [documents + 1] i64 and, if
/// tokens have different weights in the loss, weights [N] f32; and manifest.json, written last,
/// which says what the shards were made from.
class ShardWriter {
 public:
  /// Shards of an earlier, unfinished or different run in `directory` are replaced.
  explicit ShardWriter(std::filesystem::path directory);
  /// Removes the folder if this object created it and it is empty.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Empty documents are skipped.
  void add(const Document& document);
  /// Writes the remaining tokens and the manifest: `origin` and the counts.
  void finish(const nlohmann::ordered_json& origin);

  [[nodiscard]] std::int64_t documents() const { return documents_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

 private:
  void flush();

  std::filesystem::path directory_;
  bool made_directory_ = false;
  std::vector<std::int32_t> buffer_;
  std::vector<float> weights_;  // empty: all 1
  std::vector<std::int64_t> offsets_{0};
  int shards_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t tokens_ = 0;
};

/// Documents in a folder that a ShardWriter finished.
class Shards {
 public:
  /// Error when there is no manifest or a shard does not match it.
  explicit Shards(const std::filesystem::path& directory);

  /// Whether `directory` holds finished shards made from `origin`.
  static bool hold(const std::filesystem::path& directory, const nlohmann::ordered_json& origin);

  /// Throws Error unless data made from `origin` may be written to `directory`: it is missing or
  /// empty, or holds shards of the same origin, or shards that a run did not finish.
  static void require_place(const std::filesystem::path& directory,
                            const nlohmann::ordered_json& origin);

  struct View {
    std::span<const std::int32_t> tokens;
    std::span<const float> weights;  // empty: all 1
  };
  [[nodiscard]] std::size_t documents() const { return documents_.size(); }
  [[nodiscard]] const View& document(std::size_t index) const { return documents_[index]; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] const nlohmann::ordered_json& origin() const { return origin_; }

 private:
  void add_file(const std::filesystem::path& path);

  std::vector<SafetensorsFile> files_;
  std::vector<View> documents_;
  std::int64_t tokens_ = 0;
  nlohmann::ordered_json origin_;
};

}  // namespace winnow::train

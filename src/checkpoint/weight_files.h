// The weight files of a model directory and the tensors in them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace winnow {

inline constexpr const char* kWeightFile = "model.safetensors";
inline constexpr const char* kWeightIndex = "model.safetensors.index.json";

/// The names of the files in an index (model.safetensors.index.json), each once. Throws Error if
/// the index is damaged, or names a file outside its directory.
std::vector<std::string> read_shard_names(const std::filesystem::path& index);

/// model.safetensors, or the shards in model.safetensors.index.json.
class WeightFiles {
 public:
  /// Maps the files. As in transformers, the index only names the shards, and all tensors of a
  /// shard count: an index may list tensors that no shard holds, and lack some. Throws Error if
  /// there is no file, a shard is missing, or a file is damaged.
  explicit WeightFiles(const std::filesystem::path& directory);

  [[nodiscard]] const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const {
    return files_;
  }
  /// All tensors of a type that winnow supports, by the model's names: a checkpoint that was saved
  /// without its head has "layers.0..." instead of "model.layers.0...".
  [[nodiscard]] TensorMap tensors() const;

  /// The tensor `name`, of any type; nullopt if there is none.
  [[nodiscard]] std::optional<StoredTensor> find(const std::string& name) const;
  /// The file with the tensor `name`, or the only file, or the directory: the place that messages
  /// name.
  [[nodiscard]] std::string locate(const std::string& name) const;
  /// Throws Error if a file holds the tensor `name` in a type that winnow does not support.
  void require_readable(const std::string& name) const;

 private:
  struct Place {
    std::shared_ptr<const SafetensorsFile> file;
    std::string stored;  // the tensor's name in the file
  };

  void open_shards(const std::filesystem::path& index);
  void name_tensors();

  std::filesystem::path directory_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, std::string> weight_map_;  // from the index: tensor -> file
  std::map<std::string, Place> places_;            // by the model's names
};

}  // namespace winnow

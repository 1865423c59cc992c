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

/// The names of the files that an index (model.safetensors.index.json) says hold tensors, each
/// once. Throws Error when it is damaged, or names what is no file of its own directory.
std::vector<std::string> read_shard_names(const std::filesystem::path& index);

/// model.safetensors, or the shards that model.safetensors.index.json names.
class WeightFiles {
 public:
  /// Maps the files. As in transformers, the index says which shards there are, and all tensors of
  /// a shard count: an index may list tensors that no shard holds, and lack some. Throws Error when
  /// no file is there, a shard is missing, or a file is damaged.
  explicit WeightFiles(const std::filesystem::path& directory);

  [[nodiscard]] const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const {
    return files_;
  }
  /// All tensors of a type that winnow can read, under the model's names: a checkpoint that was
  /// saved without its head has "layers.0..." for "model.layers.0...".
  [[nodiscard]] TensorMap tensors() const;

  /// The tensor of this name, of whatever type; nullopt when there is none.
  [[nodiscard]] std::optional<StoredTensor> find(const std::string& name) const;
  /// The file with the tensor of this name, or the only file, or the directory: where a message
  /// looks for it.
  [[nodiscard]] std::string locate(const std::string& name) const;
  /// Error when a file holds the tensor `name` in a type that winnow cannot read.
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
  std::map<std::string, std::string> weight_map_;  // of the index: tensor -> file
  std::map<std::string, Place> places_;            // by the model's names
};

}  // namespace winnow

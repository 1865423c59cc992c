#include "checkpoint/weight_files.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "checkpoint/json.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelPrefix = "model.";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The shard file names of an index; checks that they stay inside the directory.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const nlohmann::json document = parse_json(read_text_file(index), index.string());
  const JsonObject object(document, index.string());
  const JsonObject map = object.object("weight_map");
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : object.find("weight_map")->items()) {
    require(file.is_string(), "{}: tensor {}: expected a file name, got {}", map.where(),
            in_quotes(tensor), described(file));
    const auto& name = file.get_ref<const std::string&>();
    require(!name.empty() && name != "." && name != ".." &&
                name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
            "{}: tensor {}: {} is not the name of a file in this directory", map.where(),
            in_quotes(tensor), in_quotes(name));
    result.emplace(tensor, name);
  }
  return result;
}

/// Whether a name lacks "model.": transformers' base model (without head) is saved with such names.
bool is_base_name(std::string_view stored) {
  constexpr std::array<std::string_view, 3> kBegins{"layers.", "embed_tokens.", "norm."};
  return std::ranges::any_of(kBegins, [&](std::string_view b) { return stored.starts_with(b); });
}

/// Calls use(name) for every tensor of a file, of any type.
template <class Use>
void for_each_name(const SafetensorsFile& file, const Use& use) {
  for (const auto& tensor : file.tensors()) {
    use(tensor.first);
  }
  for (const auto& tensor : file.unusable()) {
    use(tensor.first);
  }
}

/// Describes other weight files in the directory, for the error message.
std::string hint(const fs::path& directory) {
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (is_there(directory / other)) {
      return fmt::format(" ({} is: save the model again with safe_serialization=True)", other);
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> read_shard_names(const fs::path& index) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : read_weight_map(index)) {
    names.insert(file);
  }
  return {names.begin(), names.end()};
}

WeightFiles::WeightFiles(const fs::path& directory) : directory_(directory) {
  if (is_there(directory / kWeightFile)) {
    files_.push_back(std::make_shared<const SafetensorsFile>(directory / kWeightFile));
  } else {
    require(is_there(directory / kWeightIndex), "{}: neither {} nor {} is there{}",
            directory.string(), kWeightFile, kWeightIndex, hint(directory));
    open_shards(directory / kWeightIndex);
  }
  name_tensors();
}

void WeightFiles::open_shards(const fs::path& index) {
  weight_map_ = read_weight_map(index);
  for (const auto& [tensor, file] : weight_map_) {
    const fs::path path = directory_ / file;
    if (std::ranges::none_of(files_, [&](const auto& other) { return other->path() == path; })) {
      require(is_there(path), "{}: shard {} is missing, {} says it holds tensor {}",
              directory_.string(), in_quotes(file), kWeightIndex, in_quotes(tensor));
      files_.push_back(std::make_shared<const SafetensorsFile>(path));
    }
  }
}

void WeightFiles::name_tensors() {
  bool has_prefix = false;
  for (const auto& file : files_) {
    for_each_name(*file, [&](std::string_view stored) {
      has_prefix = has_prefix || stored.starts_with(kModelPrefix);
    });
  }
  for (const auto& file : files_) {
    for_each_name(*file, [&](const std::string& stored) {
      const bool base = !has_prefix && is_base_name(stored);
      const auto [place, added] = places_.try_emplace(
          base ? std::string(kModelPrefix) + stored : stored, Place{file, stored});
      // Two shards may hold a tensor of the same name; then the index decides.
      const auto listed = weight_map_.find(stored);
      if (!added && listed != weight_map_.end() && file->path().filename() == listed->second) {
        place->second = {file, stored};
      }
    });
  }
}

TensorMap WeightFiles::tensors() const {
  TensorMap tensors;
  for (const auto& [name, place] : places_) {
    const auto found = place.file->tensors().find(place.stored);
    if (found != place.file->tensors().end()) {
      tensors.emplace(name, found->second);
    }
  }
  return tensors;
}

std::optional<StoredTensor> WeightFiles::find(const std::string& name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? std::nullopt : place->second.file->find(place->second.stored);
}

std::string WeightFiles::locate(const std::string& name) const {
  const auto place = places_.find(name);
  if (place != places_.end()) {
    return place->second.file->path().string();
  }
  return (files_.size() == 1 ? files_.front()->path() : directory_).string();
}

void WeightFiles::require_readable(const std::string& name) const {
  if (const auto place = places_.find(name); place != places_.end()) {
    (void)place->second.file->tensor(place->second.stored);
  }
}

}  // namespace winnow

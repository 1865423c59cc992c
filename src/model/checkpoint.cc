#include "model/checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/json.h"
#include "model/checkpoint_parts.h"

namespace winnow::model {
namespace {

using detail::kIndexFile;
using detail::kSingleFile;
/// The shard file names of an index, checked: they must stay inside the directory.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
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

using Files = std::vector<std::shared_ptr<const SafetensorsFile>>;

/// A tensor of a type that we cannot read is left out, unless the model needs it: then the Error
/// says its type.
void add_tensor(const std::string& name, const SafetensorsFile& file, bool needed,
                TensorMap& tensors) {
  if (const auto found = file.tensors().find(name); found != file.tensors().end()) {
    tensors.insert(*found);
  } else if (needed || !file.holds(name)) {
    (void)file.tensor(name);
  }
}

void open_shards(const std::filesystem::path& directory, const ModelSpec& spec, Files& files,
                 TensorMap& tensors) {
  const auto expected = expected_tensors(spec);
  const std::filesystem::path index = directory / kIndexFile;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> opened;
  for (const auto& [tensor, file] : read_weight_map(index)) {
    auto& shard = opened[file];
    if (shard == nullptr) {
      std::error_code ignored;
      require(std::filesystem::exists(directory / file, ignored),
              "{}: shard {} is missing, {} says it holds tensor {}", directory.string(),
              in_quotes(file), kIndexFile, in_quotes(tensor));
      shard = std::make_shared<const SafetensorsFile>(directory / file);
      files.push_back(shard);
    }
    add_tensor(tensor, *shard, expected.contains(tensor), tensors);
  }
}

void open_files(const std::filesystem::path& directory, const ModelSpec& spec, Files& files,
                TensorMap& tensors) {
  std::error_code ignored;
  if (std::filesystem::exists(directory / kSingleFile, ignored)) {
    files.push_back(std::make_shared<const SafetensorsFile>(directory / kSingleFile));
    tensors = files.front()->tensors();
    for (const auto& [name, shape] : expected_tensors(spec)) {
      if (files.front()->holds(name)) {
        add_tensor(name, *files.front(), true, tensors);
      }
    }
    return;
  }
  require(std::filesystem::exists(directory / kIndexFile, ignored),
          "{}: neither {} nor {} is there", directory.string(), kSingleFile, kIndexFile);
  open_shards(directory, spec, files, tensors);
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.spec_ = read_spec(directory);
  open_files(directory, checkpoint.spec_, checkpoint.files_, checkpoint.tensors_);
  const auto locate = [&](const std::string& tensor) {
    const auto& files = checkpoint.files_;
    if (files.size() == 1) {
      return files.front()->path().string();
    }
    const auto file =
        std::find_if(files.begin(), files.end(), [&](const auto& f) { return f->holds(tensor); });
    return (file == files.end() ? directory : (*file)->path()).string();
  };
  detail::check_tensors(locate, checkpoint.spec_, checkpoint.tensors_);
  return checkpoint;
}

bool Checkpoint::has(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "{}: tensor {} is missing", directory_.string(),
          in_quotes(name));
  return found->second;
}

std::int64_t Checkpoint::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, shape] : expected_tensors(spec_)) {
    count += element_count(shape);
  }
  for (const auto& [name, shape] : optional_tensors(spec_)) {
    count += has(name) ? element_count(shape) : 0;
  }
  return count;
}

}  // namespace winnow::model

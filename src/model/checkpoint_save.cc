#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/weight_files.h"
#include "model/checkpoint.h"
#include "model/checkpoint_parts.h"
#include "model/expert_stacks.h"
#include "model/joined_tensors.h"
#include "model/renamed_tensors.h"

namespace winnow::model {
namespace {

/// Removes a file of an earlier model, if it is there.
void remove_stale(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  require(!error, "{}: cannot remove: {}", path.string(), error.message());
}

}  // namespace

void save_checkpoint(const std::filesystem::path& directory, const ModelSpec& spec,
                     const TensorMap& tensors) {
  const ConfigTexts texts = format_spec(spec);
  detail::check_tensors([&](const std::string&) { return directory.string(); }, spec, tensors);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  require(!error, "{}: cannot create: {}", directory.string(), error.message());

  const detail::StackedTensors stacked(spec, tensors);
  // Transformers refuses files without this entry.
  write_safetensors(directory / kWeightFile, stored(spec.names, joined(spec, stacked.map())),
                    {{"format", "pt"}});
  write_text_file(directory / "config.json", texts.config);
  write_text_file(directory / "generation_config.json", *texts.generation_config);
  if (texts.dms_metadata) {
    write_text_file(directory / "dms_metadata.json", *texts.dms_metadata);
  } else {
    remove_stale(directory / "dms_metadata.json");  // its values would win over ours
  }
  remove_stale(directory / kWeightIndex);
}

}  // namespace winnow::model

// Saving and loading a Trainer's state.
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors_stream.h"
#include "train/trainer.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVersion = "2";

std::string text_of(const SafetensorsFile& state, const std::string& file, const char* key) {
  const auto found = state.metadata().find(key);
  require(found != state.metadata().end(), "{}: not the state of a training run: no {}", file, key);
  return found->second;
}

void require_recipe(const SafetensorsFile& state, const std::string& file,
                    const ordered_json& recipe) {
  const std::string version = text_of(state, file, "version");
  require(version == kVersion, "{}: its version is {}, expected {}", file, version, kVersion);
  const auto saved = json_from<ordered_json>(text_of(state, file, "recipe"));
  for (const auto& [key, value] : recipe.items()) {
    const ordered_json before = saved.contains(key) ? saved.at(key) : ordered_json();
    const bool told = before.is_primitive() && value.is_primitive();
    // In any order of keys.
    require(
        nlohmann::json(before) == nlohmann::json(value),
        "{}: the run was started with another {}{}: resume it with what it was started with, or "
        "choose another --out",
        file, key, told ? fmt::format(": {}, not {}", json_text(before), json_text(value)) : "");
  }
}

}  // namespace

void require_recipe(const std::filesystem::path& file, const ordered_json& recipe) {
  require_recipe(SafetensorsFile(file), file.string(), recipe);
}

// A single rank's memory is not copied.
void Trainer::gather(std::span<const float> held, const TakePiece& take) const {
  for (const Section& section : sharding_.sections()) {
    const auto own = held.subspan(section.held, section.partition.size());
    if (ranks_.size() == 1) {
      take(own);
      continue;
    }
    ranks_.meet();  // rank 0 may still be writing
    for (const std::vector<std::byte>& part : ranks_.gather(std::as_bytes(own))) {
      take({reinterpret_cast<const float*>(part.data()), part.size() / sizeof(float)});
    }
  }
}

void Trainer::gather_values(const TakePiece& take) const {
  backend_->fetch_values();
  if (!parameters_.is_whole()) {
    gather(parameters_.values(), take);
  } else if (ranks_.rank() == 0) {
    take(parameters_.values());
  }
}

void Trainer::gather_state_array(std::string_view name, const Moments& moments,
                                 const TakePiece& take) const {
  if (name == "values") {
    return gather_values(take);
  }
  gather(name == "first_moments" ? moments.first : moments.second, take);
}

void Trainer::save_state(const std::filesystem::path& file, const ordered_json& recipe) const {
  const Moments moments = backend_->fetch_moments();
  TensorMap arrays;
  for (const char* name : kStateArrays) {
    arrays[name] = {DType::f32, {static_cast<std::int64_t>(parameters_.size())}, nullptr};
  }
  const PackingPosition& position = reader_.position();
  const ordered_json progress{
      {"step", steps_done_},
      {"data", {position.epoch, position.sequence}},
      {"eviction", eviction_ ? eviction_->state() : std::vector<double>()},
  };
  stream_safetensors(
      file, arrays,
      {{"version", kVersion}, {"recipe", json_text(recipe)}, {"progress", json_text(progress)}},
      [&](const std::string& name, const WriteBytes& write) {
        if (name == kStateArrays.front()) {  // only after the file was created
          announce(Task::gather_state);
        }
        gather_state_array(name, moments,
                           [&write](std::span<const float> piece) { write(std::as_bytes(piece)); });
      });
}

void Trainer::load_state(const std::filesystem::path& file, const ordered_json& recipe) {
  const SafetensorsFile saved(file);
  require_recipe(saved, file.string(), recipe);
  const auto array = [&](const char* name) {
    const TensorView& tensor = saved.tensor(name);
    require(tensor.dtype == DType::f32 &&
                tensor.count() == static_cast<std::int64_t>(parameters_.size()),
            "{}: {} has {} elements, expected {}", file.string(), name, tensor.count(),
            parameters_.size());
    return tensor.as<float>();
  };
  const Moments moments = backend_->fetch_moments();
  parameters_.set(0, array("values"));
  sharding_.copy_held(0, array("first_moments"), moments.first);
  sharding_.copy_held(0, array("second_moments"), moments.second);
  backend_->store();
  const auto progress = json_from<ordered_json>(text_of(saved, file.string(), "progress"));
  steps_done_ = progress.at("step").get<std::int64_t>();
  if (eviction_) {
    eviction_->restore(progress.at("eviction").get<std::vector<double>>());
  }
  const auto data = progress.at("data").get<std::vector<std::int64_t>>();
  require(data.size() == 2, "{}: its position in the data is not one", file.string());
  reader_.seek({data[0], data[1]});
}

}  // namespace winnow::train

// What a Trainer writes down to be taken up again.
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"
#include "train/trainer.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVersion = "2";

std::vector<TensorView> flat_views(std::span<const std::span<const float>> pieces) {
  std::vector<TensorView> views;
  for (const std::span<const float> piece : pieces) {
    const auto* const data = reinterpret_cast<const std::byte*>(piece.data());
    views.push_back({DType::f32, {static_cast<std::int64_t>(piece.size())}, data});
  }
  return views;
}

/// Says which key of the recipe has changed.
void require_same_recipe(const ordered_json& saved, const ordered_json& now,
                         const std::string& where) {
  for (const auto& [key, value] : now.items()) {
    const ordered_json before = saved.contains(key) ? saved.at(key) : ordered_json();
    const bool told = before.is_primitive() && value.is_primitive();
    require(before == value, "{}: it was made with another {} than this run has{}", where, key,
            told ? fmt::format(": {}, not {}", before.dump(), value.dump()) : "");
  }
}

}  // namespace

// One rank's own memory is not copied.
Trainer::Gathered Trainer::gather(std::span<const float> held) const {
  if (ranks_.size() == 1) {
    return {{}, {held}};
  }
  Gathered all;
  all.memory = ranks_.gather(std::as_bytes(held));
  std::vector<std::span<const float>> by_rank;
  for (const std::vector<std::byte>& memory : all.memory) {
    by_rank.emplace_back(reinterpret_cast<const float*>(memory.data()),
                         memory.size() / sizeof(float));
  }
  all.pieces = sharding_.in_order(by_rank);
  return all;
}

Trainer::Gathered Trainer::gather_values() const {
  backend_->fetch_values();
  return parameters_.is_whole() ? Gathered{{}, {parameters_.values()}}
                                : gather(parameters_.values());
}

std::pair<Trainer::Gathered, Trainer::Gathered> Trainer::gather_moments() const {
  const Moments own = backend_->fetch_moments();
  return {gather(own.first), gather(own.second)};
}

void Trainer::save_state(const std::filesystem::path& file, const ordered_json& recipe) const {
  announce(Task::gather_moments);
  const auto [first, second] = gather_moments();
  TensorParts tensors;
  announce(Task::gather_values);
  const Gathered values = gather_values();
  tensors["values"] = flat_views(values.pieces);
  tensors["first_moments"] = flat_views(first.pieces);
  tensors["second_moments"] = flat_views(second.pieces);
  const PackingPosition& position = reader_.position();
  const ordered_json progress{
      {"step", steps_done_},
      {"data", {position.epoch, position.sequence}},
      {"eviction", eviction_ ? eviction_->state() : std::vector<double>()},
  };
  write_safetensors(
      file, tensors,
      {{"version", kVersion}, {"recipe", recipe.dump()}, {"progress", progress.dump()}});
}

void Trainer::load_state(const std::filesystem::path& file, const ordered_json& recipe) {
  const SafetensorsFile saved(file);
  const auto text = [&](const char* key) {
    const auto found = saved.metadata().find(key);
    require(found != saved.metadata().end(), "{}: not the state of a training run: no {}",
            file.string(), key);
    return found->second;
  };
  require(text("version") == kVersion, "{}: its version is {}, expected {}", file.string(),
          text("version"), kVersion);
  require_same_recipe(ordered_json::parse(text("recipe")), recipe, file.string());
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
  const ordered_json progress = ordered_json::parse(text("progress"));
  steps_done_ = progress.at("step").get<std::int64_t>();
  if (eviction_) {
    eviction_->restore(progress.at("eviction").get<std::vector<double>>());
  }
  const auto data = progress.at("data").get<std::vector<std::int64_t>>();
  require(data.size() == 2, "{}: its position in the data is not one", file.string());
  reader_.seek({data[0], data[1]});
}

}  // namespace winnow::train

// What a Trainer writes down to be taken up again.
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors.h"
#include "train/trainer.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVersion = "2";

TensorView flat_view(std::span<const float> x) {
  return {DType::f32,
          {static_cast<std::int64_t>(x.size())},
          reinterpret_cast<const std::byte*>(x.data())};
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

void Trainer::save_state(const std::filesystem::path& file, const ordered_json& recipe) const {
  TensorMap tensors;
  const Moments moments = backend_->fetch_moments();
  tensors["values"] = flat_view(parameters().values());
  tensors["first_moments"] = flat_view(moments.first);
  tensors["second_moments"] = flat_view(moments.second);
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
  const auto restore = [&](const char* name, std::span<float> out) {
    const TensorView& tensor = saved.tensor(name);
    require(tensor.dtype == DType::f32 && tensor.count() == static_cast<std::int64_t>(out.size()),
            "{}: {} has {} elements, expected {}", file.string(), name, tensor.count(), out.size());
    std::ranges::copy(tensor.as<float>(), out.begin());
  };
  const Moments moments = backend_->fetch_moments();
  restore("values", parameters_.values());
  restore("first_moments", moments.first);
  restore("second_moments", moments.second);
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

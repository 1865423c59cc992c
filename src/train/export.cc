#include "train/export.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/channels.h"
#include "model/tensor_source.h"
#include "train/initial_model.h"
#include "train/rounded.h"

namespace winnow::train {
namespace {

namespace fs = std::filesystem;

std::vector<float> values_of(const Parameters& parameters, const std::string& name) {
  const auto values = parameters.view(name).as<float>();
  return {values.begin(), values.end()};
}

// Separately trained rows that replace rows of a projection.
struct BorrowedRows {
  std::string name;
  model::ColumnOf row_of = nullptr;
};

// By the tensor that contains them.
std::map<std::string, BorrowedRows> borrowed_rows(const model::ModelSpec& spec) {
  std::map<std::string, BorrowedRows> rows;
  for (int layer = 0; model::borrows_channels(spec) && layer < spec.layer_count(); ++layer) {
    if (!spec.decides(layer)) {
      continue;
    }
    for (const std::string part : {"weight", "bias"}) {
      const auto query = fmt::format("model.layers.{}.self_attn.q_proj.{}", layer, part);
      const auto key = fmt::format("model.layers.{}.self_attn.k_proj.{}", layer, part);
      const std::string decision = decision_name(spec, layer, part);
      if (spec.dmc) {
        rows[key] = {decision, model::key_column};
        rows[query] = {omega_name(layer, part), model::query_row};
      } else {
        rows[query] = {decision, model::query_row};
      }
    }
  }
  return rows;
}

void place_rows(const model::ModelSpec& spec, std::span<const float> rows, model::ColumnOf row_of,
                std::span<float> projection) {
  const auto heads = static_cast<std::size_t>(spec.compressing_attention().kv_heads);
  const std::size_t width = rows.size() / heads;
  for (std::size_t head = 0; head < heads; ++head) {
    std::ranges::copy(rows.subspan(head * width, width),
                      projection.subspan(row_of(spec, head) * width).begin());
  }
}

class ExportedTensors : public model::TensorSource {
 public:
  explicit ExportedTensors(const TensorMap& tensors) : tensors_(tensors) {}
  [[nodiscard]] bool contains(const std::string& name) const override {
    return tensors_.contains(name);
  }
  TensorView get(const std::string& name) override { return tensors_.at(name); }
  void release(const std::string&) override {}

 private:
  const TensorMap& tensors_;
};

}  // namespace

ExportedModel export_model(const Trainer& trainer, DType type) {
  ExportedModel model{trainer.spec(), {}, {}, trainer.base()};
  model.spec.dtype = type;
  const std::shared_ptr<const Parameters> whole = trainer.parameters();
  const Parameters& parameters = *whole;
  const auto borrowed = borrowed_rows(model.spec);
  for (const auto& [name, shape] : model::expected_tensors(model.spec)) {
    if (!parameters.contains(name)) {
      model.tensors[name] = model.base.tensor(name);
      continue;
    }
    std::vector<float> values = values_of(parameters, name);
    if (const auto found = borrowed.find(name); found != borrowed.end()) {
      place_rows(model.spec, values_of(parameters, found->second.name), found->second.row_of,
                 values);
    }
    Buffer<std::byte>& memory = model.memory[name] = rounded(values, type);
    model.tensors[name] = {type, shape, memory.data()};
  }
  if (const auto& retrofit = trainer.options().retrofit) {
    (model.spec.dms ? model.spec.dms->offset : model.spec.dmc->offset) = retrofit->final_offset;
  }
  return model;
}

void save_model(const fs::path& directory, const ExportedModel& model) {
  model::save_checkpoint(directory, model.spec, model.tensors);
  copy_tokenizer(model.base.directory(), directory);
}

std::unique_ptr<const engine::LoadedModel> load_exported(std::shared_ptr<const ExportedModel> model,
                                                         DType compute, const std::string& device) {
  LoadOptions options;
  options.device = device;
  options.dtype = dtype_name(compute);
  const auto spec = engine::resolve_options(options, model->spec);
  ExportedTensors tensors(model->tensors);
  model::Weights weights = model::bind_weights(model->spec, tensors, std::nullopt);
  std::int64_t count = 0;
  for (const auto& [name, tensor] : model->tensors) {
    count += tensor.count();
  }
  const model::ModelSpec model_config = model->spec;
  weights.owners.push_back(std::move(model));
  return engine::place_model({model_config, std::move(weights)}, spec, count);
}

}  // namespace winnow::train

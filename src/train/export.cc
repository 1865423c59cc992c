#include "train/export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "model/tensor_source.h"
#include "train/channels.h"

namespace winnow::train {
namespace {

namespace fs = std::filesystem;

Buffer<std::byte> rounded(std::span<const float> values, DType type) {
  Buffer<std::byte> memory(values.size() * dtype_size(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case DType::bf16:
        reinterpret_cast<bf16*>(memory.data())[i] = to_bf16(values[i]);
        break;
      case DType::f16:
        reinterpret_cast<f16*>(memory.data())[i] = to_f16(values[i]);
        break;
      default:
        reinterpret_cast<float*>(memory.data())[i] = values[i];
    }
  }
  return memory;
}

std::vector<float> values_of(const Parameters& parameters, const std::string& name) {
  const auto values = parameters.view(name).as<float>();
  return {values.begin(), values.end()};
}

// Rows of their own that take their place in a projection.
struct BorrowedRows {
  std::string name;
  ColumnOf row_of = nullptr;
};

// By the tensor that they belong to.
std::map<std::string, BorrowedRows> borrowed_rows(const ModelConfig& config) {
  std::map<std::string, BorrowedRows> rows;
  for (int layer = 0; borrows_channels(config) && layer < config.layers; ++layer) {
    const std::string attention = fmt::format("model.layers.{}.self_attn.", layer);
    for (const std::string part : {"weight", "bias"}) {
      const std::string decision = decision_name(config, layer, part);
      if (config.dmc) {
        rows[attention + "k_proj." + part] = {decision, key_column};
        rows[attention + "q_proj." + part] = {omega_name(layer, part), query_column};
      } else {
        rows[attention + "q_proj." + part] = {decision, query_column};
      }
    }
  }
  return rows;
}

void place_rows(const ModelConfig& config, std::span<const float> rows, ColumnOf row_of,
                std::span<float> projection) {
  const auto heads = static_cast<std::size_t>(config.kv_heads);
  const std::size_t width = rows.size() / heads;
  for (std::size_t head = 0; head < heads; ++head) {
    std::ranges::copy(rows.subspan(head * width, width),
                      projection.subspan(row_of(config, head) * width).begin());
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

bool ends_a_block(const std::string& name) {
  return name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
}

}  // namespace

ExportedModel export_model(const Trainer& trainer, DType type) {
  ExportedModel model{trainer.config(), {}, {}, trainer.base()};
  model.config.dtype = type;
  const Parameters& parameters = trainer.parameters();
  const auto borrowed = borrowed_rows(model.config);
  for (const auto& [name, shape] : expected_tensors(model.config)) {
    if (!parameters.contains(name)) {
      model.tensors[name] = model.base.tensor(name);
      continue;
    }
    std::vector<float> values = values_of(parameters, name);
    if (const auto found = borrowed.find(name); found != borrowed.end()) {
      place_rows(model.config, values_of(parameters, found->second.name), found->second.row_of,
                 values);
    }
    Buffer<std::byte>& memory = model.memory[name] = rounded(values, type);
    model.tensors[name] = {type, shape, memory.data()};
  }
  if (const auto& retrofit = trainer.options().retrofit) {
    (model.config.dms ? model.config.dms->offset : model.config.dmc->offset) =
        retrofit->final_offset;
  }
  return model;
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::equivalent(from, to, error)) {
    return;
  }
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt"}) {
    if (fs::is_regular_file(from / name, error)) {
      fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, error);
      require(!error, "{}: cannot copy to {}: {}", (from / name).string(), to.string(),
              error.message());
    }
  }
}

void save_model(const fs::path& directory, const ExportedModel& model) {
  save_checkpoint(directory, model.config, model.tensors);
  copy_tokenizer(model.base.directory(), directory);
}

std::unique_ptr<const engine::LoadedModel> load_exported(std::shared_ptr<const ExportedModel> model,
                                                         DType compute) {
  LoadOptions options;
  options.dtype = dtype_name(compute);
  const auto config = engine::resolve_options(options, model->config);
  ExportedTensors tensors(model->tensors);
  model::Weights weights = model::bind_weights(model->config, tensors, std::nullopt);
  std::int64_t count = 0;
  for (const auto& [name, tensor] : model->tensors) {
    count += tensor.count();
  }
  const ModelConfig model_config = model->config;
  weights.owners.push_back(std::move(model));
  return std::make_unique<const engine::LoadedModel>(
      engine::LoadedModel{model::Model(model_config, std::move(weights)), config, count});
}

void write_initial_model(const fs::path& source, const fs::path& directory, DType type,
                         std::uint64_t seed) {
  ModelConfig config = read_config(source);
  config.dtype = type;
  const double residual = 1.0 / std::sqrt(2.0 * config.layers);
  TensorMap tensors;
  std::map<std::string, Buffer<std::byte>> memory;
  std::uint64_t stream = 0;
  for (const auto& [name, shape] : expected_tensors(config)) {
    std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
    Random random(seed, stream++);
    const double spread = 0.02 * (ends_a_block(name) ? residual : 1.0);
    if (shape.size() > 1) {
      std::ranges::generate(values, [&] { return static_cast<float>(spread * random.normal()); });
    } else {
      std::ranges::fill(values, name.ends_with("norm.weight") ? 1.0F : 0.0F);
    }
    Buffer<std::byte>& bytes = memory[name] = rounded(values, type);
    tensors[name] = {type, shape, bytes.data()};
  }
  save_checkpoint(directory, config, tensors);
  copy_tokenizer(source, directory);
}

}  // namespace winnow::train

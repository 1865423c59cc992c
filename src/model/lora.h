// LoRA: low-rank additions to a model's projections, as PEFT stores them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/spec.h"
#include "ops/weight.h"

namespace winnow::model {

/// out += scale * up (down x).
struct LoraProduct {
  ops::Weight down;  // [rank, in]
  ops::Weight up;    // [out, rank]
  float scale = 1.0F;
};

/// An adapter's products for the projections of a layer; empty products add nothing.
struct LoraLayer {
  std::optional<LoraProduct> query;
  std::optional<LoraProduct> key;
  std::optional<LoraProduct> value;
  std::optional<LoraProduct> output;
  std::optional<LoraProduct> gate;
  std::optional<LoraProduct> up;
  std::optional<LoraProduct> down;

  [[nodiscard]] bool has_feed_forward() const { return gate || up || down; }
};

class Lora : public std::enable_shared_from_this<Lora> {
 public:
  /// Reads adapter_config.json and adapter_model.safetensors. Throws Error naming tensors that
  /// the model lacks, and features that winnow does not compute (DoRA, biases, whole modules).
  static std::shared_ptr<const Lora> load(const std::filesystem::path& directory,
                                          const ModelSpec& spec);

  /// The model that it was made for, a name or a path; empty: it does not say.
  [[nodiscard]] const std::string& base_model() const { return base_model_; }
  [[nodiscard]] const LoraLayer& layer(int index) const {
    return layers_[static_cast<std::size_t>(index)];
  }

 private:
  Lora(std::string base_model, SafetensorsFile file)
      : base_model_(std::move(base_model)), file_(std::move(file)) {}

  std::string base_model_;
  SafetensorsFile file_;  // the weights are views of it
  std::vector<LoraLayer> layers_;
};

}  // namespace winnow::model

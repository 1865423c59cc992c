// Converts parameters in training to a model that others can load.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/llm_load.h"
#include "model/checkpoint.h"
#include "train/trainer.h"

namespace winnow::train {

/// A model with Hugging Face's names and conventions. Tensors that training did not change are
/// still in the base checkpoint, which this keeps open.
struct ExportedModel {
  model::ModelSpec spec;
  TensorMap tensors;
  std::map<std::string, Buffer<std::byte>> memory;
  model::Checkpoint base;
};

/// The current model, trained tensors rounded to `type` (f32, f16 or bf16); a borrowed
/// channel's rows replace those in the query projection, and the offset is the final one.
ExportedModel export_model(const Trainer& trainer, DType type);

/// Writes it together with the base model's tokenizer files.
void save_model(const std::filesystem::path& directory, const ExportedModel& model);

/// Loads it into the engine without a file. `compute` is f32 or bf16, `device` cpu or cuda:N.
std::unique_ptr<const engine::LoadedModel> load_exported(std::shared_ptr<const ExportedModel> model,
                                                         DType compute,
                                                         const std::string& device = "cpu");

}  // namespace winnow::train

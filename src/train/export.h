// From parameters in training to the model that others load.
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

/// A model in the names and conventions of Hugging Face. What training left as it was still lies in
/// the base checkpoint, which this keeps open.
struct ExportedModel {
  model::ModelSpec spec;
  TensorMap tensors;
  std::map<std::string, Buffer<std::byte>> memory;
  model::Checkpoint base;
};

/// The model as it is now, trained tensors rounded to `type` (f32, f16 or bf16); a borrowed
/// channel's rows take their place in the query projection, and the offset is the final one.
ExportedModel export_model(const Trainer& trainer, DType type);

/// Writes it with the base model's tokenizer files beside it.
void save_model(const std::filesystem::path& directory, const ExportedModel& model);

/// The engine on it, without a file between. `compute` is f32 or bf16, `device` cpu or cuda:N.
std::unique_ptr<const engine::LoadedModel> load_exported(std::shared_ptr<const ExportedModel> model,
                                                         DType compute,
                                                         const std::string& device = "cpu");

}  // namespace winnow::train

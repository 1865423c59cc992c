// Reads a head that drafts for a model (DraftHeadSpec) from its directory.
#pragma once

#include <filesystem>
#include <optional>

#include "model/checkpoint.h"
#include "model/weights.h"

namespace winnow::model {

/// Whether config.json in this directory describes such a head. False where there is none.
bool is_draft_head(const std::filesystem::path& directory);

/// Opens a head of EAGLE-3 for a model with the description `target`: as its authors and SGLang
/// publish it, or in the format of "speculators". Throws Error if it is for another model, or is of
/// a kind that winnow does not compute.
Checkpoint open_draft_head(const std::filesystem::path& directory, const ModelSpec& target);

/// Opens the MTP layer that the files of a model have beside its own layers; of several the first.
/// Throws Error if they have none, or the model's family is not known to have any.
Checkpoint open_mtp_layer(const std::filesystem::path& directory, const ModelSpec& model);

/// The weights of such a head, as load_weights(). `target`: of the model, which lends it what files
/// lack (DraftHeadSpec) and must outlive it.
Weights load_draft_head(const Checkpoint& head, const Weights& target,
                        std::optional<ops::WeightFormat> format = {}, bool keep_packed = true);

}  // namespace winnow::model

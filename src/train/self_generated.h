// Texts that a model writes by itself: data to retrofit it with that it surely has learned (the DMS
// paper's, for Llama 3.2 1B).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/llm_load.h"
#include "engine/request.h"
#include "tokenizer/tokenizer.h"

namespace winnow::train {

struct DocumentPrompt {
  std::string text;
  std::optional<std::string> answer = {};  // what a continuation has to state, to be kept
};

struct SelfGeneratedCounts {
  std::int64_t finished = 0;  // documents
  std::int64_t kept = 0;      // of them
  std::int64_t tokens = 0;    // generated, those of unfinished documents too
};

struct SelfGeneratedOptions {
  std::int64_t documents = 0;
  /// Taken one after another: document i continues prompt i mod n. Empty: documents begin with
  /// nothing but the beginning-of-text token.
  std::vector<DocumentPrompt> prompts;
  int max_tokens = 0;        // most new tokens of a document
  SamplingOptions sampling;  // every document's seed follows from this one
  std::function<bool(const SelfGeneratedCounts&)> on_progress;  // false ends it with what there is
};

/// Writes JSON lines, {"text": ...} or {"prompt": ..., "completion": ...}, in the order of the
/// documents; many are written at once. Stopped early, it keeps those that are finished. Those that
/// do not state their prompt's answer (answers_agree()) are left out. The file appears or is
/// replaced at the end; it is unchanged if no document was kept. Throws Error when a document does
/// not fit the model, or the file cannot be written.
SelfGeneratedCounts write_self_generated(const engine::LoadedModel& model,
                                         const Tokenizer& tokenizer,
                                         const SelfGeneratedOptions& options,
                                         const std::filesystem::path& file);

}  // namespace winnow::train

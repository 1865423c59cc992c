// Texts that a model generates itself: retrofitting data from its own distribution (as in the DMS
// paper, for Llama 3.2 1B).
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
  std::optional<std::string> answer = {};  // the answer that a continuation must state to be kept
};

struct SelfGeneratedCounts {
  std::int64_t finished = 0;  // documents
  std::int64_t kept = 0;      // of the finished ones
  std::int64_t tokens = 0;    // generated, including those of unfinished documents
};

struct SelfGeneratedOptions {
  std::int64_t documents = 0;
  /// Used in turn: document i continues prompt i mod n. Empty: documents begin with
  /// only the beginning-of-text token.
  std::vector<DocumentPrompt> prompts;
  int max_tokens = 0;        // maximum number of new tokens per document
  SamplingOptions sampling;  // each document's seed is derived from this one
  std::function<bool(const SelfGeneratedCounts&)> on_progress;  // false stops it early
};

/// Writes JSON lines, {"text": ...} or {"prompt": ..., "completion": ...}, in the order of the
/// documents; many are generated at once. If stopped early, it keeps the finished ones. Documents
/// that do not state their prompt's answer (answers_agree()) are left out. The file appears or is
/// replaced at the end; it is unchanged if no document was kept. Throws Error when a document does
/// not fit the model, or the file cannot be written.
SelfGeneratedCounts write_self_generated(const engine::LoadedModel& model,
                                         const Tokenizer& tokenizer,
                                         const SelfGeneratedOptions& options,
                                         const std::filesystem::path& file);

}  // namespace winnow::train

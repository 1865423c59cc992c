// Questions and the documents that answer them, as SQuAD and HotpotQA publish them, and RULER's
// prompts: the documents of one question among others.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "eval/ruler/prompt.h"

namespace winnow::eval {

struct DocumentQuestion {
  std::string text;
  std::vector<std::string> answers;  // any one of them
  std::vector<std::size_t> own;      // documents that it is about
  std::vector<std::size_t> related;  // other ones of the same article
};

struct DocumentSet {
  std::string file;
  std::vector<std::string> documents;  // each once, in order
  std::vector<DocumentQuestion> questions;
};

/// SQuAD 2.0 (dev-v2.0.json) or 1.1; questions without an answer are left out. Error that names
/// file and key when it is something else.
DocumentSet read_squad(const std::filesystem::path& file);
/// HotpotQA with distractors (hotpot_dev_distractor_v1.json).
DocumentSet read_hotpot(const std::filesystem::path& file);

/// The sample's own question, in the order of the file.
RulerPrompt make_document_question(const DocumentSet& set, const RulerSample& sample,
                                   const EncodeBegun& encode);

}  // namespace winnow::eval

// Questions and the documents that answer them, in the formats of SQuAD and HotpotQA, and RULER's
// prompts: a question's documents among others.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "eval/ruler/prompt.h"

namespace winnow::eval {

struct DocumentQuestion {
  std::string text;
  std::vector<std::string> answers;  // each of them is correct
  std::vector<std::size_t> own;      // documents about the question
  std::vector<std::size_t> related;  // other documents of the same article
};

struct DocumentSet {
  std::string file;
  std::vector<std::string> documents;  // distinct, in order
  std::vector<DocumentQuestion> questions;
};

/// SQuAD 2.0 (dev-v2.0.json) or 1.1; unanswerable questions are left out. Error that names
/// file and key for another format.
DocumentSet read_squad(const std::filesystem::path& file);
/// HotpotQA with distractors (hotpot_dev_distractor_v1.json).
DocumentSet read_hotpot(const std::filesystem::path& file);

/// The sample's own question, in the order of the file.
RulerPrompt make_document_question(const DocumentSet& set, const RulerSample& sample,
                                   const EncodeBegun& encode);

}  // namespace winnow::eval

#include "eval/ruler/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "eval/ruler/draws.h"

namespace winnow::eval {
namespace {

constexpr const char* kDocumentsTask =
    "Answer the question based on the given documents. Only give me the answer and do not output "
    "any other words.";

// All documents in shuffled groups: the question's own, those of its article, the others.
std::vector<std::size_t> by_nearness(const DocumentSet& set, const DocumentQuestion& question,
                                     Random& random) {
  std::vector<std::size_t> order = question.own;
  std::vector<bool> taken(set.documents.size());
  const auto append = [&](std::vector<std::size_t> documents) {
    std::erase_if(documents, [&taken](std::size_t document) { return taken[document]; });
    shuffle(std::span(documents), random);
    for (const std::size_t document : documents) {
      taken[document] = true;
      order.push_back(document);
    }
  };
  for (const std::size_t document : order) {
    taken[document] = true;
  }
  append(question.related);
  std::vector<std::size_t> all(set.documents.size());
  std::iota(all.begin(), all.end(), 0);
  append(all);
  return order;
}

}  // namespace

RulerPrompt make_document_question(const DocumentSet& set, const RulerSample& sample,
                                   const EncodeBegun& encode) {
  const auto index = static_cast<std::size_t>(sample.index);
  require(index < set.questions.size(), "--samples: {} has {} questions", set.file,
          set.questions.size());
  const DocumentQuestion& question = set.questions[index];
  Random random = sample.random;
  const auto order = by_nearness(set, question, random);
  const auto write = [&, random](int size) {
    // If there are not enough documents, they are repeated.
    std::vector<std::size_t> shown(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < shown.size(); ++i) {
      shown[i] = order[i % order.size()];
    }
    Random own = random;
    shuffle(std::span(shown), own);
    std::string text = kDocumentsTask + std::string("\n\nThe following are given documents.\n\n");
    for (std::size_t i = 0; i < shown.size(); ++i) {
      text += fmt::format("Document {}:\n{}\n\n", i + 1, set.documents[shown[i]]);
    }
    return text + kDocumentsTask + "\n\nQuestion: " + question.text;
  };
  return {fit(sample, static_cast<int>(question.own.size()), write, " Answer:", encode),
          question.answers};
}

}  // namespace winnow::eval

// RULER's aggregation tasks: which words are most frequent?
#pragma once

#include "eval/ruler/prompt.h"
#include "eval/ruler/vocabulary.h"

namespace winnow::eval {

/// A numbered list in which ten words occur ten times and the others once, after a solved
/// example; six times below 4,096 tokens, and if the longer form does not fit.
RulerPrompt make_common_words(const Vocabulary& vocabulary, const RulerSample& sample,
                              const EncodeBegun& encode);

/// Words of six random letters whose numbers follow a zeta distribution; the first is "...".
RulerPrompt make_frequent_words(const RulerSample& sample, const EncodeBegun& encode);

}  // namespace winnow::eval

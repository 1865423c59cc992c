// RULER's aggregation tasks: which words come most often?
#pragma once

#include "eval/ruler/prompt.h"
#include "eval/ruler/vocabulary.h"

namespace winnow::eval {

/// A numbered list in which ten words come ten times as often as the others, behind a solved
/// example; six times below 4,096 tokens, and where the longer form has no room.
RulerPrompt make_common_words(const Vocabulary& vocabulary, const RulerSample& sample,
                              const EncodeBegun& encode);

/// Words of six random letters whose numbers follow a zeta distribution; the first is "...".
RulerPrompt make_frequent_words(const RulerSample& sample, const EncodeBegun& encode);

}  // namespace winnow::eval

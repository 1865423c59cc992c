// RULER's needles: sentences "One of the special magic numbers for KEY is: VALUE." in a text.
#pragma once

#include "eval/haystack.h"
#include "eval/ruler/prompt.h"
#include "eval/ruler/vocabulary.h"

namespace winnow::eval {

enum class NiahHay { noise, essays, needles };
enum class NiahWord { words, numbers, uuids };

struct NiahForm {
  NiahHay hay = NiahHay::essays;
  NiahWord key = NiahWord::words;
  NiahWord value = NiahWord::numbers;
  int keys = 1;
  int values = 1;   // per key
  int queries = 1;  // keys that are asked for

  /// Whether it takes hay or words from the text of RulerSource.
  [[nodiscard]] constexpr bool reads_text() const {
    return hay == NiahHay::essays || key == NiahWord::words || value == NiahWord::words;
  }
};

RulerPrompt make_niah(const NiahForm& form, const Haystack& essays, const Vocabulary& vocabulary,
                      const RulerSample& sample, const EncodeBegun& encode);

}  // namespace winnow::eval

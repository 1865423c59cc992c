// GPQA: hard questions with four choices; answers are texts that end with a letter.
#pragma once

#include <string>
#include <string_view>

#include "eval/tasks/text_tasks.h"

namespace winnow::eval {

/// {"Question", "Correct Answer", "Incorrect Answer 1" to 3, "Explanation", ...}, the format of
/// Rein et al. (2023). The order of the choices depends only on the question's text.
TextCase parse_gpqa(const DataLine& line);

/// The letter from A to D that an answer states last ("Answer: C", "the answer is (C)",
/// "\boxed{C}"), or begins with; "" when there is none.
std::string stated_letter(std::string_view text);

}  // namespace winnow::eval

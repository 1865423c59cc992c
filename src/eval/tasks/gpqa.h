// GPQA: hard questions with four choices, answered in words that end in a letter.
#pragma once

#include <string>
#include <string_view>

#include "eval/tasks/text_tasks.h"

namespace winnow::eval {

/// {"Question", "Correct Answer", "Incorrect Answer 1" to 3, "Explanation", ...}, as Rein et al.
/// (2023) publish it. The question's text alone decides in which order the choices stand.
TextCase parse_gpqa(const DataLine& line);

/// The letter from A to D that an answer states last ("Answer: C", "the answer is (C)",
/// "\boxed{C}"), or begins with; "" when there is none.
std::string stated_letter(std::string_view text);

}  // namespace winnow::eval

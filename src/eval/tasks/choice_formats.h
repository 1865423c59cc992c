// MMLU, HellaSwag, ARC, PIQA, BoolQ and WinoGrande in their authors' formats (or the Hugging Face
// hub's), with the prompts of lm-evaluation-harness.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "eval/tasks/choices.h"
#include "eval/tasks/data_file.h"

namespace winnow::eval {

/// Parses one line of a task's data as a question without demonstrations.
using ParseChoice = ChoiceQuestion (*)(const DataLine& line);

struct ChoiceTask {
  std::string_view name;
  ParseChoice parse;
  bool normalised;  // whether accuracy per character is the usual figure
};

/// nullptr unless the name is one of: mmlu, hellaswag, arc, piqa, boolq, winogrande.
const ChoiceTask* find_choice_task(std::string_view name);

/// Reads the questions and puts `shots` demonstrations in front of each: the first ones of
/// `shots_data` (for MMLU: of the same subject) that are not the question itself. Ids are line
/// numbers, from 0.
std::vector<ChoiceQuestion> load_choices(const ChoiceTask& task, const std::vector<DataLine>& data,
                                         const std::vector<DataLine>& shots_data, int shots);

}  // namespace winnow::eval

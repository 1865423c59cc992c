// Which of a repository's GGUF files is meant. Repositories hold one model in several quantised
// types, each as a file or split into several.
#pragma once

#include <string>
#include <vector>

namespace winnow::hub {

/// Of `files`, a repository's, those of one model, the first to be opened at the front. `wanted` is
/// a file, or a type such as Q4_K_M, in any case: the file's name ends with it. Empty: the only
/// model, or else Q4_K_M, as llama.cpp takes it. Throws Error, with `where`, when none is meant or
/// it is not clear which, or a part is missing.
std::vector<std::string> choose_gguf(const std::vector<std::string>& files,
                                     const std::string& wanted, const std::string& where);

/// Whether a file of this name is a model in GGUF, not the vision part of one.
bool is_gguf_model(const std::string& name);

}  // namespace winnow::hub

// The choice among a repository's GGUF files. Repositories hold one model in several quantised
// types, each as one file or split into several.
#pragma once

#include <string>
#include <vector>

namespace winnow::hub {

/// The files of one model among a repository's `files`, the one to open first. `wanted` is a file,
/// or a type such as Q4_K_M in any case, with which the file's name ends. Empty: the only model, or
/// else Q4_K_M as in llama.cpp. Throws Error, with `where`, if no model or several match, or if a
/// part is missing.
std::vector<std::string> choose_gguf(const std::vector<std::string>& files,
                                     const std::string& wanted, const std::string& where);

/// Whether a file of this name is a GGUF model, not the vision part of a model.
bool is_gguf_model(const std::string& name);

}  // namespace winnow::hub

// Completion scripts for shells.
#pragma once

#include <span>
#include <string>

#include "apps/winnow/manual/command_page.h"

namespace winnow::cli {

std::string bash_completions(std::span<const CommandPage> commands);
std::string zsh_completions(std::span<const CommandPage> commands);
std::string fish_completions(std::span<const CommandPage> commands);

}  // namespace winnow::cli

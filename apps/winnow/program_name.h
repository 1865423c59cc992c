// What this program was called by.
#pragma once

#include <string>

namespace winnow::cli {

/// For messages with commands that the user may copy: "winnow", "build/release/bin/winnow".
const std::string& program_name();
/// Of main(), before anything else; an empty name changes nothing.
void set_program_name(std::string name);

}  // namespace winnow::cli

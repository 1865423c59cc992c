// The name by which this program was called.
#pragma once

#include <string>

namespace winnow::cli {

/// For commands in messages that the user may copy: "winnow", "build/release/bin/winnow".
const std::string& program_name();
/// main() calls it first; an empty name changes nothing.
void set_program_name(std::string name);

}  // namespace winnow::cli

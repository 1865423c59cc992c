// oneOf: no value may be valid under two of its schemas.
#pragma once

#include <string>
#include <vector>

#include "grammar/json_objects.h"

namespace winnow::grammar {

/// Throws Error unless it can prove that no value satisfies two of the branches.
void require_disjoint(const std::vector<Assertions>& branches, const std::string& where,
                      MemberCompiler& compiler);

}  // namespace winnow::grammar

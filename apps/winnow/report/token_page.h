// A text as a web page; a token's colour shows how many heads kept it.
#pragma once

#include <string>
#include <vector>

#include "eval/profile.h"

namespace winnow::cli {

/// One self-contained page. `texts`: the tokens' bytes; a list selects the share of all
/// heads or a single head.
std::string token_page(const std::string& title, const std::vector<std::string>& texts,
                       const eval::Profile& profile, int kv_heads);

}  // namespace winnow::cli

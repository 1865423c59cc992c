// A text as a web page, every token coloured by what each head kept of it.
#pragma once

#include <string>
#include <vector>

#include "eval/profile.h"

namespace winnow::cli {

/// One self-contained page. `texts`: the tokens' bytes; a list chooses between the share of all
/// heads and every single one.
std::string token_page(const std::string& title, const std::vector<std::string>& texts,
                       const eval::Profile& profile, int kv_heads);

}  // namespace winnow::cli

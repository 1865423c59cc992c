// What most of several answers say.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::answers {

/// The answer that a text counts for: behind "####", in a box, behind "answer is", else its last
/// number. Of a text that was cut off only what it says is the answer, not its last number. "" when
/// there is none.
std::string vote_of(std::string_view text, bool whole);

/// Indices of answers that say the same.
using Opinion = std::vector<std::size_t>;
using Agree = bool (*)(std::string_view a, std::string_view b);

/// Groups answers; those that are "" count for nothing.
std::vector<Opinion> opinions(std::span<const std::string> votes, Agree agree);

/// The largest, of equals the one given first; empty when there is none.
Opinion majority(std::span<const Opinion> opinions);

/// Whether the majority stays, whatever `open` more answers say.
bool is_decided(std::span<const Opinion> opinions, std::size_t open);

}  // namespace winnow::answers

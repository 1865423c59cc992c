// The answer that most of several texts give.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::answers {

/// The answer that a text votes for: after "####", in a box, after "answer is", else its last
/// number. If the text was cut off (not `whole`), its last number does not count. "" if there is no
/// answer.
std::string vote_of(std::string_view text, bool whole);

/// Indices of answers that agree.
using Opinion = std::vector<std::size_t>;
using Agree = bool (*)(std::string_view a, std::string_view b);

/// Groups answers that agree; "" votes for nothing.
std::vector<Opinion> opinions(std::span<const std::string> votes, Agree agree);

/// The largest opinion, the one given first among equals; empty if there is none.
Opinion majority(std::span<const Opinion> opinions);

/// Whether `open` more answers cannot change the majority.
bool is_decided(std::span<const Opinion> opinions, std::size_t open);

}  // namespace winnow::answers
